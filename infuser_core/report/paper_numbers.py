"""The numbers that the INFUSER paper prints in its tables and its prose, as printed, from `numbers.csv`."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

AVERAGE = "Category average: "
RELATIVE = "Relative improvement (%): "
OVERALL = ("14-benchmark mean", "Overall average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One printed number."""

    table: str
    """Table of the paper."""
    anchor: str
    """Anchor model; empty where the table has none."""
    column: str
    """Column: usually a method."""
    row: str
    """Row: usually a benchmark."""
    text: str
    """The number as printed."""
    std: str
    """The standard deviation as printed beside it; empty without one."""

    @property
    def value(self) -> Decimal:
        """The printed number."""
        return Decimal(self.text)

    @property
    def deviation(self) -> Decimal | None:
        """The printed standard deviation."""
        return Decimal(self.std) if self.std else None

    @property
    def digits(self) -> int:
        """Decimals printed."""
        exponent = self.value.as_tuple().exponent
        return max(0, -exponent) if isinstance(exponent, int) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One table for one anchor."""

    table: str
    """Table of the paper."""
    anchor: str
    """Anchor model."""
    cells: tuple[Cell, ...]
    """Cells in the order of the file."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns in order of appearance."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows in order of appearance."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    def find(self, column: str, row: str) -> Cell | None:
        """The cell, or None where the paper prints none."""
        return next((cell for cell in self.cells if (cell.column, cell.row) == (column, row)), None)

    def categories(self) -> dict[str, tuple[str, ...]]:
        """Benchmarks of each category: the rows between one category's average and the next."""
        found: dict[str, tuple[str, ...]] = {}
        pending: list[str] = []
        for row in self.rows:
            if row.startswith(AVERAGE):
                found[row.removeprefix(AVERAGE)] = tuple(pending)
                pending = []
            elif is_benchmark(row):
                pending.append(row)
        return found


def is_benchmark(row: str) -> bool:
    """Whether a row of an accuracy table is a benchmark and not made of others."""
    return not row.startswith((AVERAGE, RELATIVE)) and row not in OVERALL


@cache
def cells() -> tuple[Cell, ...]:
    """Every number of `numbers.csv`, in order."""
    with (files(__package__) / "numbers.csv").open(encoding="utf-8") as file:
        return tuple(Cell(text=line.pop("value"), **line) for line in csv.DictReader(file))


@cache
def sheets(table: str = "") -> tuple[Sheet, ...]:
    """The tables by anchor, in order of appearance; of one table when named."""
    kept = [cell for cell in cells() if table in ("", cell.table)]
    places = dict.fromkeys((cell.table, cell.anchor) for cell in kept)
    return tuple(
        Sheet(
            table=name, anchor=anchor, cells=tuple(cell for cell in kept if (cell.table, cell.anchor) == (name, anchor))
        )
        for name, anchor in places
    )


def accuracy_sheets() -> tuple[Sheet, ...]:
    """Tables of accuracies with category averages."""
    return tuple(found for found in sheets() if any(row.startswith(AVERAGE) for row in found.rows))


def row_of(name: str, known: Sequence[str]) -> str:
    """The paper's heading of a benchmark, by letters and digits alone; else the one that begins alike; else itself."""
    own = _folded(name)
    folded = {row: _folded(row) for row in known}
    same = [row for row, key in folded.items() if key == own]
    alike = [row for row, key in folded.items() if key.startswith(own)]
    return same[0] if same else alike[0] if len(alike) == 1 else name


def _folded(name: str) -> str:
    return "".join(char for char in name.lower().replace("+", "plus") if char.isalnum())
