"""Which rows of which groups share a micro-batch: segments, and how they fill a token budget.

A segment is `prompt | r1 | r2 | ...`: the prompt is computed once, every response's positions continue after it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infuser_core.engines.protocols import TrainGroup, TrainRow
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
