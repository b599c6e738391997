"""The plain probe: one question after the other, its whole gradient in a buffer. What the fast one is checked by."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from infuser_core.algorithm.influence import partial_sums
from infuser_core.engines.adamw import AdamW
from infuser_core.engines.batch_loss import batch_terms
from infuser_core.engines.flat import FlatParameters
from infuser_core.engines.packing import Packer
from infuser_core.engines.policy import Policy
from infuser_core.engines.probe_ledger import ProbeLedger
from infuser_core.engines.protocols import Objective, TrainGroup


class Probe(Protocol):
    """Fills a ledger with every group's sums; changes nothing but, with a denominator, the accumulated gradient."""

    def run(
        self,
        groups: Sequence[TrainGroup],
        objective: Objective,
        reference: Tensor,
        ledger: ProbeLedger,
        *,
        denominator: int | None,
    ) -> None:
        """Probe all groups against the flat `reference`; add the gradient of -J over `denominator` where given."""
        ...


class ReferenceProbe:
    """One backward per micro-batch of one question; memory: one gradient of the model's size for all of them."""

    def __init__(self, policy: Policy, flat: FlatParameters, adamw: AdamW, packer: Packer) -> None:
        self._policy = policy
        self._flat = flat
        self._adamw = adamw
        self._packer = packer

    def run(
        self,
        groups: Sequence[TrainGroup],
        objective: Objective,
        reference: Tensor,
        ledger: ProbeLedger,
        *,
        denominator: int | None,
    ) -> None:
        """See Probe."""
        places = [place for place, group in enumerate(groups) if any(row.advantage for row in group.rows)]
        self.run_some(groups, places, objective, reference, ledger, denominator=denominator)

    def run_some(
        self,
        groups: Sequence[TrainGroup],
        places: Iterable[int],
        objective: Objective,
        reference: Tensor,
        ledger: ProbeLedger,
        *,
        denominator: int | None,
    ) -> None:
        """The groups at these places."""
        scratch = torch.zeros_like(self._flat.gradient)
        self._flat.bind(scratch)
        try:
            for place in places:
                scratch.zero_()
                self._group(groups, place, objective, ledger)
                ledger.sums[place] = self._sums(scratch, reference)
                if denominator is not None:
                    self._flat.gradient.add_(scratch, alpha=1.0 / denominator)
                ledger.finish(1)
        finally:
            self._flat.bind(self._flat.gradient)

    def _group(self, groups: Sequence[TrainGroup], place: int, objective: Objective, ledger: ProbeLedger) -> None:
        for segments in self._packer.plan([groups[place]]):
            segments = [replace(segment, group=place) for segment in segments]
            batch = self._packer.pack(segments)
            logprobs_S = self._policy.logprobs(batch, temperature=objective.temperature)
            terms = batch_terms(logprobs_S, batch, objective, 1)
            terms.loss.backward()
            ledger.note(segments, logprobs_S, terms)

    @torch.no_grad()
    def _sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        options, step = self._adamw.options, self._adamw.steps
        chunks = self._flat.chunks(gradient, reference, self._adamw.second)
        return torch.stack(
            [partial_sums(g, ref, v, step=step, beta2=options.beta2, eps=options.eps) for g, ref, v in chunks]
        ).sum(0)
