"""Writes docs/paper-inconsistencies.md: the paper's numbers recomputed from each other, and where they disagree.

Run `python tests/bench/paper/inconsistencies.py > docs/paper-inconsistencies.md`; `--all` lists exact numbers too.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cache, reduce
from operator import add

from across import OWN, across_checks, column, seed_matches, sheet
from feasible import (
    Column,
    best_row_fits,
    borrowed,
    columns,
    feasibility_checks,
    paper_cell,
    questions,
    responses,
    split_cells,
)
from recompute import Check, Status
from tables import table_checks

from infuser_core.report.content import Report, Section, Table, table
from infuser_core.report.page import markdown
from infuser_core.report.paper_numbers import AVERAGE, Cell, accuracy_sheets, cells, is_benchmark
from infuser_core.statistics.averages import half_up, mean_of

SOURCE = "tables and prose of the INFUSER paper; values and decimals as printed"
APART = ("cross-table", "derived", "feasibility")
"""Kinds that are counted by themselves: their numbers come from several tables, or from outside the paper's tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Checks of one table, or of one kind that spans tables."""

    group: str
    """Table, or kind."""
    exact: int
    """Reproduced to the printed digit."""
    rounding: int
    """Off by no more than the rounding of the printed inputs allows."""
    inconsistent: int
    """Cannot hold together with the numbers they follow from."""


@cache
def paper_check() -> tuple[Check, ...]:
    """Every number of the paper's tables and prose that follows from others, recomputed."""
    return (*table_checks(), *across_checks(), *feasibility_checks())


def group_of(check: Check) -> str:
    """The group that a check is counted in."""
    return check.kind if check.kind in APART else check.table


def counts(checks: Sequence[Check]) -> list[GroupCount]:
    """Numbers of checks by group and status, groups in order of appearance."""
    groups: dict[str, list[str]] = {}
    for check in checks:
        groups.setdefault(group_of(check), []).append(check.status)
    return [
        GroupCount(
            group=group,
            exact=found.count(Status.EXACT),
            rounding=found.count(Status.ROUNDING),
            inconsistent=found.count(Status.INCONSISTENT),
        )
        for group, found in groups.items()
    ]


@cache
def findings() -> tuple[str, ...]:
    """What the checks say together, one sentence each; every number is computed."""
    return (*_seed_findings(), *_run_findings(), *_row_findings(), *_rounding_findings(), _uncovered())


def _seed_findings() -> list[str]:
    """Columns of a single seed that stand beside single runs of other methods."""
    lines = []
    for match in seed_matches():
        lines.append(
            f"{match.table} table, {match.anchor}: the column {match.column} is {match.seed} of the seed table "
            f"(category averages differ by at most {half_up(match.distance)})"
        )
        if match.column == OWN:
            lines += _against_the_mean(match.table, match.anchor, match.column)
    return lines


def _against_the_mean(table: str, anchor: str, name: str) -> list[str]:
    """Columns that a single seed beats and the mean over seeds does not."""
    found = sheet(table, anchor)
    assert found is not None
    own, means = column(table, anchor, name), column("main", anchor, OWN)
    lines = []
    for row in (row for row in found.rows if row.startswith(AVERAGE)):
        over = [
            f"{cell.column} {cell.text}"
            for cell in found.cells
            if cell.row == row and means[row].value < cell.value < own[row].value
        ]
        if over:
            lines.append(
                f"{table} table, {anchor}, {row.removeprefix(AVERAGE)}: {', '.join(over)} lies below that seed "
                f"({own[row].text}) but above the mean of the seeds ({means[row].text})"
            )
    return lines


def _run_findings() -> list[str]:
    """Columns that are no single run."""
    lines = []
    for found in columns():
        if found.runs == 1 and 2 * len(found.misses) > len(found.cells):
            three = Column(table=found.table, anchor=found.anchor, name=found.name, cells=found.cells, runs=3)
            lines.append(
                f"{found.table} table, {found.anchor}: {len(found.misses)} of {len(found.cells)} cells of the column "
                f"{found.name} are no single run's; as a mean of 3 runs {len(three.misses)} miss"
            )
    means = [found for found in columns() if found.runs > 1]
    if means:
        missing = sum(len(found.misses) for found in means)
        lines.append(
            f"{missing} of {sum(len(found.cells) for found in means)} cells that are means over seeds are no multiple "
            "of 1 / (runs x questions x samples): probably means of rounded cells"
        )
    other = [
        f"{found.table} {found.anchor} {name}"
        for found in accuracy_sheets()
        for name in found.columns
        if all(cell.digits == 2 for cell in _benchmarks(found.cells, name)) and borrowed(_benchmarks(found.cells, name))
    ]
    return [*lines, f"printed with one decimal, so taken over from elsewhere and not tested: {', '.join(other)}"]


def _benchmarks(given: Sequence[Cell], name: str) -> list[Cell]:
    return [cell for cell in given if cell.column == name and is_benchmark(cell.row)]


