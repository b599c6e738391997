"""Compute the loss of a packed micro-batch, and collect the report and log-probabilities of a pass over micro-batches.

Shapes: _S response tokens of a micro-batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from infuser_core.algorithm.objective import ObjectiveTerms, clipped_objective
from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import norm
from infuser_core.engines.training.packing import MicroBatch, Segment
from infuser_core.protocols import ProbeResult, Similarity, StepReport, TrainGroup
from infuser_core.schemas import TOKEN_MEANS
from infuser_core.store.series import Series

Values = Mapping[int, Mapping[int, Sequence[float]]]
"""Log-probabilities by place of the group and place of the row."""


class Policy(Protocol):
    """A model under training, as the loss uses it."""

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        """Compute log pi(token) of every response token, logits divided by `temperature`, [S]."""

    def with_entropy(self, batch: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Compute `logprobs`, and the entropy of pi at every response token, nats, each [S]."""


def forward_terms(
    policy: Policy, batch: MicroBatch, objective: Objective, denominator: int
) -> tuple[ObjectiveTerms, Tensor]:
    """Forward pass; returns `batch_terms` and log-probabilities. Entropy is computed only for an entropy bonus."""
    entropy_S = None
    if objective.entropy:
        logprobs_S, entropy_S = policy.with_entropy(batch, temperature=objective.temperature)
    else:
        logprobs_S = policy.logprobs(batch, temperature=objective.temperature)
    return batch_terms(logprobs_S, batch, objective, denominator, entropy_S), logprobs_S


def batch_terms(
    logprobs_S: Tensor, batch: MicroBatch, objective: Objective, denominator: int, entropy_S: Tensor | None = None
) -> ObjectiveTerms:
    """Compute -J summed over the micro-batch and divided by `denominator` (eq:unified_obj)."""
    return clipped_objective(
        logprobs_S,
        advantages_S=batch.advantages_S,
        weights_S=batch.weights_S / (objective.length_norm * denominator),
        sampler_logprobs_S=batch.sampler_logprobs_S,
        old_logprobs_S=batch.old_logprobs_S,
        anchor_logprobs_S=batch.anchor_logprobs_S,
        rows_S=batch.rows_S,
        entropy_S=entropy_S,
        objective=objective,
    )


NEUTRAL = {"mean_ratio": 1.0, "mean_tis": 1.0}
"""Means of a pass without tokens; the others are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over some rows of a pass, from which its report is computed."""

    loss: float
    """Negative objective."""
    tokens: int
    """Response tokens computed."""
    sums: Mapping[str, float]
    """Sums over these tokens (see ObjectiveTerms)."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            loss=self.loss + other.loss,
            tokens=self.tokens + other.tokens,
            sums={name: self.sums[name] + other.sums[name] for name in TOKEN_MEANS},
        )

    def report(self, groups: Sequence[TrainGroup]) -> StepReport:
        """Compute the report of a whole pass; token means are over computed tokens."""
        means = {name: self.sums[name] / self.tokens if self.tokens else NEUTRAL.get(name, 0.0) for name in TOKEN_MEANS}
        tokens = sum(len(row.token_ids) for group in groups for row in group.rows)
        return StepReport(loss=self.loss, num_tokens=tokens, means=means)


class PassTally:
    """Adds up losses, token statistics and log-probabilities over the micro-batches of one pass."""

    def __init__(self) -> None:
        self.logprobs: dict[int, dict[int, Sequence[float]]] = {}
        """Log-probabilities by place of the group and place of the row."""
        self.rows, self.tokens = 0, 0
        self._terms: list[Tensor] = []

    def note(
        self, segments: Sequence[Segment], *, terms: ObjectiveTerms | None = None, logprobs_S: Tensor | None = None
    ) -> None:
        """Add one micro-batch: its terms if it had a backward pass, its log-probabilities if they will be returned."""
        self.rows += sum(len(segment.rows) for segment in segments)
        self.tokens += sum(len(row.token_ids) for segment in segments for row in segment.rows)
        if terms is not None:
            parts = (terms.loss, *(terms.sums[name] for name in TOKEN_MEANS))
            self._terms.append(torch.stack([each.detach().double() for each in parts]))
        if logprobs_S is None:
            return
        values, start = Series(logprobs_S.detach().to("cpu", copy=True).numpy()), 0
        for segment in segments:
            rows = self.logprobs.setdefault(segment.group, {})
            for place, row in zip(segment.places, segment.rows, strict=True):
                rows[place] = values[start : start + len(row.token_ids)]
                start += len(row.token_ids)

    def sums(self) -> Sums:
        """Return the sums so far."""
        loss, *sums = torch.stack(self._terms).sum(0).tolist() if self._terms else [0.0] * (1 + len(TOKEN_MEANS))
        return Sums(loss=loss, tokens=self.tokens, sums=dict(zip(TOKEN_MEANS, sums, strict=True)))


def order_logprobs(groups: Sequence[TrainGroup], values: Values) -> list[list[Sequence[float]]]:
    """Order log-probabilities as in `groups`, [group][row][token]; empty for rows that were not computed."""
    return [
        [values.get(place, {}).get(row, []) for row in range(len(group.rows))] for place, group in enumerate(groups)
    ]


def probe_result(groups: Sequence[TrainGroup], sums: Tensor, reference_norm: float, values: Values) -> ProbeResult:
    """Compute the result of a scoring pass from the sums of every group's gradient of -J (see Optimizer.sums), [G, 4].

    `values` are the log-probabilities that the pass computed.
    """
    similarities = [
        Similarity(
            group_id=group.group_id,
            # Gamma is odd in g, so the sign of g flips both products.
            dot=-dot,
            raw_dot=-raw_dot,
            direction_norm=norm(direction_sq),
            gradient_norm=norm(gradient_sq),
            reference_norm=reference_norm,
        )
        for group, (dot, raw_dot, direction_sq, gradient_sq) in zip(groups, sums.tolist(), strict=True)
    ]
    return ProbeResult(similarities=similarities, logprobs=order_logprobs(groups, values))


def merge_logprobs(parts: Iterable[Values]) -> Values:
    """Merge the log-probabilities of several parts of a pass."""
    together: dict[int, dict[int, Sequence[float]]] = {}
    for values in parts:
        for place, rows in values.items():
            together.setdefault(place, {}).update(rows)
    return together
