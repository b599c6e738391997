"""Folders that commands write: whole or not at all, and never over something that is there."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infuser_core.durable import fsync
from infuser_core.errors import StoreError, UsageError


def refuse_filled(out: Path, *, option: str) -> None:
    """Raises UsageError for a place that holds something; `option` is what the command calls it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{option} {out}: there is something already", hint="name a new or an empty folder")


@contextmanager
def drafted(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all went well, and is gone otherwise."""
    draft = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    try:
        draft.mkdir(parents=True)
        yield draft
        for path in [*draft.iterdir(), draft]:
            fsync(path)
        draft.rename(out.absolute())
        fsync(draft.parent)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"cannot write {out}: {error.strerror or error}", hint="free some space, or name another folder"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
