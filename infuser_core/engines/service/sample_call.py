"""One sampling call over several engines: queue groups of prompts, assign them, and collect the responses.

Groups wait in one queue, the longest first, and go to the engine with the least work left, so that no engine waits for
another, and a long response delays nothing else.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from infuser_core.engines.service.server import FORCED
from infuser_core.protocols import Completion, Keep, Progress, PromptGroup, SamplingParams
from infuser_core.store.series import Series
from infuser_core.system.child import Watch
from infuser_core.system.worker import Peer


class GroupQueue:
    """Waiting groups, and the unfinished work of each engine.

    An engine gets at most `capacity` rows at a time: what it cannot compute yet stays available to the others. A group
    goes to one engine, so that its prompt is computed once; `owners` says to which, otherwise any.
    """

    def __init__(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        engines: int,
        capacity: int,
        owners: Sequence[int] | None = None,
    ) -> None:
        self._owners = owners
        self._rows = [len(group.seeds) for group in groups]
        self._costs = [len(group.token_ids) + len(group.seeds) * group.limit(params) for group in groups]
        places = [place for place, rows in enumerate(self._rows) if rows]
        self._waiting = deque(sorted(places, key=lambda place: -self._costs[place]))
        self._capacity = capacity
        self._rows_left = [0] * engines
        self._costs_left = [0.0] * engines

    def assign(self) -> list[tuple[int, int]]:
        """Assign waiting groups to engines that have room now; returns pairs of engine and place of the group."""
        assigned = []
        while self._waiting:
            first = self._waiting[0]
            rows, able = (
                self._rows[first],
                range(len(self._rows_left)) if self._owners is None else [self._owners[first]],
            )
            free = [e for e in able if (busy := self._rows_left[e]) == 0 or busy + rows <= self._capacity]
            if not free:
                break
            engine = min(free, key=lambda e: (self._costs_left[e], e))
            place = self._waiting.popleft()
            self._rows_left[engine] += rows
            self._costs_left[engine] += self._costs[place]
            assigned.append((engine, place))
        return assigned

    def finish_row(self, engine: int, place: int) -> None:
        """Count one response of a group as complete."""
        self._rows_left[engine] -= 1
        self._costs_left[engine] -= self._costs[place] / self._rows[place]

    def busy(self) -> list[int]:
        """List the engines with work left."""
        return [engine for engine, rows in enumerate(self._rows_left) if rows]


TICK_SECONDS = 1.0
"""Longest time between two checks of engines that send nothing."""


class SampleCall:
    """One call of `Sampler.sample`, spread over several engines.

    `wait` returns when one of some engines has a message, or after some seconds. `forced` are responses, by place of
    group and seed, whose log-probabilities are computed instead of drawing any. `owners`: see GroupQueue.
    """

    def __init__(
        self,
        engines: Sequence[Peer],
        wait: Callable[[Sequence[Peer], float], None],
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        ends: Sequence[int],
        capacity: int,
        silent_seconds: float,
        forced: Mapping[str, Sequence[int]] | None = None,
        owners: Sequence[int] | None = None,
    ) -> None:
        self._engines, self._wait, self._groups, self._silent = engines, wait, groups, silent_seconds
        self._settings = {**asdict(params), "stop_token_ids": list(ends)} | ({FORCED: dict(forced)} if forced else {})
        self._params = params
        self._queue = GroupQueue(groups, params, engines=len(engines), capacity=capacity, owners=owners)
        self._rows: list[list[Completion | None]] = [[None] * len(group.seeds) for group in groups]
        self._num_rows, self._num_tokens = 0, 0
        # Tokens of unfinished responses, by engine, as it last reported.
        self._under_way = [0] * len(engines)

    def run(self, progress: Progress, keep: Keep) -> list[list[Completion]]:
        """Sample every group's completions. Raises EngineError for an engine that died or hung."""
        total = sum(map(len, self._rows))
        self._send_groups()
        while busy := self._queue.busy():
            self._wait([self._engines[engine] for engine in busy], TICK_SECONDS)
            for engine in busy:
                self._receive(engine, keep)
            self._send_groups()
            progress(self._num_rows, total, self._num_tokens + sum(self._under_way))
        return [[row for row in rows if row is not None] for rows in self._rows]

    def _send_groups(self) -> None:
        idle = set(range(len(self._engines))) - set(self._queue.busy())
        for number, place in self._queue.assign():
            group, engine = self._groups[place], self._engines[number]
            if number in idle:
                # An idle engine's silence counts from now on.
                engine.silence = Watch()
            rows = [(f"{place}/{i}", seed) for i, seed in enumerate(group.seeds)]
            settings = {**self._settings, "max_tokens": group.limit(self._params)}
            engine.send("sample", settings, list(group.token_ids), rows)

    def _receive(self, engine: int, keep: Keep) -> None:
        """Process every message of an engine. Raises EngineError if it died or was silent for too long."""
        process = self._engines[engine]
        while (message := process.receive()) is not None:
            kind, *values = message
            if kind == "beat":
                self._under_way[engine] = values[0]
            else:
                assert kind == "done"
                for row in values[0]:
                    self._add_row(engine, keep, *row)
        process.require_pace(self._silent)

    def _add_row(
        self, engine: int, keep: Keep, key: str, tokens: list[int], logprobs: list[float], reason: Any
    ) -> None:
        if reason not in ("stop", "length"):
            raise self._engines[engine].hung(f"gave up a response: {reason}")
        place, row = map(int, key.split("/"))
        completion = Completion(
            token_ids=Series.of(tokens, int), logprobs=Series.of(logprobs, float), finish_reason=reason
        )
        self._rows[place][row] = completion
        self._queue.finish_row(engine, place)
        self._under_way[engine] = max(0, self._under_way[engine] - len(tokens))
        self._num_rows, self._num_tokens = self._num_rows + 1, self._num_tokens + len(tokens)
        keep(place, row, completion)
