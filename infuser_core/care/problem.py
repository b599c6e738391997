"""What can be wrong with a store, and what a look at it found."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be."""

    kind: str
    """A word for scripts, e.g. `file_changed`."""
    damage: bool
    """True for damage; False for a note: harmless, and explained."""
    what: str
    """One line for people, with the path or the key."""
    remedy: str
    """What to do; empty where nothing need be done."""
    key: str = ""
    """Artifact at fault, if one is."""
    runs: tuple[str, ...] = ()
    """Runs that hold the artifact."""
    bytes: int = 0
    """Size of what is left over; 0 where that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a look at a run or at the whole store found."""

    scope: str
    """Run, or `store`."""
    artifacts: int
    """Artifacts looked at."""
    files: int
    """Files whose digests were compared."""
    bytes: int
    """Their sizes."""
    pruned: int
    """Checkpoints that gc thinned out."""
    seconds: float
    """Time of the look, seconds."""
    problems: Sequence[Problem]
    """Damage first, then notes."""

    @property
    def damage(self) -> list[Problem]:
        """What must be repaired."""
        return [problem for problem in self.problems if problem.damage]

    @property
    def notes(self) -> list[Problem]:
        """What is harmless."""
        return [problem for problem in self.problems if not problem.damage]

    def to_json(self) -> dict[str, Any]:
        """The finding for scripts."""
        return {
            "scope": self.scope,
            "healthy": not self.damage,
            "artifacts": self.artifacts,
            "files": self.files,
            "bytes": self.bytes,
            "pruned": self.pruned,
            "seconds": round(self.seconds, 3),
            "damage": [asdict(problem) for problem in self.damage],
            "notes": [asdict(problem) for problem in self.notes],
        }

    def text(self) -> str:
        """The finding for people: one line per problem."""
        lines = [_line("damaged", problem) for problem in self.damage]
        lines += [_line("note", problem) for problem in self.notes]
        looked = f"{self.artifacts} artifacts, {self.files} files, {size(self.bytes)} in {self.seconds:.1f} s"
        pruned = f"; {self.pruned} checkpoints pruned by gc" if self.pruned else ""
        state = f"{len(self.damage)} damaged" if self.damage else "healthy"
        return "\n".join([*lines, f"{self.scope}: {state} ({looked}{pruned}; {len(self.notes)} notes)"])


def _line(word: str, problem: Problem) -> str:
    remedy = f": {problem.remedy}" if problem.remedy else ""
    return f"{word:8} {problem.what}{remedy}"


def size(count: int) -> str:
    """Bytes for people, in decimal units."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
