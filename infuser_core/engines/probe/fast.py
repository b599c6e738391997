"""The fast exact probe: many questions per forward and backward, per-question gradients formed layer by layer.

Every group that fits into a micro-batch shares it with others; its gradient exists one piece at a time (see
question_sums). A group larger than the token budget takes the plain probe's way, whose one gradient buffer is
allocated only then.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from infuser_core.engines.probe.recorder import Recorder
from infuser_core.engines.probe.reference import ProbeLedger, ReferenceProbe
from infuser_core.engines.probe.spans import spans_of
from infuser_core.engines.probe.sums import (
    Accumulator,
    PieceScorer,
    Preconditioner,
    QuestionSums,
    Watch,
    Workspace,
    refusal,
)
from infuser_core.engines.probe.target_head import CPU_CELLS, TargetHead
from infuser_core.engines.protocols import Objective, TrainGroup
from infuser_core.engines.training.adamw import AdamW, FlatParameters
from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.engines.training.policy import LOGIT_CELLS, Policy, batch_terms


class FastProbe:
    """Equal to ReferenceProbe up to rounding. Raises EngineError for a parameter kind it cannot handle."""

    watch: Watch | None = None
    """Sees every piece of every per-question gradient: for tests."""

    def __init__(self, policy: Policy, flat: FlatParameters, adamw: AdamW, packer: Packer) -> None:
        self._policy = policy
        self._flat = flat
        self._adamw = adamw
        self._packer = packer
        self._plain = ReferenceProbe(policy, flat, adamw, packer)
        self._recorder = Recorder(policy.model, compute_dtype=policy.compute_dtype)
        layer = policy.model.get_output_embeddings()
        assert isinstance(layer, nn.Linear)
        self._head = TargetHead(
            layer=layer,
            names=self._recorder.head,
            compute_dtype=policy.compute_dtype,
            cells=CPU_CELLS if packer.device.type == "cpu" else LOGIT_CELLS,
            kept_cells=LOGIT_CELLS,
        )

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
        batches, split = self._packer.plan_whole(groups)
        options = self._adamw.options
        preconditioner = Preconditioner(
            reference=self._flat.views(reference),
            second=self._flat.views(self._adamw.second),
            step=self._adamw.steps,
            beta2=options.beta2,
            eps=options.eps,
        )
        gradient = self._flat.views(self._flat.gradient)
        accumulator = None if denominator is None else Accumulator(gradient=gradient, scale=1.0 / denominator)
        workspace = Workspace(dtype=self._flat.data.dtype, device=self._packer.device)
        self._flat.unbind()
        try:
            for segments in batches:
                self._batch(segments, objective, preconditioner, workspace, accumulator, ledger)
        finally:
            self._flat.bind(self._flat.gradient)
        if split:
            self._plain.run_some(groups, split, objective, reference, ledger, denominator=denominator)

    def _batch(
        self,
        segments: list[Segment],
        objective: Objective,
        preconditioner: Preconditioner,
        workspace: Workspace,
        accumulator: Accumulator | None,
        ledger: ProbeLedger,
    ) -> None:
        batch = self._packer.pack(segments, trim=True)
        spans = spans_of(segments, batch, trim=True)
        scorer = PieceScorer(preconditioner, workspace, len(spans))
        sums = QuestionSums(spans, scorer, accumulator=accumulator, watch=self.watch)
        with self._recorder.recording(sums):
            hidden_SH = self._policy.predictors(batch)
            logprobs_S = self._head.logprobs(hidden_SH, batch.targets_S, objective.temperature, sums)
            terms = batch_terms(logprobs_S, batch, objective, 1)
            terms.loss.backward()
        for name in self._flat.bound():
            raise refusal(f"{name}, which is used outside of its layer")
        ledger.sums[spans.places] = scorer.totals()
        ledger.note(segments, logprobs_S, terms)
        ledger.finish(len(spans))
