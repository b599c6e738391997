"""Numbers that the paper derives from its tables in prose and small tables: deltas, gaps, means over seeds, counts."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from infuser_core.paper.check import Check, Recomputed, compare, mean, minus, same, sample_sd
from infuser_core.report.paper_numbers import AVERAGE, BASE, OVERALL, Cell, Sheet, accuracy_sheets, is_benchmark, sheets
from infuser_core.statistics.rounding import printed

DELTA = " delta"
SWG = "SWG"


def prose_checks() -> list[Check]:
    """All of this module."""
    return [*dev_size_checks(), *delta_checks(), *gap_checks(), *leakage_checks(), *hybrid_checks(), *claim_checks()]


def dev_size_checks() -> list[Check]:
    """Means over all benchmarks, from category averages weighted by the categories' sizes; gains over the base."""
    checks = []
    for found in sheets("dev_size"):
        sizes = {name: len(rows) for name, rows in _categories(found.anchor).items()}
        overall = next(name for name in OVERALL if name in found.columns)
        for row in found.rows:
            parts = _cells(found.find(name, row) for name in sizes)
            own, base, gain = found.find(overall, row), found.find(overall, BASE), found.find("delta over Base", row)
            if own and len(parts) == len(sizes):
                made = mean(parts, list(sizes.values()))
                note = "category averages weighted by their numbers of benchmarks"
                checks.append(compare(own, made, kind="average", note=note))
            if own and base and gain:
                checks.append(compare(gain, minus(own, base), kind="delta", note="difference of the printed means"))
    return checks


def delta_checks() -> list[Check]:
    """Differences of category averages: `X delta` is over the base, `X minus Y` over another column."""
    checks = []
    for found in sheets("text_deltas"):
        terms = {cell: _terms(cell.row) for cell in found.cells}
        named = {name for pair in terms.values() for name in pair}
        source = next((s for s in accuracy_sheets() if s.anchor == found.anchor and named <= set(s.columns)), None)
        for cell, (first, second) in terms.items():
            ends = _cells(source.find(name, AVERAGE + cell.column) for name in (first, second)) if source else []
            if source and len(ends) == 2:
                note = f"{source.table} table: {ends[0].text} - {ends[1].text}"
                checks.append(compare(cell, minus(*ends), kind="delta", note=note))
    return checks


def _terms(row: str) -> tuple[str, str]:
    first, _, second = row.partition(" minus ")
    return (first, second) if second else (row.removesuffix(DELTA), BASE)


def gap_checks() -> list[Check]:
    """Strong-against-weak gaps: the strongest solver by mean accuracy minus the anchor, on the same questions."""
    checks = []
    for found in sheets("gen_quality"):
        solvers = [row for row in found.rows if not row.startswith(SWG)]
        strong = max(solvers, key=lambda row: sum(cell.value for cell in found.cells if cell.row == row))
        for cell in [cell for cell in found.cells if cell.row.startswith(SWG)]:
            ends = _cells(found.find(cell.column, row) for row in (strong, found.anchor))
            if len(ends) == 2:
                note = f"{strong} {ends[0].text} - {found.anchor} {ends[1].text}"
                checks.append(compare(cell, minus(*ends), kind="gap", note=note))
    return checks


def leakage_checks() -> list[Check]:
    """Gains over the base on dev members and on their complement."""
    checks = []
    for found in sheets("dev_leakage"):
        for cell in [cell for cell in found.cells if cell.column.endswith(DELTA)]:
            ends = _cells(found.find(name, cell.row) for name in (cell.column.removesuffix(DELTA), BASE))
            if len(ends) == 2:
                note = f"{ends[0].text} - {ends[1].text}"
                checks.append(compare(cell, minus(*ends), kind="delta", note=note))
    return checks


def hybrid_checks() -> list[Check]:
    """Means and standard deviations over seeds, from the printed seeds."""
    checks = []
    for found in sheets("hybrid"):
        for cell in found.cells:
            seeds = seeds_of(found, cell)
            if len(seeds) < 2:
                continue
            values = [same(seed) for seed in seeds]
            listed = ", ".join(seed.text for seed in seeds)
            checks.append(compare(cell, mean(seeds), kind="mean", note=f"seeds {listed}"))
            if cell.std:
                other = printed(sample_sd(values, population=True).value)
                note = f"n - 1 over seeds {listed}; the population formula gives {other}"
                checks.append(compare(cell, sample_sd(values), kind="sd", deviation=True, note=note))
    return checks


def seeds_of(found: Sheet, cell: Cell) -> list[Cell]:
    """The single seeds that an `average` row stands for."""
    setting, mark, _ = cell.row.rpartition(": average")
    return [one for one in found.cells if mark and one.column == cell.column and _is_seed(one, setting)]


def _is_seed(cell: Cell, setting: str) -> bool:
    return cell.row.startswith(f"{setting}: seed ")


def claim_checks() -> list[Check]:
    """Counts of benchmarks on which one column is above another (`X over Y`)."""
    checks = []
    for found in sheets("claims"):
        for cell in found.cells:
            first, _, second = cell.column.partition(" over ")
            for source in (s for s in accuracy_sheets() if s.anchor == found.anchor):
                rows = [row for row in source.rows if is_benchmark(row)]
                pairs = [_cells(source.find(name, row) for name in (first, second)) for row in rows]
                won = sum(ends[0].value > ends[1].value for ends in pairs if len(ends) == 2)
                made = Recomputed(value=Fraction(won), slack=Fraction(0))
                stated = replace(cell, table=source.table)
                checks.append(compare(stated, made, kind="count", note=f"of {len(rows)} benchmarks"))
    return checks


def _categories(anchor: str) -> dict[str, tuple[str, ...]]:
    return next((found.categories() for found in accuracy_sheets() if found.anchor == anchor), {})


def _cells(found: Iterable[Cell | None]) -> list[Cell]:
    """Those that are printed."""
    return [cell for cell in found if cell is not None]
