"""Sampling that resumes: a killed phase continues from the responses that were saved."""

import time
from collections.abc import Sequence
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

SAVE_SECONDS = 1.0
"""Least seconds between two writes; samplers report progress as often. Shorter phases write nothing."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A complete sampled response, in the form that is saved."""

    group_id: str
    """Question or document id."""
    row: int
    """Index of its seed in the group."""
    token_ids: Sequence[int]
    """Response tokens."""
    logprobs: Sequence[float]
    """Their log-probabilities, nats."""
    finish_reason: str
    """`stop` if the response ended by itself, else `length`."""


class SavedRows(Protocol[Row]):
    """Rows of an unfinished stage on disk, such as complete responses; they survive a kill."""

    def rows(self) -> list[Row]:
        """Rows saved so far."""
        ...

    def add(self, rows: Sequence[Row]) -> None:
        """Save more rows durably."""
        ...


def sample_resumably(
    groups: Sequence[PromptGroup],
    sampler: Sampler,
    params: SamplingParams,
    *,
    saved_rows: SavedRows[Drawn] | None = None,
    progress: Progress = no_progress,
) -> dict[str, list[Completion]]:
    """Sample completions of every group, by group id; those in `saved_rows` are reused, and new ones added to it."""
    completions = {
        (row.group_id, row.row): Completion(
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            finish_reason="stop" if row.finish_reason == "stop" else "length",
        )
        for row in (saved_rows.rows() if saved_rows else ())
    }
    missing = {
        group.group_id: [j for j in range(len(group.seeds)) if (group.group_id, j) not in completions]
        for group in groups
    }
    remaining = [
        replace(group, seeds=[group.seeds[j] for j in missing[group.group_id]])
        for group in groups
        if missing[group.group_id]
    ]
    done_before = len(completions)
    tokens_before = sum(len(completion.token_ids) for completion in completions.values())
    unsaved: list[Drawn] = []
    last_write = time.monotonic()

    def buffer_response(place: int, index: int, completion: Completion) -> None:
        """Called when a response is complete: the `index`-th of the group at `place` of `remaining`."""
        group_id = remaining[place].group_id
        unsaved.append(
            Drawn(
                group_id=group_id,
                row=missing[group_id][index],
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
            )
        )

    def save_and_report(done: int, total: int, tokens: int) -> None:
        """Called on progress: responses are written only here, so that those of one moment are written together."""
        nonlocal last_write
        if saved_rows is not None and unsaved and time.monotonic() - last_write >= SAVE_SECONDS:
            saved_rows.add(unsaved)
            unsaved.clear()
            last_write = time.monotonic()
        progress(done_before + done, done_before + total, tokens_before + tokens)

    sampled = sampler.sample(remaining, params, progress=save_and_report, keep=buffer_response)
    for group, responses in zip(remaining, sampled, strict=True):
        completions.update(zip([(group.group_id, j) for j in missing[group.group_id]], responses, strict=True))
    return {group.group_id: [completions[group.group_id, j] for j in range(len(group.seeds))] for group in groups}
