"""Any setting that differs between runs, with accuracy against it: learning-rate and dev-size sweeps among others."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from infuser_core.report import figures
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, text
from infuser_core.report.evaluations import MEASURED
from infuser_core.report.figures import Drawing, Series
from infuser_core.report.queries import Chosen, chosen_sql, differing, short, variants
from infuser_core.report.training import value

MOST, MOST_TICKS = 6, 8
"""Settings with a chart of their own (the table has all), and values with a mark of their own on its axis."""


def sweeps(query: Query, found: Sequence[Chosen]) -> Section:
    """Accuracy on the benchmarks against every setting that differs, mean and ends over the runs of a value."""
    title = "Settings that differ"
    leaves = differing(found)
    if not leaves:
        return Section(title=title, lines=["The runs have the same settings: runs of a sweep differ in some."])
    rows = query(f"""{chosen_sql(found)},
{MEASURED}
SELECT run, variant, benchmark, accuracy FROM measured WHERE checkpoint = 'selected' ORDER BY run, benchmark""")
    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        scores.setdefault(text(row["benchmark"]), {})[str(row["run"])] = value(row["accuracy"])
    charts: list[Figure] = []
    cells: list[list[str]] = []
    for at, leaf in enumerate(leaves):
        drawing, told = _against(leaf, found, scores, name=f"sweep-{at}")
        cells += told
        if drawing is not None and len(charts) < MOST:
            charts.append(Figure(title=f"Accuracy of the selected checkpoint against {leaf}", drawing=drawing))
    columns = ["setting", "value", "benchmark", "runs", "mean", "sd over runs"]
    lines = [] if scores else ["No final evaluation yet: the charts need one."]
    if len(leaves) > 1:
        said = f"{len(leaves)} settings differ at once: a chart of one of them mixes in the others."
        lines.append(said)
    return Section(
        title=title,
        lines=lines,
        figures=charts,
        tables=[
            _overview(found, leaves),
            *([Table(title="Accuracy by value", columns=columns, rows=cells, text_columns=3)] if cells else []),
        ],
    )


def _overview(found: Sequence[Chosen], leaves: Sequence[str]) -> Table:
    """Values by variant."""
    names = variants(found)
    cells = []
    for leaf in leaves:
        held = {name: [one.leaves.get(leaf, "-") for one in found if one.variant == name] for name in names}
        cells.append([leaf, *(", ".join(dict.fromkeys(short(v) for v in values)) for values in held.values())])
    return Table(title="Settings by variant", columns=["setting", *names], rows=cells, text_columns=1 + len(names))


def _against(
    leaf: str, found: Sequence[Chosen], scores: dict[str, dict[str, float]], *, name: str
) -> tuple[Drawing | None, list[list[str]]]:
    values = {one.run: one.leaves.get(leaf) for one in found}
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values.values())
    distinct: list[Any] = list({repr(v): v for v in values.values()}.values())
    if numeric:
        distinct.sort()
    layers, cells = [], []
    for benchmark, by_run in scores.items():
        held = [
            [by_run[run] for run, v in values.items() if repr(v) == repr(one) and run in by_run] for one in distinct
        ]
        known = [at for at, got in enumerate(held) if got]
        several = any(len(got) > 1 for got in held)
        layers.append(
            Series(
                label=benchmark,
                x=[float(distinct[at]) if numeric else at for at in known],
                y=[round(mean(held[at]), 9) for at in known],
                low=[min(held[at]) for at in known] if several else (),
                high=[max(held[at]) for at in known] if several else (),
            )
        )
        cells += [
            [
                leaf,
                short(distinct[at]),
                benchmark,
                number(len(held[at])),
                percent(mean(held[at])),
                percent(stdev(held[at])) if len(held[at]) > 1 else "-",
            ]
            for at in known
        ]
    if not any(len(one.x) > 1 for one in layers):
        return None, cells
    if numeric:
        ticks = [float(one) for one in distinct] if len(distinct) <= MOST_TICKS else []
        return figures.lines(layers, name=name, label="accuracy", share=True, xlabel=leaf, ticks=ticks), cells
    names = [short(one) for one in distinct]
    return figures.groups(names, layers, name=name, label="accuracy", share=True, xlabel=leaf), cells
