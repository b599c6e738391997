"""The dev gradient and the influence score, by hand and as the paper's code computes it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_tiny import make_checkpoint, objective_settings, stock_logprobs, stock_model
from places import CONFIGS
from safetensors.torch import load_file
from solver_rows import answers, question
from stock_engines import local_trainer
from test_studies import questions, rollouts
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.algorithm.advantage import centre
from infuser_core.algorithm.preset import PRESETS
from infuser_core.config.overlays import load
from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import score_influence as score_phase
from infuser_core.cotrain.phases import update_solver
from infuser_core.cotrain.phases.dev_gradient import FILE, dev_gradient
from infuser_core.cotrain.phases.score_influence import ScoreSettings, score_influence
from infuser_core.cotrain.phases.training import ObjectiveSettings, UpdateSettings, by_group
from infuser_core.cotrain.phases.update_solver import SolverSettings
from infuser_core.engines.fake import FakeTrainer
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.schemas import Checkpoint, InfluenceScore, Rollout, ScoreStatus

CONFIG = load([CONFIGS / "nano.yaml"])


def answered(name: str, rewards: list[float]) -> list[Rollout]:
    return answers(name, [""] * len(rewards), correct=[bool(reward) for reward in rewards])


def score(trainer: FakeTrainer, tmp_path: Path, dev: list[Rollout], *, probe: bool = True) -> dict[str, InfluenceScore]:
    """Scores of a varied and of a flat question against the gradient of the dev rollouts."""
    facts, _ = dev_gradient(dev, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    scored = score_influence(
        [question("varied"), question("flat")],
        [*answered("varied", [1.0, 0.0, 0.0, 1.0]), *answered("flat", [1.0] * 4)],
        trainer,
        score_phase.settings_of(CONFIG, iteration=0, probe=probe),
        reference=tmp_path / FILE if probe else None,
        reference_norm=facts.norm,
        workspace=tmp_path,
    )
    return {row.question_id: row for row in scored.scores}


def test_a_varied_dev_set_gives_a_direction(trainer: FakeTrainer, tmp_path: Path):
    dev = [*answered("d1", [1.0, 0.0, 1.0, 0.0]), *answered("d2", [1.0] * 4)]
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
    dev = [*answered("d1", [reward] * 4), *answered("d2", [reward] * 4)]
    facts, _ = dev_gradient(dev, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    assert (facts.norm, facts.num_varied, facts.accuracy) == (0.0, 0, reward)


def test_without_a_dev_signal_every_score_is_0_with_that_status(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, answered("d1", [1.0] * 4))
    assert {(row.status, row.score, row.cosine, row.reference_norm) for row in found.values()} == {
        (ScoreStatus.NO_DEV_SIGNAL, 0.0, 0.0, 0.0)
    }
    assert found["varied"].solver_accuracy == 0.5


def test_a_question_that_is_always_or_never_solved_scores_0(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, answered("d1", [1.0, 0.0, 0.0, 1.0]))
    assert (found["flat"].status, found["flat"].score) == (ScoreStatus.ZERO_VARIANCE, 0.0)
    assert found["varied"].status == ScoreStatus.SCORED
    # The same answers with the same rewards as on the dev set: the direction is the dev set's own.
    assert found["varied"].score == found["varied"].cosine
    assert found["varied"].raw_cosine == pytest.approx(1.0, abs=1e-5)


def test_answers_that_earned_the_opposite_score_below_0(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, answered("d1", [0.0, 1.0, 1.0, 0.0]))
    assert found["varied"].raw_cosine == pytest.approx(-1.0, abs=1e-5)
    assert found["varied"].score < 0


def test_a_reward_that_needs_no_influence_probes_nothing(trainer: FakeTrainer, tmp_path: Path):
    found = score(trainer, tmp_path, answered("d1", [1.0, 0.0, 0.0, 1.0]), probe=False)
    assert {row.status for row in found.values()} == {ScoreStatus.NOT_PROBED}
    assert {name: row.solver_accuracy for name, row in found.items()} == {"varied": 0.5, "flat": 1.0}


def test_scoring_changes_nothing_in_the_solver(trainer: FakeTrainer, tmp_path: Path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    trainer.save(tmp_path / "before")
    score(trainer, tmp_path, answered("d1", [1.0, 0.0, 0.0, 1.0]))
    trainer.save(tmp_path / "after")
    files = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert files and [(tmp_path / "after" / name).read_bytes() for name in files] == [
        (tmp_path / "before" / name).read_bytes() for name in files
    ]


# Scores under either preset against a plain loop: C of the influence pass is the C of an update on its questions


CAP, TOKENS, RATE = 2.0, 512, 1e-2
ADAMW = OptimizerSettings()


class Plain:
    """The whole of a solver's side in a few lines of torch: update, dev gradient and scores, in float64."""

    def __init__(self, model: PreTrainedModel, *, token_mean: bool) -> None:
        self.model, self.token_mean = model, token_mean
        self.v = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
        self.adamw = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-8, weight_decay=0.01)
        self.steps = 0

    def gradient(self, groups: list[list[Rollout]], credit: list[list[float]], divisor: int) -> dict[str, Tensor]:
        """Gradient of the objective over these groups; old and current policy are one."""
        lengths = [len(row.token_ids) for rows in groups for row in rows]
        c = sum(lengths) / len(lengths) if self.token_mean else TOKENS
        return self._gradient(groups, credit, divisor, c)

    def _gradient(
        self, groups: list[list[Rollout]], credit: list[list[float]], divisor: int, c: float
    ) -> dict[str, Tensor]:
        total = torch.zeros((), dtype=torch.float64)
        for rows, values in zip(groups, credit, strict=True):
            for row, value in zip(rows, values, strict=True):
                logprobs = stock_logprobs(self.model, row.prompt_token_ids, row.token_ids, 1.0)
                weight = (logprobs.detach() - torch.tensor(row.sampler_logprobs)).exp().clamp(max=CAP)
                total = total + (weight * logprobs).sum() * value / (len(rows) * c * divisor)
        names, weights = zip(*self.model.named_parameters(), strict=True)
        return dict(zip(names, torch.autograd.grad(total, weights), strict=True))

    def step(self, groups: list[list[Rollout]]) -> None:
        """One AdamW step on the groups."""
        found = self.gradient(groups, [centre([row.reward for row in rows]) for rows in groups], len(groups))
        for name, weight in self.model.named_parameters():
            weight.grad = -found[name]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()
        self.steps += 1
        self.v = {name: self.adamw.state[weight]["exp_avg_sq"] for name, weight in self.model.named_parameters()}

    def scores(self, asked: list[list[Rollout]], dev: list[list[Rollout]]) -> list[float]:
        """Cosine of the dev gradient and each question's Gamma (eq:adamw_moments)."""
        reference = self.gradient(dev, [centre([row.reward for row in rows]) for rows in dev], len(dev))
        lengths = [len(row.token_ids) for rows in asked for row in rows]
        c = sum(lengths) / len(lengths) if self.token_mean else TOKENS
        return [self._score(rows, reference, c) for rows in asked]

    def _score(self, rows: list[Rollout], reference: dict[str, Tensor], c: float) -> float:
        g = self._gradient([rows], [centre([row.reward for row in rows])], 1, c)
        t = self.steps + 1
        gamma = {
            name: g[name] / (((0.999 * self.v[name] + 0.001 * g[name] ** 2) / (1 - 0.999**t)).sqrt() + 1e-8)
            for name in g
        }
        dot = sum(float((reference[name] * gamma[name]).sum()) for name in g)
        norms = [sum(float(each.square().sum()) for each in one.values()) ** 0.5 for one in (reference, gamma)]
        return dot / (norms[0] * norms[1])


