"""Averages and relative improvements of the accuracy tables, recomputed from their printed cells."""

from infuser_core.paper.check import Check, Recomputed, compare, mean, quotient, same
from infuser_core.report.paper_numbers import AVERAGE, BASE, OVERALL, RELATIVE, Cell, Sheet, accuracy_sheets


def average_checks() -> list[Check]:
    """Category averages, overall means and relative improvements of every accuracy table."""
    return [check for found in accuracy_sheets() for check in _of_sheet(found)]


def _of_sheet(found: Sheet) -> list[Check]:
    checks = []
    for cell in found.cells:
        made = recompute(found, cell)
        if made is not None:
            kind = "relative" if cell.row.startswith(RELATIVE) else "average"
            checks.append(compare(cell, made, kind=kind, note=_note(cell)))
    return checks


def recompute(found: Sheet, cell: Cell) -> Recomputed | None:
    """The cell from others of its table; None for a benchmark, or where the paper does not print what it needs."""
    categories = found.categories()
    if cell.row.startswith(RELATIVE):
        row = AVERAGE + cell.row.removeprefix(RELATIVE)
        own, base = found.find(cell.column, row), found.find(BASE, row)
        return quotient(same(own), same(base), scale=100, shift=-1) if own and base else None
    if cell.row.startswith(AVERAGE):
        rows = categories[cell.row.removeprefix(AVERAGE)]
    elif cell.row in OVERALL:
        rows = tuple(row for category in categories.values() for row in category)
    else:
        return None
    cells = [found.find(cell.column, row) for row in rows]
    return mean([part for part in cells if part]) if all(cells) else None


def _note(cell: Cell) -> str:
    return "from the printed averages" if cell.row.startswith(RELATIVE) else "mean of the printed cells"
