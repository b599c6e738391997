"""Pack prompts and responses into micro-batches: flat token sequences without padding, within a token budget.

A segment is `prompt | r1 | r2 | ...`: the prompt is computed once, and the positions of every response continue after
the prompt's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.hf.layouts import AttentionLayout
from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.errors import EngineError
from infuser_core.protocols import TrainGroup, TrainRow

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Responses of one group that are computed together after one copy of the group's prompt."""

    group: int
    """Place of the group in the caller's list."""
    group_id: str
    prompt: Sequence[int]
    """Prompt tokens."""
    places: list[int]
    """Places of the rows in the group."""
    rows: list[TrainRow]
    group_size: int
    """Rows of the whole group, n of eq:unified_obj."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the segment."""
        return len(self.prompt) + sum(len(row.token_ids) for row in self.rows)


def runs_within(items: Iterable[Item], budget: int, size: Callable[[Item], int]) -> list[list[Item]]:
    """Split items, in their order, into runs of at most `budget`; a larger item has a run to itself."""
    runs: list[list[Item]] = []
    room = 0
    for item in items:
        if not runs or size(item) > room:
            runs.append([])
            room = budget
        runs[-1].append(item)
        room -= size(item)
    return runs


def _split_segments(
    groups: Sequence[TrainGroup], token_budget: int, short: int, *, only_trained: bool
) -> list[Segment]:
    """Split groups into segments within the budget; rows of at most `short` tokens with prompt are kept separate."""
    segments: list[Segment] = []
    for place, group in enumerate(groups):
        rows = [row for row, each in enumerate(group.rows) if each.token_ids and (each.advantage or not only_trained)]
        if rows and not group.prompt_token_ids:
            raise EngineError(f"the prompt of {group.group_id!r} is empty", hint="render at least one token")
        prompt, lengths = len(group.prompt_token_ids), [len(row.token_ids) for row in group.rows]
        for budget, is_long in ((short, False), (token_budget, True)):
            members = [row for row in rows if (prompt + lengths[row] > short) == is_long]
            for places in runs_within(members, budget - prompt, lengths.__getitem__):
                segment = Segment(
                    group=place,
                    group_id=group.group_id,
                    prompt=group.prompt_token_ids,
                    places=places,
                    rows=[group.rows[row] for row in places],
                    group_size=len(group.rows),
                )
                segments.append(segment)
    for segment in segments:
        if segment.num_tokens > token_budget:
            raise EngineError(
                f"one response of {segment.group_id!r} with its prompt has {segment.num_tokens} tokens, over the "
                f"budget of {token_budget}",
                hint="raise engine.token_budget",
            )
    return segments


def _shape_key(segment: Segment) -> tuple[int, int, int, int]:
    longest = max(len(row.token_ids) for row in segment.rows)
    return len(segment.prompt), longest, segment.group, segment.places[0]


def _num_tokens(segments: Sequence[Segment]) -> int:
    return sum(segment.num_tokens for segment in segments)


def _fill_batches(units: Sequence[list[Segment]], budget: int, short: int) -> list[list[Segment]]:
    """Form micro-batches of at most `short` tokens from units that fit, then those of larger units; splits no unit."""
    small = [unit for unit in units if _num_tokens(unit) <= short]
    large = [unit for unit in units if _num_tokens(unit) > short]
    runs = runs_within(small, short, _num_tokens) + runs_within(large, budget, _num_tokens)
    return [[segment for unit in run for segment in unit] for run in runs]