def _row_findings() -> list[str]:
    """Questions per benchmark that the distinct single-run cells are multiples of."""
    lines = []
    for row in questions():
        first, second = best_row_fits(row, best=2)
        lines.append(
            f"{row}: {first.questions} questions explain {first.fits} of {first.cells} distinct single-run cells; "
            f"next {second.questions}: {second.fits}"
        )
    return lines


def _rounding_findings() -> list[str]:
    """Which rounding the printed averages and cells follow."""
    averages = _distinct_averages()
    half = sum(half_up(mean_of(cells)) == shown for cells, shown in averages)
    # Added one after the other: from Python 3.12 on `sum` corrects its rounding.
    plain = sum(f"{reduce(add, map(float, cells)) / len(cells):.2f}" == str(shown) for cells, shown in averages)
    ties = _ties()
    listed = [f"{count}/{total} prints {shown}" for count, total, shown in ties]
    binary = sum(str(paper_cell(count, total).quantize(Decimal("0.01"))) == shown for count, total, shown in ties)
    return [
        f"{half} of {len(averages)} distinct category averages of single runs are half-up means of the printed cells, "
        f"{plain} are means in binary floating point",
        f"{len(ties)} distinct cells lie halfway between two decimals, {binary} of them print as shares rounded to 4 "
        f"digits in binary floating point do: {', '.join(listed)}",
    ]


def _uncovered() -> str:
    """Tables in which nothing follows from other printed numbers."""
    checked = {check.table for check in paper_check()}
    free = [name for name in dict.fromkeys(cell.table for cell in cells()) if name not in {*checked, "claims"}]
    return f"tables whose numbers follow from no others that are printed, so without a check: {', '.join(free)}"


def _distinct_averages() -> list[tuple[tuple[Decimal, ...], Decimal]]:
    """Cells and printed average of each category of each single-run column, repeated ones once."""
    found: dict[tuple[tuple[Decimal, ...], Decimal], None] = {}
    for whole in accuracy_sheets():
        for name in whole.columns:
            for category, rows in whole.categories().items():
                shown = whole.find(name, AVERAGE + category)
                parts = [cell for row in rows if (cell := whole.find(name, row))]
                alone = shown and shown.digits == 2 and not shown.std and not borrowed(_benchmarks(whole.cells, name))
                if shown and alone and len(parts) == len(rows):
                    found[(tuple(cell.value for cell in parts), shown.value)] = None
    return list(found)


def _ties() -> list[tuple[int, int, str]]:
    """Distinct single-run cells count/total whose fifth digit is an exact 5: (count, total, as printed)."""
    tested = [(cell, responses(cell.row)) for one in columns() if one.runs == 1 for cell in one.cells]
    tested += [(cell, size) for cell, size in split_cells()]
    return sorted({(count, size, cell.text) for cell, size in tested if (count := _tie(cell.value, size)) is not None})


def _tie(value: Decimal, total: int) -> int | None:
    """The count beside the printed value that lies exactly halfway between two decimals of it."""
    near = round(value * total / 100)
    halves = (count for count in (near - 1, near, near + 1) if count * 20_000 % (2 * total) == total)
    return next((count for count in halves if abs(Decimal(count * 100) / total - value) <= Decimal("0.005")), None)


def page(*, everything: bool = False) -> str:
    """Counts by table, the numbers that are not reproduced (or all), and the findings, as Markdown."""
    checks = paper_check()
    by_group = [asdict(count) for count in counts(checks)]
    exact, rounding, not_so = (sum(check.status == status for check in checks) for status in Status)
    said = [
        "Averages, gains, deviations and sums in the INFUSER paper follow from other numbers that it prints, and an "
        "accuracy has to be a number of correct responses over a number of responses. A number is exact when it is "
        "reproduced to the printed digit, within rounding when the rounding of the printed inputs can explain it, and "
        "inconsistent otherwise. tests/bench/paper/inconsistencies.py writes this page.",
        f"{len(checks)} checks of printed numbers ({SOURCE}): {exact} exact, {rounding} within rounding, "
        f"{not_so} inconsistent.",
    ]
    sections = [Section(title="Recomputed numbers by table", lines=said, tables=[table("", by_group)])]
    for status in reversed(Status):
        mine = [check for check in checks if check.status == status and (everything or status != Status.EXACT)]
        if mine:
            sections.append(Section(title=status.capitalize(), tables=[_listing(mine)]))
    sections.append(Section(title="Findings", lines=list(findings())))
    return markdown(Report(title="The paper's numbers, recomputed", sections=sections))


def _listing(checks: Sequence[Check]) -> Table:
    names = ("table", "cell", "kind", "note", "printed", "recomputed")
    rows = [[getattr(check, name) for name in names] for check in checks]
    return Table(title="", columns=list(names), rows=rows, text_columns=4)


if __name__ == "__main__":
    sys.stdout.write(page(everything="--all" in sys.argv))
