"""Segments as flat token sequences without padding: the tensors of one forward call.

Shapes: _T tokens of a micro-batch, _S response tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.attention import Layout
from infuser_core.engines.packed_layout import PackedLayout, SegmentShape
from infuser_core.engines.protocols import TrainGroup, TrainRow
from infuser_core.engines.segments import Segment, plan, plan_whole
from infuser_core.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Tensors of one forward call."""

    input_ids: Tensor
    """Token ids [1, T]."""
    position_ids: Tensor
    """Positions [1, T]."""
    layout: Layout
    """Who attends to whom."""
    predictors_S: Tensor
    """Index in [0, T) of the token whose hidden state predicts each response token."""
    targets_S: Tensor
    """Response token ids."""
    advantages_S: Tensor
    """Advantage of each token's response."""
    weights_S: Tensor
    """1 / n of each token's group."""
    sampler_logprobs_S: Tensor
    """The sampler's log-probabilities, nats."""
    old_logprobs_S: Tensor | None
    """Log-probabilities of the policy before the update, nats; None where the current policy is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """Groups to micro-batches, the way one trainer wants them."""

    token_budget: int
    """Most tokens of a micro-batch."""
    shared_prompts: bool
    """False gives every response its own copy of the prompt."""
    device: torch.device
    """Where the tensors go."""
    dtype: torch.dtype
    """Dtype of per-token reals."""
    layout: Callable[..., Layout] = PackedLayout
    """Makes the layout of a micro-batch."""
    stretches: bool = False
    """True lets a response that exceeds the budget have a micro-batch of its size; False refuses it."""

    def plan(self, groups: Sequence[TrainGroup], *, only_trained: bool = True) -> list[list[Segment]]:
        """Segments of each micro-batch (see `segments.plan`)."""
        return plan(
            groups, token_budget=self._budget(groups), shared_prompts=self.shared_prompts, only_trained=only_trained
        )

    def plan_whole(self, groups: Sequence[TrainGroup]) -> tuple[list[list[Segment]], list[int]]:
        """Micro-batches of complete groups, and the places of larger ones (see `segments.plan_whole`)."""
        return plan_whole(groups, token_budget=self._budget(groups), shared_prompts=self.shared_prompts)

    def _budget(self, groups: Sequence[TrainGroup]) -> int:
        return max(self.token_budget, longest_row(groups)) if self.stretches else self.token_budget

    def pack(self, segments: Sequence[Segment], *, trim: bool = False) -> MicroBatch:
        """The tensors of one micro-batch."""
        return pack(segments, device=self.device, dtype=self.dtype, trim=trim, layout=self.layout)


def longest_row(groups: Sequence[TrainGroup]) -> int:
    """Tokens of the longest response with its prompt; 0 where there is none."""
    return max((len(group.prompt_token_ids) + len(row.token_ids) for group in groups for row in group.rows), default=0)


def pack(
    segments: Sequence[Segment],
    *,
    device: torch.device,
    dtype: torch.dtype,
    trim: bool = False,
    layout: Callable[..., Layout] = PackedLayout,
) -> MicroBatch:
    """Tensors of a micro-batch; per-token reals come in `dtype`. Raises EngineError for mismatched rows.

    `trim` leaves out the last token of every response of several: it predicts nothing and no token looks at it.
    """
    tokens: list[int] = []
    positions: list[np.ndarray] = []
    predictors: list[np.ndarray] = []
    for segment in segments:
        last = len(tokens) + len(segment.prompt) - 1
        tokens += segment.prompt
        positions.append(np.arange(len(segment.prompt)))
        for row in segment.rows:
            start, length = len(tokens), len(row.token_ids)
            # The first token of every response is predicted by the prompt's last one, which they share.
            predictors.append(np.concatenate([[last], np.arange(start, start + length - 1)]))
            shown = shown_length(row, trim=trim)
            positions.append(np.arange(len(segment.prompt), len(segment.prompt) + shown))
            tokens += row.token_ids[:shown]
    rows = [(segment, row) for segment in segments for row in segment.rows]
    lengths = [len(row.token_ids) for _, row in rows]
    advantages = np.repeat([row.advantage for _, row in rows], lengths)
    weights = np.repeat([1.0 / segment.group_size for segment, _ in rows], lengths)
    return MicroBatch(
        input_ids=torch.tensor([tokens], device=device),
        position_ids=torch.from_numpy(np.concatenate(positions)[None]).to(device),
        layout=layout([shape_of(segment, trim=trim) for segment in segments], device=device),
        predictors_S=torch.from_numpy(np.concatenate(predictors)).to(device),
        targets_S=torch.tensor([token for _, row in rows for token in row.token_ids], device=device),
        advantages_S=torch.from_numpy(advantages).to(device, dtype),
        weights_S=torch.from_numpy(weights).to(device, dtype),
        sampler_logprobs_S=_sampler_logprobs(rows).to(device, dtype),
        old_logprobs_S=_old_logprobs(rows, device=device, dtype=dtype),
    )


def shown_length(row: TrainRow, *, trim: bool) -> int:
    """Tokens of a response that the model is shown."""
    length = len(row.token_ids)
    return length - 1 if trim and length > 1 else length


def shape_of(segment: Segment, *, trim: bool = False) -> SegmentShape:
    """Prompt and response lengths of a segment as the model is shown it."""
    return SegmentShape(prompt=len(segment.prompt), rows=[shown_length(row, trim=trim) for row in segment.rows])


def _sampler_logprobs(rows: list[tuple[Segment, TrainRow]]) -> Tensor:
    for segment, row in rows:
        if len(row.sampler_logprobs) != len(row.token_ids):
            raise EngineError(
                f"a response of {segment.group_id!r} has {len(row.token_ids)} tokens and "
                f"{len(row.sampler_logprobs)} sampler log-probabilities",
                hint="keep the sampler's log-probabilities with its tokens",
            )
    return torch.tensor([value for _, row in rows for value in row.sampler_logprobs], dtype=torch.float64)


def _old_logprobs(rows: list[tuple[Segment, TrainRow]], *, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    given = [row.old_logprobs for _, row in rows if row.old_logprobs is not None]
    if not given:
        return None
    for segment, row in rows:
        if row.old_logprobs is None or len(row.old_logprobs) != len(row.token_ids):
            raise EngineError(
                f"a response of {segment.group_id!r} lacks old log-probabilities that others of its batch have",
                hint="give old_logprobs to every row of an update, or to none",
            )
    return torch.tensor([value for values in given for value in values], device=device, dtype=dtype)
