"""Divide a batch among ranks, balanced by tokens; a group that exceeds a fair share is split.

A part has as many rows as its group; the rows of other ranks are empty and have advantage 0, so that n of
eq:unified_obj and every denominator do not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core.engines.training.packing import runs_within
from infuser_core.protocols import TrainGroup, TrainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRows:
    """Rows of a group that one rank computes."""

    place: int
    """Place of its group in the caller's list."""
    group: TrainGroup
    """Its group, without the tokens of other ranks' rows."""


def cost(group: TrainGroup, *, only_trained: bool = True) -> int:
    """Count the tokens to compute for a group; 0 if it has no rows to compute."""
    tokens = sum(len(row.token_ids) for row in group.rows if row.advantage or not only_trained)
    return len(group.prompt_token_ids) + tokens if tokens else 0


def split(
    groups: Sequence[TrainGroup], ranks: int, *, whole: bool = False, only_trained: bool = True
) -> list[list[RankRows]]:
    """Assign parts to ranks, longest first, each to the rank with the fewest tokens; `whole` never splits a group."""
    costs = [cost(group, only_trained=only_trained) for group in groups]
    share = -(-sum(costs) // ranks)
    parts: list[RankRows] = []
    for place, group in enumerate(groups):
        if costs[place]:
            pieces = [group] if whole else split_rows(group, share, only_trained=only_trained)
            parts += [RankRows(place=place, group=piece) for piece in pieces]
    by_rank: list[list[RankRows]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    sizes = [cost(part.group, only_trained=only_trained) for part in parts]
    for index in sorted(range(len(parts)), key=lambda index: (-sizes[index], index)):
        rank = loads.index(min(loads))
        by_rank[rank].append(parts[index])
        loads[rank] += sizes[index]
    return [sorted(part_list, key=lambda part: part.place) for part_list in by_rank]


def split_rows(group: TrainGroup, share: int, *, only_trained: bool = True) -> list[TrainGroup]:
    """Split a group into parts of about `share` tokens, each including the prompt."""
    lengths = [len(row.token_ids) for row in group.rows]
    rows = [index for index, row in enumerate(group.rows) if row.token_ids and (row.advantage or not only_trained)]
    runs = runs_within(rows, share - len(group.prompt_token_ids), lengths.__getitem__)
    if len(runs) <= 1:
        return [group]
    empty = TrainRow(token_ids=[], advantage=0.0, sampler_logprobs=[])
    return [
        replace(group, rows=[row if index in run else empty for index, row in enumerate(group.rows)])
        for run in map(set, runs)
    ]
