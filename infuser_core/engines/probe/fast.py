"""The fast exact probe: many questions per forward and backward, per-question gradients formed layer by layer.

Every group that fits into a micro-batch shares it with others; its gradient exists one piece at a time (see sums). A
group larger than the token budget takes the reference probe's way, whose one gradient buffer is allocated only then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from infuser_core.algorithm.preset import Objective
from infuser_core.engines.probe.choice import refusal
from infuser_core.engines.probe.recorder import HeadNames, Recorder
from infuser_core.engines.probe.reference import ProbeLedger, ReferenceProbe
from infuser_core.engines.probe.sums import Preconditioner, QuestionSums, Workspace, spans_of
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.loss import batch_terms
from infuser_core.engines.training.optimizer import Optimizer
from infuser_core.engines.training.output_layer import CPU_ROWS, Receiver
from infuser_core.engines.training.packing import MicroBatch, Packer, Segment
from infuser_core.engines.training.policy import ModelPolicy
from infuser_core.protocols import TrainGroup

Forward = Callable[[MicroBatch, float, Receiver | None], Tensor]
"""`forward(batch, temperature, receiver)`: log-probabilities [S], the output layer's gradient to the receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """output_layer.Receiver: the output layer's gradient, question by question."""

    sums: QuestionSums
    """Where it goes."""
    names: HeadNames
    """The layer's parameters."""
    shape: tuple[int, int]
    """Rows and columns of its weight."""
    cells: int
    """Logits of a tile."""

    @property
    def spans(self) -> list[slice]:
        """Response tokens of each question."""
        return self.sums.spans.responses

    def height(self, tokens: int) -> int:
        """Rows that fit into a piece and a tile."""
        return min(self.sums.piece_rows(*self.shape), max(CPU_ROWS, self.cells // tokens))

    def take(self, span: int, rows: slice, left_SW: Tensor, hidden_SH: Tensor) -> None:
        """Some rows of one question."""
        if self.names.bias is not None:
            self.sums.add_head_bias(self.names.bias, span, rows, left_SW)
        left_SW = left_SW.to(hidden_SH.dtype)
        self.sums.add_head_rows(self.names.weight, span, rows, left_SW, hidden_SH, hold=self.names.tied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The questions of one micro-batch."""

    places: list[int]
    """Their places in the caller's list."""
    sums_Q4: Tensor
    """`QuestionSums.totals` of each, g the gradient of -J."""
    logprobs_S: Tensor
    """Log-probabilities of their response tokens."""


class LayerProbe:
    """Scores micro-batches of whole questions. Raises UnknownLayerError for a parameter kind it cannot handle."""

    def __init__(self, policy: ModelPolicy, packer: Packer) -> None:
        self._packer = packer
        self._recorder = Recorder(policy.model, compute_dtype=policy.compute_dtype)
        self._output = policy.output
        self._shape = self._output.layer.weight.shape

    def score(
        self,
        segments: Sequence[Segment],
        objective: Objective,
        against: Preconditioner,
        workspace: Workspace,
        *,
        forward: Forward,
        backward: Callable[[Tensor], object],
    ) -> Scored:
        """One micro-batch; `backward(loss)` runs the pass that the recorded layers listen to."""
        batch = self._packer.pack(segments, trim=True)
        spans = spans_of(segments, batch)
        sums = QuestionSums(spans, against, workspace)
        with self._recorder.recording(sums):
            logprobs_S = forward(batch, objective.temperature, self._receiver(sums))
            backward(batch_terms(logprobs_S, batch, objective, 1).loss)
        return Scored(places=spans.places, sums_Q4=sums.totals(), logprobs_S=logprobs_S)

    def _receiver(self, sums: QuestionSums) -> HeadRows | None:
        """None where the output layer is frozen."""
        if (names := self._recorder.head) is None:
            return None
        rows, columns = self._shape
        return HeadRows(sums=sums, names=names, shape=(rows, columns), cells=self._output.cells)


class FastProbe(LayerProbe):
    """reference.Probe, equal to ReferenceProbe up to rounding."""

    def __init__(self, policy: ModelPolicy, flat: FlatParameters, optimizer: Optimizer[Any], packer: Packer) -> None:
        super().__init__(policy, packer)
        self._policy = policy
        self._flat = flat
        self._optimizer = optimizer
        self._plain = ReferenceProbe(policy, flat, optimizer, packer)

    def run(self, groups: Sequence[TrainGroup], reference: Tensor, objective: Objective, ledger: ProbeLedger) -> None:
        batches, split = self._packer.plan_whole(groups)
        flat = self._flat
        form = self._optimizer.elementwise()
        if form is None:
            raise refusal(f"{self._optimizer.options.name}'s direction, which is no function of each element")
        direction = Preconditioner(reference=flat.views(reference), second=form[1], form=form[0])
        workspace = Workspace(dtype=flat.data.dtype, device=self._packer.device)
        flat.unbind()
        try:
            for segments in batches:
                found = self.score(
                    segments, objective, direction, workspace, forward=self._forward, backward=Tensor.backward
                )
                for name in flat.bound():
                    raise refusal(f"{name}, which is used outside of its layer")
                ledger.sums[found.places] = found.sums_Q4
                ledger.note(segments, found.logprobs_S)
                ledger.finish(len(found.places))
        finally:
            flat.bind(flat.gradient)
        if split:
            self._plain.run_some(groups, split, reference, objective, ledger)

    def _forward(self, batch: MicroBatch, temperature: float, receiver: Receiver | None) -> Tensor:
        return self._policy.logprobs(batch, temperature=temperature, receiver=receiver)
