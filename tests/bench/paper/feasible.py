"""Can a printed accuracy be a number of correct responses? A single run's cell is k / (questions x samples).

Columns whose every cell ends in 0 are printed with one decimal: they come from elsewhere and are not tested.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from recompute import Check, Status, name_of

from infuser_core.report.paper_numbers import Cell, Sheet, accuracy_sheets, cells, is_benchmark, sheets

SEEDS = 3
"""Runs behind a cell that is printed with a standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The testable benchmark cells of one column."""

    table: str
    """Table of the paper."""
    anchor: str
    """Anchor model."""
    name: str
    """Column."""
    cells: tuple[Cell, ...]
    """Cells of benchmarks whose number of questions is known."""
    runs: int
    """1, or 3 for a column with standard deviations."""

    @property
    def misses(self) -> tuple[Cell, ...]:
        """Cells that no number of correct responses gives."""
        return tuple(cell for cell in self.cells if count_of(cell.value, responses(cell.row) * self.runs) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFit:
    """How well a number of questions explains the distinct single-run cells of a benchmark."""

    row: str
    """Benchmark."""
    questions: int
    """Assumed number of questions."""
    fits: int
    """Distinct cells that are multiples of 1 / (questions x samples)."""
    cells: int
    """Distinct cells."""


@cache
def questions() -> dict[str, int]:
    """Questions per benchmark that its cells are multiples of (BBEH: 26 fewer than upstream publishes)."""
    with (Path(__file__).parent / "questions.csv").open(encoding="utf-8") as file:
        return {line["row"]: int(line["questions"]) for line in csv.DictReader(file)}


@cache
def samples(row: str) -> int:
    """Responses per question of a benchmark row, as the paper tabulates them."""
    stated = [cell for cell in cells() if cell.table == "eval_samples" and cell.column == "n per question"]
    own = [cell for cell in stated if row.startswith(cell.row)]
    return int((own or [cell for cell in stated if cell.row.startswith("all other")])[0].value)


def paper_cell(correct: int, total: int) -> Decimal:
    """A single run's accuracy in percent as the paper prints it: the share rounded to 4 digits in binary, times 100."""
    return Decimal(repr(round(correct / total, 4))) * 100


def count_of(value: Decimal, total: int) -> int | None:
    """The number of correct responses among `total` that prints as `value` percent, or None when there is none."""
    near = int(value * total / 100)
    found = (count for count in range(max(0, near - 1), min(total, near + 2) + 1) if paper_cell(count, total) == value)
    return next(found, None)


def runs_needed(value: Decimal, total: int, *, most: int = 8) -> int | None:
    """The smallest number of runs whose mean accuracy can print as `value`; None up to `most`."""
    return next((runs for runs in range(1, most + 1) if count_of(value, total * runs) is not None), None)


def nearest(value: Decimal, total: int) -> str:
    """The multiple of 1 / total that comes nearest, with its numerator."""
    count = round(value * total / 100)
    return f"{paper_cell(count, total):.2f} = {count}/{total}"


def responses(row: str) -> int:
    """Questions x samples of a benchmark."""
    return questions()[row] * samples(row)


@cache
def columns() -> tuple[Column, ...]:
    """Every testable column of the accuracy tables printed with two decimals."""
    return tuple(
        column for found in accuracy_sheets() for name in found.columns if (column := _column(found, name)) is not None
    )


def _column(found: Sheet, name: str) -> Column | None:
    cells = tuple(
        cell for cell in found.cells if cell.column == name and is_benchmark(cell.row) and cell.row in questions()
    )
    if not cells or any(cell.digits != 2 for cell in cells) or borrowed(cells):
        return None
    runs = SEEDS if any(cell.std for cell in cells) else 1
    return Column(table=found.table, anchor=found.anchor, name=name, cells=cells, runs=runs)


def borrowed(cells: Sequence[Cell]) -> bool:
    """Whether a column is printed with one decimal and a zero: numbers taken over from elsewhere."""
    return all(cell.text.endswith("0") for cell in cells)


def feasibility_checks() -> list[Check]:
    """Every testable cell of the accuracy tables and of the leakage table.

    A mean over seeds that no count gives, but whose neighbour is one unit away, is within rounding: it may be a mean of
    rounded cells.
    """
    checks = [_check(cell, responses(cell.row), column.runs) for column in columns() for cell in column.cells]
    checks += [_check(cell, total, 1) for cell, total in split_cells()]
    return checks


def split_cells() -> list[tuple[Cell, int]]:
    """Accuracies of the leakage table with the number of questions that their row names in parentheses."""
    sized = [(cell, re.search(r"\((\d+)\)", cell.row)) for found in sheets("dev_leakage") for cell in found.cells]
    return [(cell, int(size[1])) for cell, size in sized if size and not cell.column.endswith("delta")]


def _check(cell: Cell, total: int, runs: int) -> Check:
    count = count_of(cell.value, total * runs)
    shown = nearest(cell.value, total * runs)
    off = abs(Decimal(shown.split(" ")[0]) - cell.value)
    status = Status.EXACT if count is not None else Status.INCONSISTENT
    if count is None and runs > 1 and off <= Decimal("0.01"):
        status = Status.ROUNDING
    return Check(
        table=cell.table,
        cell=name_of(cell),
        kind="feasibility",
        printed=cell.text,
        recomputed=f"{cell.text} = {count}/{total * runs}" if count is not None else shown,
        status=status,
        note=_note(cell.value, total, runs, count),
    )


def _note(value: Decimal, total: int, runs: int, count: int | None) -> str:
    assumed = "a single run" if runs == 1 else f"a mean of {runs} runs"
    if count is not None:
        return assumed
    needed = runs_needed(value, total)
    other = f"fits a mean of {needed} runs" if needed else "fits no mean of up to 8 runs"
    return f"not {assumed}; {other}"


@cache
def single_cells(row: str) -> tuple[Decimal, ...]:
    """Distinct cells of a benchmark from columns that can be single runs: those that miss in most rows are not."""
    single = [column for column in columns() if column.runs == 1 and 2 * len(column.misses) <= len(column.cells)]
    found: Iterable[Decimal] = (cell.value for column in single for cell in column.cells if cell.row == row)
    return tuple(dict.fromkeys(found))


def row_fit(row: str, number: int) -> RowFit:
    """How many distinct single-run cells a number of questions explains."""
    values = single_cells(row)
    fits = sum(count_of(value, number * samples(row)) is not None for value in values)
    return RowFit(row=row, questions=number, fits=fits, cells=len(values))


def best_row_fits(row: str, *, around: int = 60, best: int = 3) -> list[RowFit]:
    """The numbers of questions near the assumed one that explain most cells, the nearest first among equals."""
    assumed = questions()[row]
    fits = [row_fit(row, number) for number in range(max(1, assumed - around), assumed + around + 1)]
    return sorted(fits, key=lambda fit: (-fit.fits, abs(fit.questions - assumed)))[:best]