def longest_row(groups: Iterable[TrainGroup]) -> int:
    """Count the tokens of the longest response with its prompt; 0 without responses."""
    return max((len(each.prompt_token_ids) + len(row.token_ids) for each in groups for row in each.rows), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Tensors of one forward call of a trainer, packed from several segments."""

    input_ids: Tensor
    """Token ids [1, T]."""
    position_ids: Tensor
    """Positions [1, T]."""
    layout: AttentionLayout
    predictors_S: Tensor
    """Index in [0, T) of the token whose hidden state predicts each response token."""
    targets_S: Tensor
    """Response token ids."""
    advantages_S: Tensor
    """Advantage of each token's response."""
    weights_S: Tensor
    """1 / n of each token's group."""
    rows_S: Tensor
    """Number of each token's response in the micro-batch."""
    sampler_logprobs_S: Tensor
    """The sampler's log-probabilities, nats."""
    old_logprobs_S: Tensor | None
    """Log-probabilities of the policy before the update, nats; None means the current policy."""
    anchor_logprobs_S: Tensor | None
    """The anchor's log-probabilities, nats; None if the loss has no distance to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """Packs groups into micro-batches for one trainer."""

    token_budget: int
    """Most tokens of a micro-batch."""
    device: torch.device
    dtype: torch.dtype
    """Dtype of per-token reals."""
    layout: Callable[..., AttentionLayout] = PackedLayout
    """Makes the layout of a micro-batch."""
    kept_tokens: int = 0
    """Most tokens of a micro-batch that keeps its matrix products; 0 if none does."""
    stretches: bool = False
    """True lets a response that exceeds the budget have a micro-batch of its size; False refuses it."""

    def plan(self, groups: Sequence[TrainGroup], *, only_trained: bool = True) -> list[list[Segment]]:
        """Divide groups into micro-batches; returns the segments of each.

        Rows that fit into `kept_tokens` with their prompt come first (on an accelerator last), in micro-batches of at
        most that size.
        `only_trained` leaves out rows whose advantage is 0: their gradient is exactly 0. Segments of similar shape are
        neighbours, so that attention pads little. Raises EngineError for a row that exceeds the budget by itself.
        """
        budget, short = self._budgets(groups)
        segments = _split_segments(groups, budget, short, only_trained=only_trained)
        return self._in_order(_fill_batches([[segment] for segment in sorted(segments, key=_shape_key)], budget, short))

    def plan_alone(self, groups: Sequence[TrainGroup]) -> Iterator[tuple[int, list[list[Segment]]]]:
        """Divide each group by itself into micro-batches, as `plan` does; none for a group without a gradient.

        Yields every group's place with its micro-batches: those of the longest rows first on an accelerator.
        """
        places = sorted(range(len(groups)), key=lambda place: longest_row([groups[place]]))
        for place in range(len(groups)) if self.device.type == "cpu" else places[::-1]:
            batches = self.plan([groups[place]])
            yield place, [[replace(segment, group=place) for segment in segments] for segments in batches]

    def _in_order(self, batches: list[list[Segment]]) -> list[list[Segment]]:
        """Put the longest rows first on an accelerator: a pass that runs out of memory does so at its start."""
        return batches if self.device.type == "cpu" else batches[::-1]

    def _budgets(self, groups: Sequence[TrainGroup]) -> tuple[int, int]:
        """Return the most tokens of a micro-batch, and of a short micro-batch, which keeps its matrix products."""
        budget = max(self.token_budget, longest_row(groups)) if self.stretches else self.token_budget
        return budget, min(self.kept_tokens or budget, budget)

    def pack(self, segments: Sequence[Segment]) -> MicroBatch:
        """Build the tensors of a micro-batch. Raises EngineError for mismatched rows."""
        device, dtype = self.device, self.dtype
        tokens: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        predictors: list[np.ndarray] = []
        start = 0
        for segment in segments:
            last = start + len(segment.prompt) - 1
            start += len(segment.prompt)
            tokens.append(np.asarray(segment.prompt, np.int64))
            positions.append(np.arange(len(segment.prompt)))
            for row in segment.rows:
                length = len(row.token_ids)
                if len(row.sampler_logprobs) != length:
                    raise EngineError(
                        f"a response of {segment.group_id!r} has {length} tokens and "
                        f"{len(row.sampler_logprobs)} sampler log-probabilities",
                        hint="keep the sampler's log-probabilities with its tokens",
                    )
                # The prompt's last token, which all responses share, predicts the first token of each.
                predictors.append(np.concatenate([[last], np.arange(start, start + length - 1)]))
                positions.append(np.arange(len(segment.prompt), len(segment.prompt) + length))
                tokens.append(np.asarray(row.token_ids, np.int64))
                start += length
        rows = [(segment, row) for segment in segments for row in segment.rows]
        lengths = [len(row.token_ids) for _, row in rows]
        advantages = np.repeat([row.advantage for _, row in rows], lengths)
        weights = np.repeat([1.0 / segment.group_size for segment, _ in rows], lengths)
        return MicroBatch(
            input_ids=torch.from_numpy(np.concatenate(tokens)[None]).to(device),
            position_ids=torch.from_numpy(np.concatenate(positions)[None]).to(device),
            layout=self.layout([shape_of(segment) for segment in segments], device=device),
            predictors_S=torch.from_numpy(np.concatenate(predictors)).to(device),
            targets_S=_concatenate([row.token_ids for _, row in rows], np.int64).to(device),
            advantages_S=torch.from_numpy(advantages).to(device, dtype),
            weights_S=torch.from_numpy(weights).to(device, dtype),
            rows_S=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)).to(device),
            sampler_logprobs_S=_concatenate([row.sampler_logprobs for _, row in rows], np.float64).to(device, dtype),
            old_logprobs_S=_all_or_none(rows, "old_logprobs", device=device, dtype=dtype),
            anchor_logprobs_S=_all_or_none(rows, "anchor_logprobs", device=device, dtype=dtype),
        )


def shape_of(segment: Segment) -> SegmentShape:
    """Return the lengths of a segment's prompt and responses."""
    return SegmentShape(prompt=len(segment.prompt), rows=[len(row.token_ids) for row in segment.rows])


def _all_or_none(
    rows: list[tuple[Segment, TrainRow]], name: str, *, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """Concatenate log-probabilities of all rows; None if no row has any. Raises EngineError if only some do."""
    values = [getattr(row, name) for _, row in rows]
    present = [each for each in values if each is not None]
    if not present:
        return None
    for (segment, row), each in zip(rows, values, strict=True):
        if each is None or len(each) != len(row.token_ids):
            raise EngineError(
                f"a response of {segment.group_id!r} lacks {name} that others of its batch have",
                hint=f"give {name} to every row of an update, or to none",
            )
    return _concatenate(present, np.float64).to(device, dtype)


def _concatenate(
    values: Sequence[Sequence[int]] | Sequence[Sequence[float]], kind: type[np.int64 | np.float64]
) -> Tensor:
    """Concatenate the numbers of several sequences into one tensor of 64-bit numbers."""
    return torch.from_numpy(np.concatenate([np.asarray(each, kind) for each in values]))
