"""Rows that a long stage has finished before it commits: a killed one goes on from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from infuser_core.sealed import digest_of
from infuser_core.store.tables import read_rows, save_rows

Row = TypeVar("Row")


class Pieces(Generic[Row]):
    """Parts of one table below a folder of the stage's own, each there as a whole or not at all."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._folder, self._row_type = folder, row_type

    def rows(self) -> list[Row]:
        """Everything that was kept, in the order of keeping."""
        parts = sorted(self._folder.glob("piece-*.parquet"))
        return [row for path in parts for row in read_rows(path, self._row_type)]

    def add(self, rows: Sequence[Row]) -> None:
        """Keep some rows, durably."""
        number = len(list(self._folder.glob("piece-*.parquet")))
        save_rows(self._folder / f"piece-{number:06d}.parquet", rows, self._row_type)


class Items(Generic[Row]):
    """One table's rows of each item of a group, such as a book, below a folder of the stage's own."""

    def __init__(self, folder: Path, row_type: type[Row]) -> None:
        self._folder, self._row_type = folder / row_type.__name__.lower(), row_type

    def get(self, item: str) -> list[Row] | None:
        """The item's rows, or None where it is not finished."""
        path = self._path(item)
        return read_rows(path, self._row_type) if path.is_file() else None

    def keep(self, item: str, rows: Sequence[Row]) -> None:
        """Keep an item's rows, also none, durably. Of several tables the one that is asked for is kept last."""
        save_rows(self._path(item), rows, self._row_type)

    def all(self, items: Sequence[str]) -> list[Row]:
        """The rows of finished items, in the order of the items."""
        return [row for item in items for row in self.get(item) or ()]

    def _path(self, item: str) -> Path:
        # Identifiers of sources hold slashes.
        return self._folder / f"{digest_of(item)[:32]}.parquet"
