"""Atomic, durable writes: after a crash a file has its old content or the new one, never a part."""

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
    """Make a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft file next to `path` that replaces it when the block ends without an error.

    Creates missing folders. A killed process leaves its draft as `.NAME.*.tmp`.
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
    """Write a file whole or not at all; text as UTF-8."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with sorted keys whole or not at all."""
    write(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


@contextmanager
def write_errors(place: Path | str, *, hint: str) -> Iterator[None]:
    """Turn file system errors into a StoreError with the place and the remedy."""
    try:
        yield
    # Some InfuserErrors are OSErrors, too.
    except InfuserError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror or error}", hint=hint) from error


def refuse_nonempty(out: Path, *, option: str) -> None:
    """Raises UsageError unless `out` is new or an empty folder; `option` is the command's option for it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{option} {out}: there is something already", hint="name a new or an empty folder")


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """A draft folder next to `out` that is renamed to it when the block ends without an error, else removed."""
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
