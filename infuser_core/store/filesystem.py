"""Test whether a file system supports what a store needs: atomic renames, exclusive creation, locks, fsync."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infuser_core.errors import StoreError
from infuser_core.system.durable import fsync
from infuser_core.terminal import format_rows


def probe_folder(folder: Path) -> list[dict[str, Any]]:
    """Test each file system operation that a store needs, in a temporary folder; returns one row per operation.

    Raises StoreError if nothing can be written.
    """
    scratch = folder / f".probe.{uuid.uuid4().hex}"
    try:
        scratch.mkdir(parents=True)
    except OSError as error:
        hint = "name a folder that you may write"
        raise StoreError(f"cannot write {folder}: {error.strerror or error}", hint=hint) from error
    findings = []
    try:
        for name, what, attempt in _PROMISES:
            place = scratch / name
            place.mkdir()
            try:
                failure = attempt(place)
            except OSError as error:
                failure = error.strerror or str(error)
            findings.append({"name": name, "kept": not failure, "what": f"{what}: {failure}" if failure else what})
        return findings
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def format_findings(folder: Path, findings: Sequence[Mapping[str, Any]]) -> str:
    """Format the results of `probe_folder` as human-readable text."""
    rows = [
        {"promise": row["name"], "kept": "yes" if row["kept"] else "BROKEN", "for": row["what"]} for row in findings
    ]
    broken = ", ".join(row["name"] for row in findings if not row["kept"])
    return (
        f"{format_rows(rows, width=100)}\n{folder} {f'cannot hold a store: {broken}' if broken else 'can hold a store'}"
    )


def _rename(place: Path) -> str:
    old, new = place / "old", place / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    try:
        old.rename(new)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return "a folder was renamed over one with files"
    old.rename(place / "third")
    return "" if (place / "third" / "file").read_text() == "old" else "a renamed folder lost its content"


def _replace(place: Path) -> str:
    (place / "file").write_text("old")
    with (place / "file").open() as reader:
        (place / "draft").write_text("new")
        (place / "draft").replace(place / "file")
        if reader.read() != "old":
            return "an open file changed when its name was given to another"
    return "" if (place / "file").read_text() == "new" else "the new content is not there"


def _exclusive(place: Path) -> str:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(place / "file", flags))
    try:
        os.close(os.open(place / "file", flags))
    except FileExistsError:
        return ""
    return "a file was created twice"


def _durable(place: Path) -> str:
    (place / "file").write_text("content")
    fsync(place / "file")
    fsync(place)
    return ""


def _lock(place: Path) -> str:
    with (place / "file").open("w") as first, (place / "file").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "a lock was given twice"


_PROMISES: tuple[tuple[str, str, Callable[[Path], str]], ...] = (
    ("rename", "an artifact appears by one rename, and the first of two writers wins", _rename),
    ("replace", "a record is replaced as a whole, under its readers", _replace),
    ("exclusive", "a file is created once (O_EXCL)", _exclusive),
    ("fsync", "what is committed survives a power cut", _durable),
    ("lock", "one process executes a run (flock)", _lock),
)
