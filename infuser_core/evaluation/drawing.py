"""Sampling that resumes: a killed phase goes on from the responses that had ended."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from infuser_core.protocols import (
    Completion,
    Progress,
    PromptGroup,
    Sampler,
    SamplingParams,
    no_progress,
)

KEEP_SECONDS = 1.0
"""Seconds that responses wait for the disk; samplers tell of progress as often. Shorter phases write nothing."""
Row = TypeVar("Row")
Name = tuple[str, int]
"""A response: its group, and the number of its seed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A response that has ended."""

    group_id: str
    """Question or document id."""
    row: int
    """Number of its seed in the group."""
    token_ids: Sequence[int]
    """Response tokens."""
    logprobs: Sequence[float]
    """Their log-probabilities, nats."""
    finish_reason: str
    """`stop` where the response ended itself, else `length`."""


class Kept(Protocol[Row]):
    """A place on disk where rows that are finished, such as responses, outlive the process."""

    def rows(self) -> list[Row]:
        """Rows that were kept before."""
        ...

    def add(self, rows: Sequence[Row]) -> None:
        """Keep some more, durably."""
        ...


def draw(
    groups: Sequence[PromptGroup],
    sampler: Sampler,
    params: SamplingParams,
    *,
    kept: Kept[Drawn] | None = None,
    progress: Progress = no_progress,
) -> dict[str, list[Completion]]:
    """Completions of every group, by its id; what `kept` holds is not drawn again, and what ends is added."""
    finished = _finished(kept)
    missing = {
        group.group_id: [j for j in range(len(group.seeds)) if (group.group_id, j) not in finished] for group in groups
    }
    left = [
        replace(group, seeds=[group.seeds[row] for row in missing[group.group_id]])
        for group in groups
        if missing[group.group_id]
    ]
    buffer = _Buffer(
        [[(group.group_id, row) for row in missing[group.group_id]] for group in left], kept, finished, progress
    )
    drawn = sampler.sample(left, params, progress=buffer.progress, keep=buffer.keep)
    for names, completions in zip(buffer.names, drawn, strict=True):
        finished.update(zip(names, completions, strict=True))
    return {group.group_id: [finished[group.group_id, row] for row in range(len(group.seeds))] for group in groups}


def _finished(kept: Kept[Drawn] | None) -> dict[Name, Completion]:
    return {
        (row.group_id, row.row): Completion(
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            finish_reason="stop" if row.finish_reason == "stop" else "length",
        )
        for row in (kept.rows() if kept else ())
    }


class _Buffer:
    """Responses on their way to the disk, and a progress that counts those of earlier attempts."""

    def __init__(
        self,
        names: Sequence[Sequence[Name]],
        kept: Kept[Drawn] | None,
        finished: Mapping[Name, Completion],
        progress: Progress,
    ) -> None:
        self.names, self._kept, self._progress = names, kept, progress
        self._rows: list[Drawn] = []
        self._done = len(finished)
        self._tokens = sum(len(each.token_ids) for each in finished.values())
        self._wrote = time.monotonic()

    def keep(self, place: int, row: int, completion: Completion) -> None:
        """A response has ended."""
        group_id, number = self.names[place][row]
        self._rows.append(
            Drawn(
                group_id=group_id,
                row=number,
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
            )
        )

    def progress(self, done: int, total: int, tokens: int) -> None:
        """The sampler moved. Only here is anything written: a batch that ended together is kept together."""
        if self._kept is not None and self._rows and time.monotonic() - self._wrote >= KEEP_SECONDS:
            self._kept.add(self._rows)
            self._rows, self._wrote = [], time.monotonic()
        self._progress(self._done + done, self._done + total, self._tokens + tokens)
