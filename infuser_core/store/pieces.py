"""Intermediate storage of a long stage's finished rows, so that the stage can continue after it was killed.

Rows are in parquet files whose names contain a checksum.
"""

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from infuser_core.errors import DamagedArtifactError
from infuser_core.store.tables import read_rows, save_rows
from infuser_core.system.sealed import checksum, digest_of

Row = TypeVar("Row")
_TABLE = ".parquet"


class Pieces(Generic[Row]):
    """Stores one table of a stage in consecutive pieces, each a file that is written completely or not at all."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._folder, self._row_type = folder, row_type

    def rows(self) -> list[Row]:
        """Read all stored rows in the order of their addition. Raises DamagedArtifactError for a changed file."""
        parts = sorted(self._folder.glob(f"piece-*{_TABLE}"))
        return [row for path in parts for row in _read(path, self._row_type, self._folder)]

    def add(self, rows: Sequence[Row]) -> None:
        """Store the next rows durably, as a new piece."""
        number = len(list(self._folder.glob(f"piece-*{_TABLE}")))
        _save(self._folder, f"piece-{number:06d}", rows, self._row_type)


class Items(Generic[Row]):
    """Stores one table of a stage item by item (for example, book by book), with a file for the rows of each item."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._stage, self._folder, self._row_type = folder, folder / row_type.__name__.lower(), row_type

    def get(self, item: str) -> list[Row] | None:
        """Read an item's rows; None if the item is not finished. Raises DamagedArtifactError for a changed file."""
        paths = sorted(self._folder.glob(f"{_file_stem(item)}.*{_TABLE}"))
        return _read(paths[0], self._row_type, self._stage) if paths else None

    def keep(self, item: str, rows: Sequence[Row]) -> None:
        """Store an item's rows durably; an item may have none.

        If an item has rows in several tables, store the table last that is checked with `get`.
        """
        _save(self._folder, _file_stem(item), rows, self._row_type)

    def all(self, items: Sequence[str]) -> list[Row]:
        """Read the rows of all finished items, in the order of `items`."""
        return [row for item in items for row in self.get(item) or ()]


def _file_stem(item: str) -> str:
    # Hashed because identifiers of sources contain slashes.
    return digest_of(item)[:32]


def _save(folder: Path, name: str, rows: Sequence[Row], row_type: type[Row]) -> None:
    draft = folder / f".{name}.{uuid.uuid4().hex}.tmp"
    save_rows(draft, rows, row_type)
    draft.replace(folder / f"{name}.{checksum(draft.read_bytes())}{_TABLE}")


def _read(path: Path, row_type: type[Row], stage: Path) -> list[Row]:
    """Read a file of rows and check that it did not change since it was written.

    If it changed, removes all files of the stage, which may depend on it, and raises DamagedArtifactError.
    """
    if not path.name.endswith(f".{checksum(path.read_bytes())}{_TABLE}"):
        shutil.rmtree(stage)
        hint = "the pieces of this stage are removed: `infuser resume` computes them again"
        raise DamagedArtifactError(f"{path} changed since it was written", hint=hint)
    return read_rows(path, row_type)
