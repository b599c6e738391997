"""Result tables in the layout of publications: benchmarks by category, averages, relative improvement, best in bold.

One table, three ways to write it: Markdown, LaTeX (booktabs), CSV. Numbers of other people's papers are marked as
reported, not reproduced.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import Literal

from infuser_core.errors import UsageError
from infuser_core.report.page import escape
from infuser_core.statistics.averages import (
    Number,
    Spread,
    category_averages,
    exactly,
    half_up,
    over_seeds,
    printed,
    relative,
)

Style = Literal["markdown", "latex", "csv"]
NOTHING = "--"
REPORTED = "reported, not reproduced"
OTHERS = "Other benchmarks"
"""Category of benchmarks that a layout does not have; averaged where there are two or more."""
AVERAGE, RELATIVE = "Average", "Relative improvement (%)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One number of a table, percent."""

    mean: Fraction
    """Mean over seeds, or the only run's number."""
    sd: float | None = None
    """Sample standard deviation over seeds; None for a single run."""
    low: float | None = None
    """Lower end of a 95% interval, where one is known."""
    high: float | None = None
    """Upper end."""
    seeds: int = 1
    """Seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One column."""

    name: str
    """Heading."""
    scores: Mapping[str, Score]
    """By row: benchmarks, and the averages and relative improvements under `average_row` and `relative_row`."""
    reported: bool
    """Numbers printed in a paper, not made by this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of a table, ready to be written."""

    label: str
    """Row heading."""
    scores: tuple[Score | None, ...]
    """One per column; None where there is no number."""
    best: frozenset[int]
    """Columns with the largest number as printed."""
    summary: bool
    """Whether the row is made of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table with its columns."""

    title: str
    """Caption."""
    methods: tuple[Method, ...]
    """Columns."""
    lines: tuple[Line, ...]
    """Rows."""
    digits: int
    """Decimals."""


def average_row(category: str) -> str:
    """Heading of a category's average."""
    return f"{AVERAGE}: {category}"


def relative_row(category: str) -> str:
    """Heading of a category's relative improvement."""
    return f"{RELATIVE}: {category}"


