"""The reference probe scores influence one question at a time, with its whole gradient in memory.

It works for any kind of parameter, and tests compare the fast probe with it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import norm
from infuser_core.engines.training.compute_clock import ComputeClock
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.loss import PassTally, Policy, forward_terms, order_logprobs
from infuser_core.engines.training.optimizer import Optimizer
from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.protocols import ProbeResult, Progress, Similarity, TrainGroup


def similarities(groups: Sequence[TrainGroup], sums: Tensor, reference_norm: float) -> list[Similarity]:
    """Compute the similarity of each group's ascent direction to the reference, from the sums of its gradient of -J."""
    return [
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


class ProbeLedger:
    """Collects a probe's results by group, in the order of the caller's groups, and reports progress."""

    def __init__(
        self, groups: Sequence[TrainGroup], *, reference_norm: float, device: torch.device, progress: Progress
    ) -> None:
        self.sums = torch.zeros(len(groups), 4, dtype=torch.float64, device=device)
        """The sums of every group's gradient of -J (see Optimizer.sums)."""
        self._groups = groups
        self._reference_norm = reference_norm
        self._progress = progress
        self._tally = PassTally()
        self._finished = sum(not any(row.advantage and row.token_ids for row in group.rows) for group in groups)

    def note(self, segments: Sequence[Segment], logprobs_S: Tensor) -> None:
        """Add the log-probabilities of one micro-batch's rows."""
        self._tally.note(segments, logprobs_S=logprobs_S)

    def finish(self, groups: int) -> None:
        """Count `groups` more finished groups, and report progress."""
        self._finished += groups
        self._progress(self._finished, len(self._groups), self._tally.tokens)

    def close(self) -> ProbeResult:
        """Report the end of the pass, and return its result."""
        self._progress(len(self._groups), len(self._groups), self._tally.tokens)
        return ProbeResult(
            similarities=similarities(self._groups, self.sums, self._reference_norm),
            logprobs=order_logprobs(self._groups, self._tally.logprobs),
        )


class Probe(Protocol):
    """Scores groups: fills a ledger with their sums; changes neither weights nor the accumulated gradient."""

    def run(self, groups: Sequence[TrainGroup], reference: Tensor, objective: Objective, ledger: ProbeLedger) -> None:
        """Score all groups against a reference direction, a flat tensor."""


class ReferenceProbe:
    """Probe with one backward pass per micro-batch of a single question, and a gradient of the model's size."""

    def __init__(
        self,
        policy: Policy,
        flat: FlatParameters,
        optimizer: Optimizer[Any],
        packer: Packer,
        clock: ComputeClock,
    ) -> None:
        self._policy = policy
        self._flat = flat
        self._optimizer = optimizer
        self._packer = packer
        self._clock = clock

    def run(self, groups: Sequence[TrainGroup], reference: Tensor, objective: Objective, ledger: ProbeLedger) -> None:
        places = [place for place, group in enumerate(groups) if any(row.advantage for row in group.rows)]
        self.run_some(groups, places, reference, objective, ledger)

    def run_some(
        self,
        groups: Sequence[TrainGroup],
        places: Iterable[int],
        reference: Tensor,
        objective: Objective,
        ledger: ProbeLedger,
    ) -> None:
        """Score the groups at these places of the list."""
        scratch = torch.zeros_like(self._flat.gradient)
        self._flat.bind(scratch)
        try:
            for place in places:
                scratch.zero_()
                for segments in self._packer.plan([groups[place]]):
                    batch = self._packer.pack(segments)
                    with self._clock.computing():
                        terms, logprobs_S = forward_terms(self._policy, batch, objective, 1)
                        terms.loss.backward()
                    ledger.note([replace(segment, group=place) for segment in segments], logprobs_S)
                with torch.no_grad(), self._clock.computing():
                    ledger.sums[place] = self._optimizer.sums(scratch, reference)
                ledger.finish(1)
        finally:
            self._flat.bind(self._flat.gradient)
