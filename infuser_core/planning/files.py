"""Small records that are whole or absent."""

from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.errors import StoreError


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one atomic, durable step. Raises StoreError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_json(path, value)
    except OSError as error:
        hint = "free some space, or set INFUSER_STORE to a folder you may write"
        raise StoreError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
