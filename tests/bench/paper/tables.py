"""Numbers that follow from others of the paper: averages, improvements, gaps, deviations, sums, ratios, counts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from recompute import Check, Recomputed, combine, compare, mean, minus, quotient, same, sample_sd

from infuser_core.report.paper_numbers import (
    AVERAGE,
    OVERALL,
    RELATIVE,
    Cell,
    Sheet,
    accuracy_sheets,
    cells,
    is_benchmark,
    sheets,
)
from infuser_core.statistics.averages import format_decimal

BASE = "Base"
"""Heading of the anchor's own numbers."""


def table_checks() -> list[Check]:
    """All of this module."""
    return [*average_checks(), *prose_checks(), *sum_checks()]


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
                other = format_decimal(sample_sd(values, population=True).value)
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


WHOLE = "Full iteration"
SECONDS, PERCENT = "s/iter", "percent"


def sum_checks() -> list[Check]:
    """All of this module."""
    return [*quota_checks(), *wall_clock_checks(), *corpus_checks()]


def quota_checks() -> list[Check]:
    """The quotas add up to the total."""
    checks = []
    for found in sheets("val_quota"):
        parts = [cell for cell in found.cells if cell.row != "Total"]
        total = found.find("questions", "Total")
        if total:
            checks.append(_sum(total, parts))
    return checks


def wall_clock_checks() -> list[Check]:
    """Seconds and percentages add up; percentages, ratios and GPU-hours follow from the seconds."""
    return [check for found in sheets("wall_clock") for check in _clock(found)]


def _clock(found: Sheet) -> list[Check]:
    phases = [row for row in found.rows if row != WHOLE and not row.startswith("text: ")]
    checks = []
    for column in (SECONDS, PERCENT):
        total = found.find(column, WHOLE)
        parts = [cell for cell in found.cells if cell.column == column and cell.row in phases]
        if total and parts:
            checks.append(_sum(total, parts))
    return [*checks, *_shares(found, phases), *_stated(found)]


def _shares(found: Sheet, phases: Sequence[str]) -> list[Check]:
    checks = []
    whole = found.find(SECONDS, WHOLE)
    for row in phases:
        seconds, share = found.find(SECONDS, row), found.find(PERCENT, row)
        if whole and seconds and share:
            made = quotient(same(seconds), same(whole), scale=100)
            checks.append(compare(share, made, kind="share", note=f"{seconds.text} of {whole.text} s"))
    return checks


def _stated(found: Sheet) -> list[Check]:
    """Numbers stated in the text."""
    checks = []
    whole = found.find(SECONDS, WHOLE)
    lower = {row.lower(): row for row in found.rows}
    for cell in [cell for cell in found.cells if cell.row.startswith("text: ") and whole]:
        assert whole is not None
        first, _, second = cell.row.removeprefix("text: ").partition(" / ")
        if cell.column == SECONDS:
            checks.append(compare(cell, same(whole), kind="cross-table", note=f"{WHOLE} of the table"))
        elif cell.column == "ratio":
            ends = [found.find(SECONDS, lower.get(name.lower(), "")) for name in (first, second)]
            if ends[0] and ends[1]:
                made = quotient(same(ends[0]), same(ends[1]))
                checks.append(compare(cell, made, kind="ratio", note=f"{ends[0].text} / {ends[1].text} s"))
        elif cell.column == "GPU-hours":
            checks += _gpu_hours(cell, whole)
    return checks


def _gpu_hours(cell: Cell, whole: Cell) -> list[Check]:
    """Iterations x seconds x the whole number of GPUs that comes nearest."""
    stated = [one for one in cells() if (one.table, one.row) == ("training_config", "iterations")]
    if not stated:
        return []
    hours = Fraction(stated[0].value * whole.value) / 3600
    gpus = max(1, round(Fraction(cell.value) / hours))
    made = combine([whole], [Fraction(stated[0].value) / 3600 * gpus])
    note = f"{stated[0].text} iterations x {whole.text} s x {gpus} GPUs, the nearest whole number of them"
    return [compare(cell, made, kind="ratio", note=note)]


def corpus_checks() -> list[Check]:
    """Shares, sums and sizes of the corpus that cannot all hold, or do."""
    checks = []
    for found in sheets("corpus"):
        shares = [cell for cell in found.cells if cell.row.endswith(" %")]
        if shares:
            checks.append(_hundred(shares))
        checks += _identities(found)
    return checks


def _hundred(shares: Sequence[Cell]) -> Check:
    """Shares against 100 percent, which is not rounded itself; the sum stands in the place of the printed number."""
    made = combine(shares, [1] * len(shares))
    inside = abs(made.value - 100) <= made.slack
    return Check(
        table=shares[0].table,
        cell=" + ".join(cell.row for cell in shares),
        kind="sum",
        printed="100",
        recomputed=str(int(made.value)),
        status="exact" if made.value == 100 else "within rounding" if inside else "inconsistent",
        note="shares of the whole",
    )


def _identities(found: Sheet) -> list[Check]:
    """Counts that the paper states as sums and differences of others, and one that two tables print."""
    checks = []
    for total, parts, weights in (
        ("hybrid math rows", ("hybrid Putnam rows", "hybrid AIME-history rows"), (1, 1)),
        ("hybrid total rows", ("documents", "hybrid math rows"), (1, 1)),
        ("SFT samples scanned", ("SFT mixture samples", "SFT samples below length floor"), (1, -1)),
    ):
        whole = found.find("value", total)
        terms = [cell for part in parts if (cell := found.find("value", part))]
        if whole and len(terms) == len(parts):
            # Counts of things are not rounded.
            made = Recomputed(value=combine(terms, weights).value, slack=Fraction(0))
            note = f"{terms[0].row} {terms[0].text} {'+' if weights[1] > 0 else '-'} {terms[1].row} {terms[1].text}"
            checks.append(compare(whole, made, kind="sum", note=note))
    own = found.find("value", "documents")
    other = [cell for cell in cells() if (cell.table, cell.row) == ("training_config", "corpus documents")]
    if own and other:
        checks.append(compare(own, same(other[0]), kind="cross-table", note="configuration table"))
    return checks


def _sum(cell: Cell, parts: Sequence[Cell]) -> Check:
    return compare(cell, combine(parts, [1] * len(parts)), kind="sum", note=f"sum of {len(parts)} cells")
