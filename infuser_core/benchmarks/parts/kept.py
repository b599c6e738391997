"""Questions that are slow to read (gigabytes of tests) are kept on disk while files and code stay the same."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from infuser_core import durable, settings
from infuser_core.schemas import Question
from infuser_core.store.recipe import digest_of
from infuser_core.verifiers.parts.grading import grading_of


def folder(name: str, *, of: str = "tests") -> Path:
    """Where a benchmark's unpacked tests, or what else is made from its rows, lie: in the store, safe to delete."""
    return settings.store_root() / "cache" / of / name


def questions(name: str, files: Sequence[object], make: Callable[[], Sequence[Question]]) -> list[Question]:
    """What `make` gives, from disk when it was made from these files by this code before and its tests are still there.

    `files` identify the state of the files read: JSON values.
    """
    path = folder(name, of="questions") / f"{digest_of([_code(), list(files), str(folder(name))])[:16]}.jsonl"
    if path.is_file():
        known = [Question(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        if all(Path(grading_of(question).tests).is_file() for question in known):
            return known
    made = list(make())
    durable.write(path, "".join(json.dumps(asdict(question)) + "\n" for question in made))
    return made


@cache
def _code() -> str:
    """Digest of everything that turns rows into questions."""
    total = hashlib.sha256()
    room = Path(__file__).parent.parent
    tests = room.parent / "verifiers" / "parts"
    for path in sorted([*room.rglob("*.py"), *tests.glob("code_*.py"), tests / "grading.py"]):
        total.update(path.read_bytes())
    return total.hexdigest()
