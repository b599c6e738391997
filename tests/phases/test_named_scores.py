"""Every score of the folder from one pass of its own agrees with the engine's probe where the two mean the same."""

from pathlib import Path

import pytest
from engine_tiny import make_checkpoint, objective_settings
from stock_engines import local_trainer
from test_influence_study import rollouts, settings

from infuser_core.algorithm.advantage import centre
from infuser_core.cotrain.phases.score_influence import ScoreSettings, score_influence
from infuser_core.cotrain.phases.training import by_group, train_group
from infuser_core.cotrain.studies.candidates import SCORES, named_scores, ranks_within, values_by_score
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Rollout

OBJECTIVE = objective_settings(tis_cap=None, max_tokens=1)


def question(name: str, *, subdomain: str = "") -> Question:
    return Question(question_id=name, text="", choices=[], answer="", verifier="choice", subdomain=subdomain)


def stored(trainer: LocalTrainer, answers: list[Rollout], folder: Path) -> list[InfluenceScore]:
    """The run's own scores, against the gradient of other answers."""
    dev = [train_group(rows, centre([row.reward for row in rows])) for rows in by_group(rollouts("d", seed=3)).values()]
    trainer.forward_backward(dev, OBJECTIVE.constants([]), denominator=len(dev))
    norm = trainer.keep_gradient(folder / "dev.safetensors")
    trainer.zero_grad()
    asked = [question(name) for name in by_group(answers)]
    wanted = ScoreSettings(objective=OBJECTIVE, mode="preconditioned_cosine", probe=True)
    file = folder / "dev.safetensors"
    return score_influence(
        asked, answers, trainer, wanted, reference=file, reference_norm=norm, workspace=folder, include_carried=True
    ).scores


def values(
    checkpoint: Checkpoint, folder: Path, labels: list[QuestionLabel]
) -> tuple[dict[str, dict[str, float]], list[InfluenceScore]]:
    trainer = local_trainer()
    trainer.load(checkpoint)
    answers = rollouts("q", seed=0)
    own = stored(trainer, answers, folder)
    target = [question("d", subdomain="clock")]
    rows = named_scores(
        own,
        answers,
        target,
        labels,
        trainer,
        checkpoint,
        OBJECTIVE,
        reference=folder / "dev.safetensors",
        workspace=folder,
    )
    return values_by_score(rows), own


def test_without_moments_every_frozen_form_is_the_plain_cosine(tmp_path: Path) -> None:
    found, own = values(make_checkpoint(tmp_path), tmp_path, [])
    probed = {row.question_id: pytest.approx(row.raw_cosine, abs=1e-6) for row in own}
    assert found["gradalign"] == probed and found["bergson"] == probed
    # Nobody labelled the questions, and the oracle has nothing to say.
    assert {*found} == {*SCORES.names()} - {"label_oracle"}


def test_moments_of_a_few_steps_set_the_forms_apart_and_the_oracle_speaks_with_labels(tmp_path: Path) -> None:
    trainer = local_trainer()
    trainer.load(make_checkpoint(tmp_path))
    for _ in range(3):
        rows = next(iter(by_group(rollouts("w", seed=5)).values()))
        train = train_group(rows, centre([row.reward for row in rows]))
        trainer.forward_backward([train], OBJECTIVE.constants([]), denominator=1)
        trainer.optim_step(settings(1e-3).learning_rate)
        trainer.zero_grad()
    (tmp_path / "warm").mkdir()
    step = trainer.save(tmp_path / "warm")
    warm = Checkpoint(checkpoint_id="warm", role="solver", path=str(tmp_path / "warm"), step=step)
    names = [*by_group(rollouts("q", seed=0))]
    labels = [QuestionLabel(question_id=names[0], topic="clock", key="sound")]
    labels.append(QuestionLabel(question_id=names[1], topic="clock", key="unsound"))
    found, own = values(warm, tmp_path, labels)
    assert [*found["label_oracle"].values()] == [1.0, -1.0]
    for row in own:
        forms = [found[name][row.question_id] for name in ("gradalign", "bergson", "raw_cosine")]
        assert len({round(value, 4) for value in forms}) == 3 and all(-1 <= value <= 1 for value in forms)


def test_ranks_within_cells_forget_what_the_cells_say() -> None:
    assert ranks_within([5.0, 9.0, 1.0, 2.0], ["a", "a", "b", "b"]) == [-0.25, 0.25, -0.25, 0.25]
