"""Attempts of a run (its starts and resumptions), read from its journal: stages, times, and how each ended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infuser_core.store import runs
from infuser_core.store.journal import FINISHED, Entry, Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start or resumption of a run."""

    run: str
    number: int
    """Number of the start, from 1."""
    entries: Sequence[Entry]
    """Its stages, each with the time at which it ended."""
    state: str
    """running, done, stopped, failed or killed."""
    message: str
    """Reason for which it ended early; empty otherwise."""


def span_of(entries: Sequence[Entry]) -> tuple[float, float, float]:
    """Start of the first stage and end of the last, as seconds since the epoch, and the seconds between."""
    start, end = min(entry.at - entry.seconds for entry in entries), max(entry.at for entry in entries)
    return start, end, end - start


def attempts_of(root: Path, name: str) -> list[Attempt]:
    """All attempts of a run, the earliest first. Raises DamagedArtifactError for a damaged journal."""
    journal, is_held = Journal(root, name), runs.is_held(root, name)
    at = journal.path.stat().st_mtime if journal.path.exists() else 0.0
    entries_by_attempt: dict[int, list[Entry]] = {}
    for entry in journal.entries():
        entries_by_attempt.setdefault(entry.attempt, []).append(entry if entry.at else replace(entry, at=at))
    last = max(entries_by_attempt, default=0)
    return [
        _attempt(name, number, entries, is_held=is_held and number == last)
        for number, entries in sorted(entries_by_attempt.items())
    ]


def state_of(root: Path, name: str) -> str:
    """Describe a run's state: running, done, stopped or failed with the stage, interrupted."""
    if runs.is_held(root, name):
        return "running"
    for last in attempts_of(root, name)[-1:]:
        words = {"done": "done", "stopped": last.message, "failed": f"failed in {last.message}"}
        return words.get(last.state, "interrupted")
    return "interrupted"


def _attempt(name: str, number: int, entries: list[Entry], *, is_held: bool) -> Attempt:
    end = entries[-1]
    failed = [entry for entry in entries if entry.state == "failed"]
    if end.phase == FINISHED or end.state == "stopped":
        state, message = end.state, end.message
    elif is_held:
        state, message = "running", ""
    elif failed:
        state, message = "failed", f"{failed[-1].phase}: {failed[-1].message}"
    else:
        state, message = "killed", "the process that ran this is gone"
    return Attempt(run=name, number=number, entries=entries, state=state, message=message)
