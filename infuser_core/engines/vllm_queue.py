"""Which engine computes which group, and when: one queue, longest first, pulled by whoever has least left to do."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.engines.protocols import PromptGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A group and the engine that it goes to."""

    engine: int
    """Place of the engine."""
    place: int
    """Place of the group in the caller's list."""


class GroupQueue:
    """Waiting groups, and what each engine was given and has not finished.

    An engine is given no more than `capacity` rows at a time: what it could not compute yet stays for the others. A
    group stays together, so that its prompt is computed once.
    """

    def __init__(self, groups: Sequence[PromptGroup], max_tokens: int, *, engines: int, capacity: int) -> None:
        self._rows = [len(group.seeds) for group in groups]
        self._costs = [len(group.token_ids) + len(group.seeds) * max_tokens for group in groups]
        places = [place for place, rows in enumerate(self._rows) if rows]
        self._waiting = deque(sorted(places, key=lambda place: -self._costs[place]))
        self._capacity = capacity
        self._rows_left = [0] * engines
        self._costs_left = [0.0] * engines

    def assign(self) -> list[Assignment]:
        """Groups that engines have room for now."""
        given = []
        while self._waiting:
            rows = self._rows[self._waiting[0]]
            free = [e for e, left in enumerate(self._rows_left) if left == 0 or left + rows <= self._capacity]
            if not free:
                break
            engine = min(free, key=lambda e: (self._costs_left[e], e))
            place = self._waiting.popleft()
            self._rows_left[engine] += rows
            self._costs_left[engine] += self._costs[place]
            given.append(Assignment(engine=engine, place=place))
        return given

    def finish_row(self, engine: int, place: int) -> None:
        """One response of a group is complete."""
        self._rows_left[engine] -= 1
        self._costs_left[engine] -= self._costs[place] / self._rows[place]

    def busy(self) -> list[int]:
        """Engines with work left."""
        return [engine for engine, left in enumerate(self._rows_left) if left]