@pytest.mark.parametrize("preset", ["paper", "official"])
@pytest.mark.parametrize("steps", [0, 3])
def test_scores_are_those_of_a_plain_loop(tmp_path: Path, preset: str, steps: int) -> None:
    settings = objective_settings(options=PRESETS[preset], max_tokens=TOKENS)
    anchor = make_checkpoint(tmp_path)
    plain = Plain(stock_model(anchor), token_mean=preset == "official")
    solver = local_trainer(dtype="float64")
    solver.load(anchor)
    update = UpdateSettings(
        learning_rate=RATE, minibatch=2, advantage="mean_centred", objective=settings, optimizer=ADAMW, kl=0.0
    )
    for number in range(steps):
        rows = rollouts("q", seed=10 + number)
        plain.step(list(by_group(rows).values()))
        (tmp_path / str(number)).mkdir()
        update_solver.update_solver(
            questions(),
            rows,
            solver,
            SolverSettings(step=update, band=None, ranks=False, mid_eos_penalty=0.0, left_out=[]),
            workspace=tmp_path / str(number),
            before=anchor,
        )
    dev, asked = rollouts("d", seed=1), [*rollouts("q", seed=2), *rollouts("r", seed=3)]
    expected = plain.scores(list(by_group(asked).values()), list(by_group(dev).values()))
    assert scored(solver, dev, asked, settings, tmp_path) == pytest.approx(expected, abs=1e-6)


