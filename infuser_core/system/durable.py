"""Atomic, durable writes of files and folders: after a crash, a file has its old or its new content, never a mix."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infuser_core.errors import InfuserError, StoreError, UsageError


def fsync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file replaces `path` when the block ends without an error.

    Creates missing folders. A killed process leaves the temporary file `.NAME.*.tmp`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield draft
        fsync(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    fsync(path.parent)


def write(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text as UTF-8."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with sorted keys atomically."""
    write(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


@contextmanager
def write_errors(place: Path | str, *, hint: str) -> Iterator[None]:
    """Turn file system errors in the block into a StoreError that names the path and the remedy."""
    try:
        yield
    # Some InfuserErrors are also OSErrors.
    except InfuserError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror or error}", hint=hint) from error


def refuse_nonempty(out: Path, *, option: str) -> None:
    """Raise UsageError unless `out` is missing or an empty folder; `option` is the command-line option for it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{option} {out}: there is something already", hint="name a new or an empty folder")


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `out` when the block ends without an error, otherwise deleted."""
    draft = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    try:
        with write_errors(out, hint="free some space, or name another folder"):
            draft.mkdir(parents=True)
            yield draft
            for path in [*draft.iterdir(), draft]:
                fsync(path)
            draft.rename(out.absolute())
            fsync(draft.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
