"""The same number printed in two tables, and single runs that stand where a mean over seeds is expected."""

from dataclasses import dataclass
from fractions import Fraction

from recompute import Check, combine, compare, same, sample_sd
from tables import BASE

from infuser_core.report.paper_numbers import AVERAGE, RELATIVE, Cell, Sheet, accuracy_sheets, cells, sheets

Column = dict[str, Cell]
"""Cells of one method by row, averages under the names of the accuracy tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMatch:
    """A column of an accuracy table that is a single seed of another table."""

    table: str
    """Table with the column."""
    anchor: str
    """Anchor model."""
    column: str
    """The column."""
    seed: str
    """Row of the seed table that it equals best."""
    distance: Fraction
    """Largest difference between the two."""


def across_checks() -> list[Check]:
    """All of this module's checks."""
    return [*base_checks(), *headline_checks(), *equal_settings_checks(), *seed_checks(), *third_seed_checks()]


def sheet(table: str, anchor: str) -> Sheet | None:
    """One table for one anchor, or None."""
    return next((found for found in sheets(table) if found.anchor == anchor), None)


def column(table: str, anchor: str, name: str) -> Column:
    """A method's cells; tables that have categories as columns are turned round."""
    found = sheet(table, anchor)
    if found is None:
        return {}
    if name in found.columns:
        return {cell.row: cell for cell in found.cells if cell.column == name}
    categories = _category_names(anchor)
    turned = [cell for cell in found.cells if cell.row == name]
    return {AVERAGE + cell.column if cell.column in categories else cell.column: cell for cell in turned}


def _category_names(anchor: str) -> set[str]:
    return {name for found in accuracy_sheets() if found.anchor == anchor for name in found.categories()}


def base_checks() -> list[Check]:
    """Every table prints the same base model: each later cell against the first that prints it."""
    checks = []
    for anchor in dict.fromkeys(found.anchor for found in accuracy_sheets()):
        seen: Column = {}
        for found in (one for one in sheets() if one.anchor == anchor):
            mine = column(found.table, anchor, BASE) if found.table != "dev_leakage" else {}
            checks += _checks(mine, seen)
            seen = mine | seen
    return checks


def headline_checks() -> list[Check]:
    """The headline figure repeats cells of the main table."""
    checks = []
    for found in sheets("headline"):
        for name in found.columns:
            if name != BASE:
                checks += _checks(column("headline", found.anchor, name), column("main", found.anchor, name))
    return checks


def equal_settings_checks() -> list[Check]:
    """Columns of different tables with equal settings: a generator rate of 0 is a fixed generator, and the tables of
    the dev size and of the generator rate meet at the configured size and rate."""
    checks = []
    size = _configured("dev set size")
    for found in sheets("glr"):
        anchor = found.anchor
        checks += _checks(column("glr", anchor, "0"), column("ablation", anchor, "Fix-gen"))
        rate = _configured(f"generator lr ({anchor})")
        checks += _checks(column("dev_size", anchor, f"dev {size}"), column("glr", anchor, rate))
    for found in sheets("hybrid"):
        for row in found.rows:
            if row.endswith(": average") and matches(found, row):
                checks += _checks(column("hybrid", found.anchor, row), column("main", found.anchor, OWN))
    return checks


OWN = "INFUSER"


def matches(found: Sheet, row: str) -> bool:
    """Whether an average of the seed table is nearer to the main table's method than any other average is."""
    main = column("main", found.anchor, OWN)
    averages = [name for name in found.rows if name.endswith(": average")]
    return row == min(averages, key=lambda name: _distance(column("hybrid", found.anchor, name), main))


def seed_matches() -> list[SeedMatch]:
    """Columns of single runs of the method, each with the seed that it equals best in its category averages.

    These are columns named like the method without a printed deviation, and the sweep's column at the configured rate.
    """
    found = []
    for seeds in sheets("hybrid"):
        rows = [row for row in seeds.rows if ": seed " in row]
        for table in accuracy_sheets():
            names = [name for name in (OWN, _configured(f"generator lr ({seeds.anchor})")) if name in table.columns]
            for name in names if table.anchor == seeds.anchor else []:
                mine = column(table.table, table.anchor, name)
                if rows and not any(cell.std for cell in mine.values()):
                    best = min(rows, key=lambda row: _distance(column("hybrid", seeds.anchor, row), mine))
                    far = _distance(column("hybrid", seeds.anchor, best), mine)
                    found.append(
                        SeedMatch(table=table.table, anchor=table.anchor, column=name, seed=best, distance=far)
                    )
    return found


def seed_checks() -> list[Check]:
    """Category averages of such columns against the seed."""
    return [
        check
        for match in seed_matches()
        for check in _checks(
            column("hybrid", match.anchor, match.seed), column(match.table, match.anchor, match.column)
        )
    ]


def third_seed_checks() -> list[Check]:
    """With a mean of three and two of its seeds printed, the third is 3 mean - both: it must give the printed
    deviations, and the averages that the seed table prints for it."""
    checks = []
    for seeds in sheets("hybrid"):
        known = [match for match in seed_matches() if match.anchor == seeds.anchor]
        means = column("main", seeds.anchor, OWN)
        rows = [row for row in seeds.rows if ": seed " in row and row.split(":")[0] in known[0].seed] if known else []
        rest = [row for row in rows if row not in {match.seed for match in known}]
        if len(known) != 2 or len(rows) != 3 or len(rest) != 1:
            continue
        runs = [column(match.table, match.anchor, match.column) for match in known]
        printed = column("hybrid", seeds.anchor, rest[0])
        for row, cell in means.items():
            if row.startswith(RELATIVE) or not all(row in run for run in runs):
                continue
            third = combine([cell, *(run[row] for run in runs)], [3, -1, -1])
            note = f"{rest[0]} = 3 x {cell.text} - " + " - ".join(run[row].text for run in runs)
            if row in printed:
                checks.append(compare(printed[row], third, kind="derived", note=note))
            if cell.std:
                made = sample_sd([third, *(same(run[row]) for run in runs)])
                checks.append(compare(cell, made, kind="derived", note=note, deviation=True))
    return checks


def _checks(later: Column, first: Column) -> list[Check]:
    """Cells that both print, deviations too."""
    checks = []
    for row, cell in later.items():
        other = first.get(row)
        if other is None or row.startswith(RELATIVE):
            continue
        note = f"{other.table} table, {other.column}" + (f", {other.row}" if other.row != cell.row else "")
        checks.append(compare(cell, same(other), kind="cross-table", note=note))
        if cell.std and other.std:
            made = same(other, deviation=True)
            checks.append(compare(cell, made, kind="cross-table", note=note, deviation=True))
    return checks


def _distance(first: Column, second: Column) -> Fraction:
    """Largest difference over the rows that both print; without any, larger than every percentage."""
    common = [abs(Fraction(first[row].value) - Fraction(second[row].value)) for row in first if row in second]
    return max(common, default=Fraction(1000))


def _configured(row: str) -> str:
    """A setting of the method, as printed; empty where the table has none."""
    found = [cell for cell in cells() if (cell.table, cell.column, cell.row) == ("training_config", OWN, row)]
    return found[0].text if found else ""
