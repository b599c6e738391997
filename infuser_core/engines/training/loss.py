"""Loss of a packed micro-batch, and what the micro-batches of a pass add up to: its report and its log-probabilities.

Shapes: _S response tokens of a micro-batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from infuser_core.algorithm.objective import ObjectiveTerms, clipped_objective
from infuser_core.engines.protocols import Objective, StepReport, TrainGroup
from infuser_core.engines.training.packing import MicroBatch, Segment

Values = Mapping[int, Mapping[int, list[float]]]
"""Log-probabilities by place of the group and place of the row."""


class Policy(Protocol):
    """A model under training."""

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        """log pi(token) of every response token, logits divided by `temperature`, [S]."""
        ...


def batch_terms(logprobs_S: Tensor, batch: MicroBatch, objective: Objective, denominator: int) -> ObjectiveTerms:
    """-J summed over the micro-batch and divided by `denominator` (eq:unified_obj)."""
    return clipped_objective(
        logprobs_S,
        advantages_S=batch.advantages_S,
        weights_S=batch.weights_S / (objective.length_norm * denominator),
        sampler_logprobs_S=batch.sampler_logprobs_S,
        old_logprobs_S=batch.old_logprobs_S,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        dual_clip=objective.dual_clip,
        tis_cap=objective.tis_cap,
        tis_form=objective.tis_form,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Contribution of some rows to the report of a pass."""

    loss: float
    """Negative objective."""
    clipped: float
    """Tokens on which the clipped branch was active."""
    ratio: float
    """Sum of importance ratios."""
    tis: float
    """Sum of truncated importance weights."""
    tokens: int
    """Response tokens computed."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            loss=self.loss + other.loss,
            clipped=self.clipped + other.clipped,
            ratio=self.ratio + other.ratio,
            tis=self.tis + other.tis,
            tokens=self.tokens + other.tokens,
        )

    def report(self, groups: Sequence[TrainGroup], *, divisor: int = 1) -> StepReport:
        """The whole pass; token means are over computed tokens, the loss is divided by `divisor`."""
        return StepReport(
            loss=self.loss / divisor,
            num_tokens=sum(len(row.token_ids) for group in groups for row in group.rows),
            clip_fraction=self.clipped / max(1, self.tokens),
            mean_ratio=self.ratio / self.tokens if self.tokens else 1.0,
            mean_tis=self.tis / self.tokens if self.tokens else 1.0,
        )


class Tally:
    """Adds up the micro-batches of one pass."""

    def __init__(self) -> None:
        self.logprobs: dict[int, dict[int, list[float]]] = {}
        """Log-probabilities that were handed in, by place of the group and place of the row."""
        self.rows, self.tokens = 0, 0
        self._terms: list[Tensor] = []

    def note(
        self, segments: Sequence[Segment], *, terms: ObjectiveTerms | None = None, logprobs_S: Tensor | None = None
    ) -> None:
        """One micro-batch, its terms where it had a backward, its log-probabilities where they are wanted."""
        self.rows += sum(len(segment.rows) for segment in segments)
        self.tokens += sum(len(row.token_ids) for segment in segments for row in segment.rows)
        if terms is not None:
            parts = (terms.loss, terms.clipped, terms.ratio, terms.tis)
            self._terms.append(torch.stack([each.detach().double() for each in parts]))
        values = iter([] if logprobs_S is None else logprobs_S.detach().tolist())
        for segment in segments if logprobs_S is not None else ():
            rows = self.logprobs.setdefault(segment.group, {})
            for place, row in zip(segment.places, segment.rows, strict=True):
                rows[place] = list(islice(values, len(row.token_ids)))

    def sums(self) -> Sums:
        """The sums so far."""
        loss, clipped, ratio, tis = torch.stack(self._terms).sum(0).tolist() if self._terms else [0.0] * 4
        return Sums(loss=loss, clipped=clipped, ratio=ratio, tis=tis, tokens=self.tokens)


def in_order(groups: Sequence[TrainGroup], values: Values) -> list[list[list[float]]]:
    """Log-probabilities as the caller wants them, [group][row][token]; empty where none were computed."""
    return [
        [values.get(place, {}).get(row, []) for row in range(len(group.rows))] for place, group in enumerate(groups)
    ]


def merged(found: Iterable[Values]) -> Values:
    """Log-probabilities of several parts as one."""
    together: dict[int, dict[int, list[float]]] = {}
    for values in found:
        for place, rows in values.items():
            together.setdefault(place, {}).update(rows)
    return together
