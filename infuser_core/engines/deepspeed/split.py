"""Division of a batch among ranks: groups spread by tokens, and cut where one is more than a fair share.

A part of a group keeps all its rows; those of other ranks are emptied and get advantage 0, so that n of eq:unified_obj
and every denominator stay what they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core.engines.protocols import TrainGroup, TrainRow
from infuser_core.engines.training.packing import runs_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a group that one rank computes."""

    place: int
    """Place of the group in the caller's list."""
    group: TrainGroup
    """The group, without the tokens of other ranks' rows."""


def cost(group: TrainGroup, *, only_trained: bool = True) -> int:
    """Tokens that computing the group takes; 0 where nothing of it is computed."""
    tokens = sum(len(row.token_ids) for row in group.rows if row.advantage or not only_trained)
    return len(group.prompt_token_ids) + tokens if tokens else 0


def split(
    groups: Sequence[TrainGroup], ranks: int, *, whole: bool = False, only_trained: bool = True
) -> list[list[Part]]:
    """Parts of every rank, the longest first, each to the rank with the fewest tokens; `whole` never cuts a group."""
    costs = [cost(group, only_trained=only_trained) for group in groups]
    share = -(-sum(costs) // ranks)
    parts: list[Part] = []
    for place, group in enumerate(groups):
        if costs[place]:
            pieces = [group] if whole else cut(group, share, only_trained=only_trained)
            parts += [Part(place=place, group=piece) for piece in pieces]
    return _deal(parts, ranks, only_trained=only_trained)


def cut(group: TrainGroup, share: int, *, only_trained: bool = True) -> list[TrainGroup]:
    """The group in runs of rows of about `share` tokens, its prompt counted in each."""
    lengths = [len(row.token_ids) for row in group.rows]
    rows = [index for index, row in enumerate(group.rows) if row.token_ids and (row.advantage or not only_trained)]
    runs = runs_within(rows, share - len(group.prompt_token_ids), lengths.__getitem__)
    return [group] if len(runs) <= 1 else [_only(group, run) for run in runs]


def _only(group: TrainGroup, run: Sequence[int]) -> TrainGroup:
    kept, empty = set(run), TrainRow(token_ids=[], advantage=0.0, sampler_logprobs=[])
    return replace(group, rows=[row if index in kept else empty for index, row in enumerate(group.rows)])


def _deal(parts: Sequence[Part], ranks: int, *, only_trained: bool) -> list[list[Part]]:
    hands: list[list[Part]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    sizes = [cost(part.group, only_trained=only_trained) for part in parts]
    for index in sorted(range(len(parts)), key=lambda index: (-sizes[index], index)):
        rank = loads.index(min(loads))
        hands[rank].append(parts[index])
        loads[rank] += sizes[index]
    return [sorted(hand, key=lambda part: part.place) for hand in hands]
