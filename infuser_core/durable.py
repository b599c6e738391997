"""Writing so that a crash leaves the old content or the new one."""

import json
import os
from pathlib import Path
from typing import Any


def fsync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """A JSON file, complete or not there at all. One writer at a time: the draft has a fixed name."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("w", encoding="utf-8") as handle:
        handle.write(json.dumps(value, indent=1, sort_keys=True) + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(path)
    fsync(path.parent)
