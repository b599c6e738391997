"""Rows that a long stage finished before it commits; a file's name carries its checksum, a killed stage goes on."""

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
    """Parts of one table below a folder of the stage's own, each there as a whole or not at all."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._folder, self._row_type = folder, row_type

    def rows(self) -> list[Row]:
        """Everything that was kept, in the order of keeping. Raises DamagedArtifactError for a changed piece."""
        parts = sorted(self._folder.glob(f"piece-*{_TABLE}"))
        return [row for path in parts for row in _read(path, self._row_type, self._folder)]

    def add(self, rows: Sequence[Row]) -> None:
        """Keep some rows, durably."""
        number = len(list(self._folder.glob(f"piece-*{_TABLE}")))
        _keep(self._folder, f"piece-{number:06d}", rows, self._row_type)


class Items(Generic[Row]):
    """One table's rows of each item of a group, such as a book, below a folder of the stage's own."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._stage, self._folder, self._row_type = folder, folder / row_type.__name__.lower(), row_type

    def get(self, item: str) -> list[Row] | None:
        """The item's rows, or None where it is not finished. Raises DamagedArtifactError for changed ones."""
        found = sorted(self._folder.glob(f"{_name(item)}.*{_TABLE}"))
        return _read(found[0], self._row_type, self._stage) if found else None

    def keep(self, item: str, rows: Sequence[Row]) -> None:
        """Keep an item's rows, also none, durably. Of several tables the one that is asked for is kept last."""
        _keep(self._folder, _name(item), rows, self._row_type)

    def all(self, items: Sequence[str]) -> list[Row]:
        """The rows of finished items, in the order of the items."""
        return [row for item in items for row in self.get(item) or ()]


def _name(item: str) -> str:
    # Identifiers of sources hold slashes.
    return digest_of(item)[:32]


def _keep(folder: Path, name: str, rows: Sequence[Row], row_type: type[Row]) -> None:
    draft = folder / f".{name}.{uuid.uuid4().hex}.tmp"
    save_rows(draft, rows, row_type)
    draft.replace(folder / f"{name}.{checksum(draft.read_bytes())}{_TABLE}")


def _read(path: Path, row_type: type[Row], stage: Path) -> list[Row]:
    """The rows of a piece. A changed one ends the stage, which begins anew: others may have been made with it."""
    if not path.name.endswith(f".{checksum(path.read_bytes())}{_TABLE}"):
        shutil.rmtree(stage)
        hint = "the pieces of this stage are removed: `infuser resume` computes them again"
        raise DamagedArtifactError(f"{path} changed since it was written", hint=hint)
    return read_rows(path, row_type)
