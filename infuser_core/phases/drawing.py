"""Sampling that resumes: a killed phase goes on from the groups that had ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from infuser_core.engines.protocols import (
    Completion,
    Progress,
    PromptGroup,
    Sampler,
    SamplingParams,
    no_progress,
)

KEEP_SECONDS = 20.0
"""Work that a kill can lose, seconds. Shorter phases write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A response of a group that has ended."""

    group_id: str
    """Question or document id."""
    token_ids: Sequence[int]
    """Response tokens."""
    logprobs: Sequence[float]
    """Their log-probabilities, nats."""
    finish_reason: str
    """`stop` where the response ended itself, else `length`."""


class Kept(Protocol):
    """A place on disk where finished responses outlive the process."""

    def rows(self) -> list[Drawn]:
        """Responses that were kept before."""
        ...

    def add(self, rows: Sequence[Drawn]) -> None:
        """Keep some more, durably."""
        ...


def draw(
    groups: Sequence[PromptGroup],
    sampler: Sampler,
    params: SamplingParams,
    *,
    kept: Kept | None = None,
    progress: Progress = no_progress,
) -> dict[str, list[Completion]]:
    """Completions of every group, by its id; what `kept` holds is not drawn again, and finished groups are added."""
    finished = _finished(kept)
    left = [group for group in groups if group.group_id not in finished]
    buffer = _Buffer(left, kept, finished, progress)
    drawn = sampler.sample(left, params, progress=buffer.progress, keep=buffer.keep)
    return finished | {group.group_id: completions for group, completions in zip(left, drawn, strict=True)}


def _finished(kept: Kept | None) -> dict[str, list[Completion]]:
    found: dict[str, list[Completion]] = {}
    for row in kept.rows() if kept else ():
        made = Completion(
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            finish_reason="stop" if row.finish_reason == "stop" else "length",
        )
        found.setdefault(row.group_id, []).append(made)
    return found


class _Buffer:
    """Finished groups on their way to the disk, and a progress that counts those of earlier attempts."""

    def __init__(
        self,
        groups: Sequence[PromptGroup],
        kept: Kept | None,
        finished: dict[str, list[Completion]],
        progress: Progress,
    ) -> None:
        self._groups, self._kept, self._progress = groups, kept, progress
        self._rows: list[Drawn] = []
        self._done = sum(len(completions) for completions in finished.values())
        self._tokens = sum(len(each.token_ids) for completions in finished.values() for each in completions)
        self._wrote = time.monotonic()

    def keep(self, place: int, completions: list[Completion]) -> None:
        """A group has ended."""
        group_id = self._groups[place].group_id
        self._rows += [
            Drawn(group_id=group_id, token_ids=each.token_ids, logprobs=each.logprobs, finish_reason=each.finish_reason)
            for each in completions
        ]

    def progress(self, done: int, total: int, tokens: int) -> None:
        """The sampler moved. Only here is anything written: a batch that ended together is kept together."""
        if self._kept is not None and self._rows and time.monotonic() - self._wrote >= KEEP_SECONDS:
            self._kept.add(self._rows)
            self._rows, self._wrote = [], time.monotonic()
        self._progress(self._done + done, self._done + total, self._tokens + tokens)
