"""Measure the change after real optimizer steps on one question's answers, on a copy of the solver that is discarded.

A measure maps a trainer's weights to a value per question [Q]. That of this module is the objective estimated on fixed
rollouts of the unchanged policy, reweighted by sequence-level importance ratios: it is unbiased, has common random
numbers for all questions, and little noise for a small step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.algorithm.preset import Objective
from infuser_core.cotrain.phases.parts.not_finite import is_finite, not_finite_row
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, train_group
from infuser_core.protocols import Trainer
from infuser_core.schemas import Checkpoint, NotFinite, Rollout

Measure = Callable[[Trainer], np.ndarray]
"""Maps a trainer's weights to one value per question [Q]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSteps:
    """Steps on one question at a time, each from the same checkpoint, and measures of their effect."""

    solver: Trainer
    """The trainer; it holds `checkpoint` at first, and other weights after a question."""
    checkpoint: Checkpoint
    """Weights and moments from which every question starts."""
    constants: Objective
    """The objective's constants, those of the batch that the questions belong to."""
    step: UpdateSettings
    """The solver's own optimizer and objective."""
    measures: Mapping[str, Measure]
    """Measures of the effect, by name."""
    before: Mapping[str, np.ndarray]
    """The measures at the checkpoint [Q]."""
    count: int = 1
    """Steps on a question."""

    def changes(self, group: Sequence[Rollout]) -> dict[str, np.ndarray] | NotFinite:
        """Changes of the measures [Q] after the steps on a question whose rewards differ.

        Returns the loss, gradient or change that is not finite instead, if there is one.
        """
        self.solver.load(self.checkpoint)
        train = self.step.objective.train_group(group, centre([answer.reward for answer in group]))
        for _ in range(self.count):
            self.solver.zero_grad()
            loss = self.solver.forward_backward([train], self.constants, denominator=1).loss
            norm = self.solver.optim_step(self.step.learning_rate) if is_finite(loss) else math.nan
            if not is_finite(norm):
                return not_finite_row(train.group_id, loss, norm)
        changes = {name: measure(self.solver) - self.before[name] for name, measure in self.measures.items()}
        means = [float(change.mean()) for change in changes.values()]
        broken = [mean for mean in means if not is_finite(mean)]
        return NotFinite(group_id=train.group_id, quantity="change", value=broken[0], tensor="") if broken else changes


def reweighted_measure(rollouts: Sequence[Rollout], solver: Trainer, *, temperature: float) -> Measure:
    """Build a measure: mean_i (w_i - 1)(r_i - mean r) per question, w the ratio to the weights that `solver` holds."""
    groups = by_group(rollouts)
    # A question whose answers all have the same reward does not change to first order.
    varied = [rows for rows in groups.values() if not is_flat([row.reward for row in rows])]
    train = [train_group(rows, [0.0] * len(rows)) for rows in varied]

    def response_logprobs(trainer: Trainer) -> list[list[float]]:
        logprobs = trainer.logprobs(train, temperature=temperature)
        return [[sum(logprobs_T) for logprobs_T in group] for group in logprobs]

    before = response_logprobs(solver)

    def measure(trainer: Trainer) -> np.ndarray:
        values = np.zeros(len(groups))
        for place, (rows, news, olds) in enumerate(zip(varied, response_logprobs(trainer), before, strict=True)):
            credits = centre([row.reward for row in rows])
            values[place] = np.mean([math.expm1(n - o) * c for n, o, c in zip(news, olds, credits, strict=True)])
        return values

    return measure
