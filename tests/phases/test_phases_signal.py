"""Scores need a dev signal. Without one they are 0 and say so; nothing is probed that has no direction."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from places import CONFIGS
from safetensors.torch import load_file
from solver_rows import answers, question

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import score_influence as score_phase
from infuser_core.cotrain.phases.dev_gradient import FILE, dev_gradient
from infuser_core.cotrain.phases.score_influence import score_influence
from infuser_core.engines.fake import FakeTrainer
from infuser_core.schemas import InfluenceScore, Rollout, ScoreStatus

CONFIG = load([CONFIGS / "nano.yaml"])


def rollouts(name: str, rewards: list[float]) -> list[Rollout]:
    return answers(name, [""] * len(rewards), correct=[bool(reward) for reward in rewards])


def score(trainer: FakeTrainer, tmp_path: Path, dev: list[Rollout], *, probe: bool = True) -> dict[str, InfluenceScore]:
    """Scores of a varied and of a flat question against the gradient of the dev rollouts."""
    facts, _ = dev_gradient(dev, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    scored = score_influence(
        [question("varied"), question("flat")],
        [*rollouts("varied", [1.0, 0.0, 0.0, 1.0]), *rollouts("flat", [1.0] * 4)],
        trainer,
        score_phase.settings_of(CONFIG, iteration=0, probe=probe),
        reference=tmp_path / FILE if probe else None,
        reference_norm=facts.norm,
        workspace=tmp_path,
    )
    return {row.question_id: row for row in scored.scores}


def test_a_varied_dev_set_gives_a_direction(trainer: FakeTrainer, tmp_path: Path):
    dev = [*rollouts("d1", [1.0, 0.0, 1.0, 0.0]), *rollouts("d2", [1.0] * 4)]
    facts, _ = dev_gradient(dev, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    assert facts.norm > 0
    assert (facts.num_groups, facts.num_varied, facts.accuracy) == (2, 1, 0.75)
    assert (tmp_path / FILE).is_file()


def test_answers_cut_at_the_limit_give_no_direction_where_they_are_masked(trainer: FakeTrainer, tmp_path: Path):
    keep = gradient_phase.settings_of(CONFIG)
    mask = replace(keep, objective=replace(keep.objective, overlong="mask"))
    rows = answers("d1", ["first", "second", "third", "fourth"], correct=[True, False, False, True])
    cut = [replace(row, finish_reason="length") if place == 1 else row for place, row in enumerate(rows)]
    directions = {}
    for name, dev, settings in (
        ("whole", rows, mask),
        ("same", rows, keep),
        ("masked", cut, mask),
        ("kept", cut, keep),
    ):
        (tmp_path / name).mkdir()
        dev_gradient(dev, trainer, settings, workspace=tmp_path / name)
        directions[name] = load_file(tmp_path / name / FILE)["weights"]
    assert torch.equal(directions["whole"], directions["same"]) and torch.equal(directions["kept"], directions["same"])
    # What the masked row gave alone is what is missing.
    assert not torch.allclose(directions["masked"], directions["kept"])
    every = [replace(row, finish_reason="length") for row in rows]
    facts, _ = dev_gradient(every, trainer, mask, workspace=tmp_path)
    assert (facts.norm, facts.num_varied) == (0.0, 0)


@pytest.mark.parametrize("reward", [1.0, 0.0], ids=["solved", "hopeless"])
def test_a_dev_set_without_variance_gives_none(trainer: FakeTrainer, tmp_path: Path, reward: float):
    dev = [*rollouts("d1", [reward] * 4), *rollouts("d2", [reward] * 4)]
    facts, _ = dev_gradient(dev, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    assert (facts.norm, facts.num_varied, facts.accuracy) == (0.0, 0, reward)


def test_without_a_dev_signal_every_score_is_0_with_that_status(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, rollouts("d1", [1.0] * 4))
    assert {(row.status, row.score, row.cosine, row.reference_norm) for row in found.values()} == {
        (ScoreStatus.NO_DEV_SIGNAL, 0.0, 0.0, 0.0)
    }
    assert found["varied"].solver_accuracy == 0.5


def test_a_question_that_is_always_or_never_solved_scores_0(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, rollouts("d1", [1.0, 0.0, 0.0, 1.0]))
    assert (found["flat"].status, found["flat"].score) == (ScoreStatus.ZERO_VARIANCE, 0.0)
    assert found["varied"].status == ScoreStatus.SCORED
    # The same answers with the same rewards as on the dev set: the direction is the dev set's own.
    assert found["varied"].score == found["varied"].cosine
    assert found["varied"].raw_cosine == pytest.approx(1.0, abs=1e-5)


def test_answers_that_earned_the_opposite_score_below_0(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, rollouts("d1", [0.0, 1.0, 1.0, 0.0]))
    assert found["varied"].raw_cosine == pytest.approx(-1.0, abs=1e-5)
    assert found["varied"].score < 0


def test_a_reward_that_needs_no_influence_probes_nothing(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, rollouts("d1", [1.0, 0.0, 0.0, 1.0]), probe=False)
    assert {row.status for row in found.values()} == {ScoreStatus.NOT_PROBED}
    assert {name: row.solver_accuracy for name, row in found.items()} == {"varied": 0.5, "flat": 1.0}


def test_scoring_changes_nothing_in_the_solver(trainer: FakeTrainer, tmp_path: Path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    trainer.save(tmp_path / "before")
    score(trainer, tmp_path, rollouts("d1", [1.0, 0.0, 0.0, 1.0]))
    trainer.save(tmp_path / "after")
    files = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert files and [(tmp_path / "after" / name).read_bytes() for name in files] == [
        (tmp_path / "before" / name).read_bytes() for name in files
    ]
