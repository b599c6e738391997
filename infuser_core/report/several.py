"""One page for several runs: every figure with its table and its SQL, or the line that says what would fill it."""

from collections.abc import Callable, Sequence

from infuser_core.report import budget, comparison, evaluations, others, training
from infuser_core.report.comparison import Contrast
from infuser_core.report.content import Query, Report, Section, Table, number, text
from infuser_core.report.others import Answered
from infuser_core.report.queries import Chosen, variants, with_sql
from infuser_core.report.settings_sweep import sweeps

Builder = Callable[[Query, Sequence[Chosen]], Section]
OF_EVERY: tuple[Builder, ...] = (
    evaluations.categories,
    training.frozen,
    training.deviations,
    budget.shares,
    others.length_accuracy,
    evaluations.pass_at_k,
    evaluations.leakage_split,
)
"""Sections that a single run has beside its own."""
OF_SEVERAL: tuple[Builder, ...] = (
    training.validation,
    evaluations.benchmarks,
    evaluations.categories,
    sweeps,
    training.influence,
    training.frozen,
    training.deviations,
    budget.shares,
    others.validity,
    others.response_length,
    others.length_accuracy,
    evaluations.pass_at_k,
    evaluations.leakage_split,
    others.durations,
    others.coverage,
)
"""Sections of a page of several runs, in reading order, before and after those that take more than runs."""
DIFFERENCES_SAID = (
    "Paired by question at the selected checkpoints. The interval over questions holds the runs fixed, the one over "
    "seeds holds the questions fixed; the validation set chose the checkpoints, so its rows are no test. What is "
    "detectable is the smallest difference that this many questions show with 80% power at 5%."
)


def several(query: Query, found: Sequence[Chosen], *, answered: Sequence[Answered] = (), heading: str = "") -> Report:
    """All sections in reading order."""
    sections = [_runs(found)]
    for build in OF_SEVERAL:
        sections.append(of(query, found, build))
        if build is evaluations.benchmarks:
            sections.append(with_sql(query, lambda asked: differences(asked, found)))
        elif build is training.influence:
            sections += shares(query, found)
        elif build is others.validity:
            sections.append(with_sql(query, lambda asked: others.strong_weak(asked, answered)))
    count = len(variants(found))
    title = heading or f"INFUSER: {len(found)} runs, {count} variant{'s' * (count != 1)}"
    return Report(title=title, sections=sections)


def of(query: Query, found: Sequence[Chosen], build: Builder) -> Section:
    """One section with its statements."""
    return with_sql(query, lambda asked: build(asked, found))


def shares(query: Query, found: Sequence[Chosen]) -> list[Section]:
    """Topics and textbooks of the questions."""
    return [
        with_sql(query, lambda asked: training.shares(asked, found, by="topic")),
        with_sql(query, lambda asked: training.shares(asked, found, by="source")),
    ]


def _runs(found: Sequence[Chosen]) -> Section:
    cells = [[one.run, one.variant, str(one.seed), text(one.anchor)] for one in found]
    columns = ["run", "variant", "seed", "anchor"]
    said = "Runs of one variant differ in their seed alone; figures show variants."
    return Section(
        title="Runs", lines=[said], tables=[Table(title="", columns=columns, rows=cells, text_columns=4)]
    )  # fmt: skip


def differences(query: Query, found: Sequence[Chosen]) -> Section:
    """Variant against variant, on every benchmark that both have."""
    groups = {name: [one.run for one in found if one.variant == name] for name in variants(found)}
    rows = comparison.contrasts(query, groups, seeds={one.run: one.seed for one in found})
    if not rows:
        said = "Nothing to compare: two finished runs with a common benchmark are needed."
        return Section(title="Differences", lines=[said])
    columns = ["benchmark", "difference", "by, points", "95% over questions", "detectable", "questions", "seeds"]
    table = Table(
        title="Differences between variants",
        columns=[*columns, "95% over seeds"],
        rows=[_difference(row) for row in rows],
        text_columns=2,
    )
    return Section(title="Differences", lines=[DIFFERENCES_SAID], tables=[table])


def _difference(row: Contrast) -> list[str]:
    exam = row.benchmark if row.phase == "evaluate" else f"{row.benchmark} (chose the checkpoint)"
    return [
        exam,
        f"{row.variant} minus {row.against}",
        _points(row.difference),
        _ends(row.low, row.high),
        "-" if row.detectable is None else f"{100 * row.detectable:.1f}",
        number(row.questions),
        number(row.seeds),
        _ends(row.seed_low, row.seed_high),
    ]


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}"


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{_points(low)} to {_points(high)}"
