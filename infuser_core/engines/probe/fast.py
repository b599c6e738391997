"""Score the influence of many questions per forward and backward pass, with exact per-question gradients.

This is the fast probe. Groups that fit share micro-batches; their gradients are formed layer by layer, and each exists
one piece at a time (see sums). A group larger than the token budget goes to the reference probe, which allocates its
gradient buffer only then.
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
from infuser_core.engines.training.compute_clock import ComputeClock
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
    """output_layer.Receiver that adds the output layer's gradient to the sums of each question."""

    sums: QuestionSums
    names: HeadNames
    shape: tuple[int, int]
    """Rows and columns of the layer's weight."""
    cells: int
    """Logits of a tile."""

    @property
    def spans(self) -> list[slice]:
        """Range of response tokens of each question."""
        return self.sums.spans.responses

    def height(self, tokens: int) -> int:
        """Return the vocabulary rows that fit into a piece and a tile of `tokens` tokens."""
        return min(self.sums.piece_rows(*self.shape), max(CPU_ROWS, self.cells // tokens))

    def take(self, span: int, rows: slice, left_SW: Tensor, hidden_SH: Tensor) -> None:
        """Add the gradient of some vocabulary rows for one question."""
        if self.names.bias is not None:
            self.sums.add_head_bias(self.names.bias, span, rows, left_SW)
        left_SW = left_SW.to(hidden_SH.dtype)
        self.sums.add_head_rows(self.names.weight, span, rows, left_SW, hidden_SH, hold=self.names.tied)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScores:
    """Influence sums and log-probabilities of the questions in one micro-batch."""

    places: list[int]
    """Places of the questions in the caller's list."""
    sums_Q4: Tensor
    """`QuestionSums.totals` of each question, g the gradient of -J."""
    logprobs_S: Tensor


class LayerProbe:
    """Scores micro-batches of whole questions. Raises UnknownLayerError for a kind of layer it cannot handle."""

    def __init__(self, policy: ModelPolicy, packer: Packer, clock: ComputeClock) -> None:
        self._packer = packer
        self._clock = clock
        self._recorder = Recorder(policy.model, compute_dtype=policy.compute_dtype)
        self._output = policy.output
        # Stored now: DeepSpeed empties the weight when it shards the model.
        rows, columns = policy.output.layer.weight.shape
        self._shape = (rows, columns)

    def score(
        self,
        segments: Sequence[Segment],
        objective: Objective,
        against: Preconditioner,
        workspace: Workspace,
        *,
        forward: Forward,
        backward: Callable[[Tensor], object],
    ) -> BatchScores:
        """Score one micro-batch; `backward(loss)` runs the backward pass through the recorded layers."""
        batch = self._packer.pack(segments, trim=True)
        spans = spans_of(segments, batch)
        sums = QuestionSums(spans, against, workspace)
        with self._clock.computing(), self._recorder.recording(sums):
            names, receiver = self._recorder.head, None
            # There are no names if the output layer is frozen.
            if names is not None:
                receiver = HeadRows(sums=sums, names=names, shape=self._shape, cells=self._output.cells)
            logprobs_S = forward(batch, objective.temperature, receiver)
            backward(batch_terms(logprobs_S, batch, objective, 1).loss)
        return BatchScores(places=spans.places, sums_Q4=sums.totals(), logprobs_S=logprobs_S)


class FastProbe(LayerProbe):
    """reference.Probe with many questions per backward pass; equals ReferenceProbe up to rounding."""

    def __init__(
        self,
        policy: ModelPolicy,
        flat: FlatParameters,
        optimizer: Optimizer[Any],
        packer: Packer,
        clock: ComputeClock,
    ) -> None:
        super().__init__(policy, packer, clock)
        self._policy = policy
        self._flat = flat
        self._optimizer = optimizer
        self._plain = ReferenceProbe(policy, flat, optimizer, packer, clock)

    def run(self, groups: Sequence[TrainGroup], reference: Tensor, objective: Objective, ledger: ProbeLedger) -> None:
        batches, split = self._packer.plan_whole(groups)
        flat = self._flat
        form = self._optimizer.elementwise()
        if form is None:
            raise refusal(f"{self._optimizer.options.name}'s direction, which is not elementwise")
        direction = Preconditioner(reference=flat.views(reference), second=form[1], form=form[0])
        workspace = Workspace(dtype=flat.data.dtype, device=self._packer.device)

        def forward(batch: MicroBatch, temperature: float, receiver: Receiver | None) -> Tensor:
            return self._policy.logprobs(batch, temperature=temperature, receiver=receiver)

        flat.unbind()
        try:
            for segments in batches:
                scores = self.score(
                    segments, objective, direction, workspace, forward=forward, backward=Tensor.backward
                )
                for name in flat.bound_names():
                    raise refusal(f"{name}, which is used outside of its layer")
                ledger.sums[scores.places] = scores.sums_Q4
                ledger.note(segments, scores.logprobs_S)
                ledger.finish(len(scores.places))
        finally:
            flat.bind(flat.gradient)
        if split:
            self._plain.run_some(groups, split, reference, objective, ledger)
