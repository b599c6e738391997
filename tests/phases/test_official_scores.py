"""Scores under either preset against a plain loop: C of the influence pass is the C of an update on its questions."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, objective_settings, stock_logprobs, stock_model
from stock_engines import local_trainer
from test_influence_study import questions, rollouts
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.algorithm.advantage import centre
from infuser_core.algorithm.preset import PRESETS
from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import update_solver
from infuser_core.cotrain.phases.dev_gradient import FILE, dev_gradient
from infuser_core.cotrain.phases.score_influence import ScoreSettings, score_influence
from infuser_core.cotrain.phases.training import ObjectiveSettings, UpdateSettings, by_group
from infuser_core.cotrain.phases.update_solver import SolverSettings
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.schemas import Rollout

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
    solver: LocalTrainer, dev: list[Rollout], asked: list[Rollout], settings: ObjectiveSettings, folder: Path
) -> list[float]:
    """Scores as the phases compute them."""
    own = gradient_phase.DevSettings(objective=settings)
    norm = dev_gradient(dev, solver, own, workspace=folder)[0].norm
    names = dict.fromkeys(row.group_id for row in asked)
    found = score_influence(
        [replace(questions()[0], question_id=name, rollout_id=name) for name in names],
        asked,
        solver,
        ScoreSettings(objective=settings, mode="preconditioned_cosine", probe=True),
        reference=folder / FILE,
        reference_norm=norm,
        workspace=folder,
    )
    return [row.score for row in found.scores]
