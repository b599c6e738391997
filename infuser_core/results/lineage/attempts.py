"""Attempts of a run as its journal tells: their stages, how they ended, and when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infuser_core.store import runs
from infuser_core.store.journal import FINISHED, Entry, Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a run, as its journal tells."""

    run: str
    """The run."""
    number: int
    """Count of starts, from 1."""
    entries: Sequence[Entry]
    """Its stages, each with a time."""
    state: str
    """running, done, stopped, failed or killed."""
    message: str
    """Why it ended, where it did not come to its end."""


def span_of(entries: Sequence[Entry]) -> tuple[float, float, float]:
    """Begin of the first of these stages and end of the last, seconds since the epoch, and the seconds between."""
    began, ended = min(entry.at - entry.seconds for entry in entries), max(entry.at for entry in entries)
    return began, ended, ended - began


def attempts_of(root: Path, name: str) -> list[Attempt]:
    """Attempts of a run in their order. Raises DamagedArtifactError for a damaged journal."""
    journal, held = Journal(root, name), runs.is_held(root, name)
    at = journal.path.stat().st_mtime if journal.path.exists() else 0.0
    found: dict[int, list[Entry]] = {}
    for entry in journal.entries():
        found.setdefault(entry.attempt, []).append(entry if entry.at else replace(entry, at=at))
    last = max(found, default=0)
    return [_attempt(name, number, entries, held=held and number == last) for number, entries in sorted(found.items())]


def state_of(root: Path, name: str) -> str:
    """A run's state in words: running, done, stopped or failed and at which stage, interrupted."""
    if runs.is_held(root, name):
        return "running"
    for last in attempts_of(root, name)[-1:]:
        words = {"done": "done", "stopped": last.message, "failed": f"failed in {last.message}"}
        return words.get(last.state, "interrupted")
    return "interrupted"


def _attempt(name: str, number: int, entries: list[Entry], *, held: bool) -> Attempt:
    end = entries[-1]
    failed = [entry for entry in entries if entry.state == "failed"]
    if end.phase == FINISHED or end.state == "stopped":
        state, message = end.state, end.message
    elif held:
        state, message = "running", ""
    elif failed:
        state, message = "failed", f"{failed[-1].phase}: {failed[-1].message}"
    else:
        state, message = "killed", "the process that ran this is gone"
    return Attempt(run=name, number=number, entries=entries, state=state, message=message)