def scored(
    solver: LocalTrainer,
    dev: list[Rollout],
    asked: list[Rollout],
    settings: ObjectiveSettings,
    folder: Path,
    *,
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> list[float]:
    """Scores as the phases compute them."""
    own = gradient_phase.DevSettings(objective=settings)
    norm = dev_gradient(dev, solver, own, workspace=folder)[0].norm
    names = dict.fromkeys(row.group_id for row in asked)
    found = score_influence(
        [replace(questions()[0], question_id=name, rollout_id=name) for name in names],
        asked,
        solver,
        ScoreSettings(**{"objective": settings, "mode": "preconditioned_cosine", "probe": True, **options}),
        reference=folder / FILE,
        reference_norm=norm,
        workspace=folder,
        dev=dev,
        checkpoint=checkpoint,
    )
    return [row.score for row in found.scores]


@pytest.mark.parametrize("count", [1, 3])
def test_a_measured_score_is_the_rate_times_the_dot_product(tmp_path: Path, count: int) -> None:
    rate, anchor = 1e-6, make_checkpoint(tmp_path)
    solver = local_trainer(dtype="float64", optimizer={"weight_decay": 0.0, "max_grad_norm": 1e9})
    solver.load(anchor)
    settings = objective_settings(tis_cap=None, max_tokens=TOKENS)
    dev, asked = rollouts("d", seed=1), [*rollouts("q", seed=2), *rollouts("r", seed=3)]
    dots = scored(solver, dev, asked, settings, tmp_path, mode="preconditioned_dot")
    step = UpdateSettings(
        learning_rate=rate, minibatch=2, advantage="mean_centred", objective=settings, optimizer=ADAMW, kl=0.0
    )
    options = {"mode": "measured", "step": step, "steps": count}
    changes = scored(solver, dev, asked, settings, tmp_path, checkpoint=anchor, **options)
    # From moments of 0, every step on the same answers goes the same way; the dev gradient is divided by TOKENS.
    assert changes == pytest.approx([count * rate * TOKENS * dot for dot in dots], rel=1e-2)
    # The solver holds the checkpoint again.
    assert scored(solver, dev, asked, settings, tmp_path, mode="preconditioned_dot") == dots


def test_a_question_without_a_finite_step_keeps_its_row_and_says_so(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    solver = local_trainer()
    solver.load(anchor)
    settings = objective_settings(max_tokens=TOKENS)
    asked = [
        replace(row, sampler_logprobs=[math.nan] * len(row.token_ids)) if row.group_id.endswith("0") else row
        for row in rollouts("q", seed=2)
    ]
    names = [*by_group(asked)]
    step = UpdateSettings(
        learning_rate=1e-5, minibatch=2, advantage="mean_centred", objective=settings, optimizer=ADAMW, kl=0.0
    )
    gradient = dev_gradient(
        rollouts("d", seed=1), solver, gradient_phase.DevSettings(objective=settings), workspace=tmp_path
    )[0]
    scores = score_influence(
        [replace(questions()[0], question_id=name, rollout_id=name) for name in names],
        asked,
        solver,
        ScoreSettings(objective=settings, mode="measured", probe=True, step=step),
        reference=tmp_path / FILE,
        reference_norm=gradient.norm,
        workspace=tmp_path,
        dev=rollouts("d", seed=1),
        checkpoint=anchor,
    )
    assert [row.status for row in scores.scores] == [ScoreStatus.NOT_FINITE, ScoreStatus.SCORED]
    assert [row.group_id for row in scores.not_finite] == names[:1] and scores.scores[1].score != 0.0
