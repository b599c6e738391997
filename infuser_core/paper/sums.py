"""Sums and ratios: the phases of an iteration, the quotas of the validation set, the corpus."""

from collections.abc import Sequence
from fractions import Fraction

from infuser_core.paper.check import Check, Recomputed, combine, compare, quotient, same
from infuser_core.report.paper_numbers import Cell, Sheet, cells, sheets

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
