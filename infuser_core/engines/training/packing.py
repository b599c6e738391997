"""Packing: rows of several groups as flat token sequences without padding, within a token budget.

A segment is `prompt | r1 | r2 | ...`: the prompt is computed once, every response's positions continue after it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.hf.attention import Layout
from infuser_core.engines.protocols import TrainGroup, TrainRow
from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows of one group that are computed together behind one copy of its prompt."""

    group: int
    """Place of the group in the caller's list."""
    group_id: str
    """Question or document id."""
    prompt: list[int]
    """Prompt tokens."""
    places: list[int]
    """Places of the rows in the group."""
    rows: list[TrainRow]
    """The rows."""
    group_size: int
    """Rows of the whole group, n of eq:unified_obj."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the segment."""
        return len(self.prompt) + sum(len(row.token_ids) for row in self.rows)


def plan(
    groups: Sequence[TrainGroup], *, token_budget: int, shared_prompts: bool, only_trained: bool
) -> list[list[Segment]]:
    """Segments of each micro-batch, at most `token_budget` tokens each.

    `only_trained` leaves out rows whose advantage is 0: their gradient is exactly 0. Segments of like shape come
    together, so that attention pads little. Raises EngineError for a row that exceeds the budget by itself.
    """
    segments = _segments(groups, token_budget, shared_prompts=shared_prompts, only_trained=only_trained)
    return list(_fill([[segment] for segment in sorted(segments, key=_shape_key)], token_budget))


def plan_whole(
    groups: Sequence[TrainGroup], *, token_budget: int, shared_prompts: bool
) -> tuple[list[list[Segment]], list[int]]:
    """Micro-batches in which every group is complete, and the places of the groups too large for one micro-batch.

    Rows of advantage 0 are left out, and so are groups without any other. Raises as `plan` does.
    """
    by_group: dict[int, list[Segment]] = {}
    for segment in _segments(groups, token_budget, shared_prompts=shared_prompts, only_trained=True):
        by_group.setdefault(segment.group, []).append(segment)
    sizes = {place: sum(segment.num_tokens for segment in parts) for place, parts in by_group.items()}
    whole = [parts for place, parts in by_group.items() if sizes[place] <= token_budget]
    whole.sort(key=lambda parts: max(_shape_key(segment) for segment in parts))
    return list(_fill(whole, token_budget)), [place for place in by_group if sizes[place] > token_budget]


def _segments(
    groups: Sequence[TrainGroup], token_budget: int, *, shared_prompts: bool, only_trained: bool
) -> list[Segment]:
    segments: list[Segment] = []
    for place, group in enumerate(groups):
        rows = [row for row, each in enumerate(group.rows) if each.token_ids and (each.advantage or not only_trained)]
        if rows and not group.prompt_token_ids:
            raise EngineError(f"the prompt of {group.group_id!r} is empty", hint="render at least one token")
        segments += [
            _segment(place, group, part) for part in _parts(group, rows, token_budget if shared_prompts else 0)
        ]
    for segment in segments:
        if segment.num_tokens > token_budget:
            raise EngineError(
                f"one response of {segment.group_id!r} with its prompt has {segment.num_tokens} tokens, over the "
                f"budget of {token_budget}",
                hint="raise trainer.token_budget",
            )
    return segments


def _shape_key(segment: Segment) -> tuple[int, int, int, int]:
    longest = max(len(row.token_ids) for row in segment.rows)
    return len(segment.prompt), longest, segment.group, segment.places[0]


def _segment(place: int, group: TrainGroup, rows: list[int]) -> Segment:
    return Segment(
        group=place,
        group_id=group.group_id,
        prompt=group.prompt_token_ids,
        places=rows,
        rows=[group.rows[row] for row in rows],
        group_size=len(group.rows),
    )


def _parts(group: TrainGroup, rows: list[int], budget: int) -> Iterator[list[int]]:
    """Rows cut into runs that fit the budget with a prompt each; a budget of 0 puts every row by itself."""
    part: list[int] = []
    used = len(group.prompt_token_ids)
    for row in rows:
        length = len(group.rows[row].token_ids)
        if part and used + length > budget:
            yield part
            part, used = [], len(group.prompt_token_ids)
        part.append(row)
        used += length
    if part:
        yield part


def _fill(units: Sequence[list[Segment]], budget: int) -> Iterator[list[Segment]]:
    """Units in their order, as many in a batch as the budget allows; a unit is never cut."""
    batch: list[Segment] = []
    used = 0
    for unit in units:
        size = sum(segment.num_tokens for segment in unit)
        if batch and used + size > budget:
            yield batch
            batch, used = [], 0
        batch += unit
        used += size
    if batch:
        yield batch


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
