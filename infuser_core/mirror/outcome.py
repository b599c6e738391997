"""What copying gave: what moved, what was there already, and what could not be copied."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Progress = Callable[[int, int], None]
"""Bytes dealt with, bytes to deal with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One artifact or record that was dealt with."""

    key: str
    """Artifact's key, or run's name."""
    files: int
    """Files that were copied; 0 where everything was there."""
    bytes: int
    """Their sizes."""
    problem: str = ""
    """Why it was left alone; empty where it is complete at the other end now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a push or a pull."""

    verb: str
    """pushed or pulled."""
    url: str
    """The mirror's address, without secrets."""
    artifacts: Sequence[Copied]
    """Artifacts in the order of their keys."""
    records: Sequence[Copied]
    """Records of runs."""
    seconds: float
    """Wall-clock time."""

    @property
    def problems(self) -> list[str]:
        """What is not complete at the other end, and why."""
        return [f"{done.key}: {done.problem}" for done in (*self.artifacts, *self.records) if done.problem]

    def to_json(self) -> dict[str, Any]:
        """The outcome for scripts."""
        counts = {name: self._count(name) for name in ("artifacts", "records")}
        whole = {"verb": self.verb, "url": self.url, "bytes": self._bytes, "seconds": round(self.seconds, 3)}
        details = [asdict(done) for done in (*self.artifacts, *self.records) if done.files or done.problem]
        return {**whole, **counts, "problems": self.problems, "details": details}

    def text(self) -> str:
        """The outcome for people."""
        lines = [f"not copied  {problem}" for problem in self.problems]
        parts = [f"{self._count(name)['copied']} of {len(getattr(self, name))} {name}" for name in _NAMES]
        size = f"{self._bytes / 1e6:,.1f} MB in {self.seconds:.1f} s"
        rest = "the others were there" if not lines else f"{len(lines)} not copied"
        return "\n".join([*lines, f"{self.verb} {' and '.join(parts)}, {size}; {rest}: {self.url}"])

    @property
    def _bytes(self) -> int:
        return sum(done.bytes for done in (*self.artifacts, *self.records))

    def _count(self, name: str) -> dict[str, int]:
        found: Sequence[Copied] = getattr(self, name)
        failed = sum(bool(done.problem) for done in found)
        copied = sum(bool(done.files) and not done.problem for done in found)
        return {"copied": copied, "kept": len(found) - copied - failed, "failed": failed}


_NAMES = ("artifacts", "records")