def method(
    name: str,
    scores: Mapping[str, Sequence[Number]],
    categories: Mapping[str, Sequence[str]],
    *,
    overall: str = "Overall",
    base: Mapping[str, Sequence[Number]] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> Method:
    """A column of our own results from percentages per seed by benchmark, in the same order of seeds.

    A category is averaged when all its benchmarks have numbers; its deviation is that of the per-seed averages. The
    relative improvement is over `base`'s unrounded averages. `intervals` are percentages by benchmark, from questions.
    """
    ends = intervals or {}
    cells = {row: _score(over_seeds(values), ends.get(row)) for row, values in scores.items() if values}
    own = category_averages(scores, categories, overall=overall)
    bases = category_averages(base or {}, categories, overall=overall)
    others = {OTHERS: others_of(scores, categories)}
    if len(others[OTHERS]) > 1:
        own += category_averages(scores, others)
        bases += category_averages(base or {}, others)
    for average in own:
        if average.spread is not None:
            cells[average_row(average.category)] = _score(average.spread, None)
    for average, under in zip(own, bases, strict=True):
        if average.spread is not None and under.spread is not None and under.spread.mean != 0:
            gain = relative(average.spread.mean, under.spread.mean)
            cells[relative_row(average.category)] = Score(mean=gain, seeds=average.spread.seeds)
    return Method(name=name, scores=cells, reported=False)


def others_of(scores: Mapping[str, object], categories: Mapping[str, Sequence[str]]) -> list[str]:
    """Benchmarks of a column that no category has."""
    known = {row for rows in categories.values() for row in rows}
    return [row for row in scores if row not in known]


def _score(spread: Spread, interval: tuple[float, float] | None) -> Score:
    low, high = interval or (None, None)
    return Score(mean=spread.mean, sd=spread.sd, low=low, high=high, seeds=spread.seeds)


def layout(
    title: str,
    methods: Sequence[Method],
    categories: Mapping[str, Sequence[str]],
    *,
    overall: str = "Overall",
    digits: int = 2,
) -> Layout:
    """Rows of all categories, each followed by its average and improvement; rows that no column has are left out.

    Raises UsageError when two columns have the same name, which nobody could tell apart.
    """
    names = [heading(one) for one in methods]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two columns are called {twice[0]}", hint="give every method its own name")
    labels: list[str] = []
    for category, rows in categories.items():
        labels += [*rows, average_row(category), relative_row(category)]
    summaries = [f(name) for name in (OTHERS, overall) for f in (average_row, relative_row)]
    known = {*labels, *summaries}
    others = [row for one in methods for row in one.scores if row not in known]
    labels += [*dict.fromkeys(others), *summaries]
    lines = [_line(label, methods, digits) for label in labels if any(label in one.scores for one in methods)]
    return Layout(title=title, methods=tuple(methods), lines=tuple(lines), digits=digits)


def _line(label: str, methods: Sequence[Method], digits: int) -> Line:
    scores = tuple(one.scores.get(label) for one in methods)
    shown: dict[int, Decimal] = {at: half_up(score.mean, digits) for at, score in enumerate(scores) if score}
    best = [at for at, value in shown.items() if value == max(shown.values())] if len(shown) > 1 else []
    return Line(
        label=label, scores=scores, best=frozenset(best), summary=label.startswith((f"{AVERAGE}: ", f"{RELATIVE}: "))
    )


def heading(one: Method) -> str:
    """A column's heading with its mark."""
    return f"{one.name} ({REPORTED})" if one.reported else one.name


def render(table: Layout, style: Style, *, intervals: bool = False) -> str:
    """The table as text. Mean, standard deviation over seeds, and on demand the interval; best numbers in bold."""
    if style == "csv":
        return _csv(table)
    return _latex(table, intervals) if style == "latex" else _markdown(table, intervals)


def _parts(score: Score, digits: int, *, intervals: bool) -> tuple[str, str, str]:
    """Mean, standard deviation and interval as printed; empty where there is none."""
    sd = "" if score.sd is None else printed(score.sd, digits)
    ends = ""
    if intervals and score.low is not None and score.high is not None:
        ends = f"[{printed(score.low, digits)}, {printed(score.high, digits)}]"
    return printed(score.mean, digits), sd, ends


def _markdown(table: Layout, intervals: bool) -> str:
    head = ["Benchmark", *(escape(heading(one)) for one in table.methods)]
    rows = [head, [":---", *("---:" for _ in table.methods)]]
    for line in table.lines:
        cells = [
            _markdown_cell(score, at in line.best, table.digits, intervals) for at, score in enumerate(line.scores)
        ]
        rows.append([f"*{escape(line.label)}*" if line.summary else escape(line.label), *cells])
    return "\n".join([f"**{escape(table.title)}**", "", *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _markdown_cell(score: Score | None, best: bool, digits: int, intervals: bool) -> str:
    if score is None:
        return NOTHING
    mean, sd, ends = _parts(score, digits, intervals=intervals)
    shown = f"**{mean}**" if best else mean
    return " ".join(filter(None, [f"{shown} ± {sd}" if sd else shown, escape(ends)]))


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def _latex(table: Layout, intervals: bool) -> str:
    body: list[str] = []
    summed = False
    for line in table.lines:
        cells = [_latex_cell(score, at in line.best, table.digits, intervals) for at, score in enumerate(line.scores)]
        label = latex_escape(line.label)
        if body and summed and not line.summary:
            body.append(r"\midrule")
        summed = line.summary
        body.append(" & ".join([rf"\textit{{{label}}}" if line.summary else label, *cells]) + r" \\")
    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{latex_escape(table.title)}}}",
            # One line with its contents: an end of line inside the box would be a space.
            rf"\resizebox{{\linewidth}}{{!}}{{\begin{{tabular}}{{l{'r' * len(table.methods)}}}",
            *(r"\toprule", *_latex_head(table.methods), r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _latex_head(methods: Sequence[Method]) -> list[str]:
    """Names of the columns; above them, over each stretch of reported columns, the mark once."""
    names = " & ".join(["Benchmark", *(latex_escape(one.name) for one in methods)]) + r" \\"
    above, rules, start = [""], [], 2
    for reported, stretch in groupby(methods, key=lambda one: one.reported):
        width = len(list(stretch))
        above += [rf"\multicolumn{{{width}}}{{c}}{{{REPORTED}}}"] if reported else [""] * width
        rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if reported else []
        start += width
    return [" & ".join(above) + r" \\", " ".join(rules), names] if rules else [names]


def _latex_cell(score: Score | None, best: bool, digits: int, intervals: bool) -> str:
    if score is None:
        return NOTHING
    mean, sd, ends = _parts(score, digits, intervals=intervals)
    shown = rf"\textbf{{{mean}}}" if best else mean
    return " ".join(filter(None, [rf"{shown} $\pm$ {sd}" if sd else shown, ends]))


def _csv(table: Layout) -> str:
    """One line per number, unrounded beside printed: for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "method", "source", "printed", "mean", "sd", "low", "high", "seeds", "best"])
    for line in table.lines:
        for at, (one, score) in enumerate(zip(table.methods, line.scores, strict=True)):
            if score is not None:
                source = REPORTED if one.reported else "measured"
                ends = ["" if value is None else repr(float(value)) for value in (score.sd, score.low, score.high)]
                mean = [printed(score.mean, table.digits), repr(float(exactly(score.mean)))]
                writer.writerow([line.label, one.name, source, *mean, *ends, score.seeds, int(at in line.best)])
    return out.getvalue()
