"""What a probe finds, group by group, in the order of the caller's groups."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from infuser_core.algorithm.influence import norm
from infuser_core.algorithm.objective import ObjectiveTerms
from infuser_core.engines.batch_loss import ReportSums
from infuser_core.engines.protocols import Probed, Progress, Similarity, TrainGroup
from infuser_core.engines.segments import Segment


class ProbeLedger:
    """Collects sums, log-probabilities and the report of one probe, and tells the progress reporter."""

    def __init__(
        self, groups: Sequence[TrainGroup], *, reference_norm: float, device: torch.device, progress: Progress
    ) -> None:
        self.sums = torch.zeros(len(groups), 4, dtype=torch.float64, device=device)
        """[<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of every group, g the gradient of -J."""
        self._groups = groups
        self._reference_norm = reference_norm
        self._progress = progress
        self._logprobs: list[list[list[float]]] = [[[] for _ in group.rows] for group in groups]
        self._report = ReportSums()
        self._done = sum(not any(row.advantage and row.token_ids for row in group.rows) for group in groups)

    def note(self, segments: Sequence[Segment], logprobs_S: Tensor, terms: ObjectiveTerms) -> None:
        """One micro-batch: its rows' log-probabilities and its share of the report."""
        values = iter(logprobs_S.detach().tolist())
        for segment in segments:
            for place, row in zip(segment.places, segment.rows, strict=True):
                self._logprobs[segment.group][place] = list(islice(values, len(row.token_ids)))
        self._report.add(terms)

    def finish(self, groups: int) -> None:
        """That many more groups are done."""
        self._done += groups
        self._progress(self._done, len(self._groups), self._report.tokens)

    def close(self, *, divisor: int = 1) -> Probed:
        """Everything found; the report's loss is divided by `divisor`."""
        self._progress(len(self._groups), len(self._groups), self._report.tokens)
        return Probed(
            similarities=[
                self._similarity(group.group_id, sums)
                for group, sums in zip(self._groups, self.sums.tolist(), strict=True)
            ],
            logprobs=self._logprobs,
            report=self._report.report(self._groups, divisor=divisor),
        )

    def _similarity(self, group_id: str, sums: list[float]) -> Similarity:
        dot, raw_dot, direction_sq, gradient_sq = sums
        return Similarity(
            group_id=group_id,
            # The sums are of -J; Gamma is odd in g, so turning the sign turns both products.
            dot=-dot,
            raw_dot=-raw_dot,
            direction_norm=norm(direction_sq),
            gradient_norm=norm(gradient_sq),
            reference_norm=self._reference_norm,
        )
