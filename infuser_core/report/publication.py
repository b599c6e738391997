"""Result tables as publications print them, in Markdown, LaTeX (booktabs) and CSV; others' numbers are marked."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from infuser_core.errors import UsageError
from infuser_core.report.page import escape, grid
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
OVERALL, OTHERS = "Overall", "Other benchmarks"
"""All benchmarks of a layout; and those that it does not have, averaged where there are two or more."""
AVERAGE, RELATIVE = "Average: ", "Relative improvement (%): "
"""Rows made of others begin so, and their category follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One column."""

    name: str
    """Heading."""
    scores: Mapping[str, Spread]
    """Percentages by row: benchmarks, averages, relative improvements; intervals, where there are any, over questions.
    """
    reported: bool = False
    """Numbers printed in a paper, not made by this project."""

    @property
    def heading(self) -> str:
        """The name with its mark."""
        return f"{self.name} ({REPORTED})" if self.reported else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table with its columns."""

    title: str
    """Caption."""
    methods: tuple[Method, ...]
    """Columns."""
    rows: tuple[str, ...]
    """Row headings."""
    digits: int = 2
    """Decimals."""
    ranked: bool = True
    """Whether a larger number is a better one, so that each row's largest are bold."""

    def lines(self) -> Iterator[tuple[str, list[Spread | None], set[int]]]:
        """Per row its heading, a score for each column, and the columns with the largest number as printed."""
        for row in self.rows:
            scores = [one.scores.get(row) for one in self.methods]
            shown = {at: half_up(score.mean, self.digits) for at, score in enumerate(scores) if score}
            several = self.ranked and len(shown) > 1
            yield row, scores, {at for at, value in shown.items() if several and value == max(shown.values())}


def method(
    name: str,
    scores: Mapping[str, Sequence[Number]],
    categories: Mapping[str, Sequence[str]],
    *,
    base: Mapping[str, Sequence[Number]] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> Method:
    """A column of our own results from percentages per seed by benchmark, in the same order of seeds.

    A category is averaged when all its benchmarks have numbers; its deviation is that of the per-seed averages. The
    relative improvement is over `base`'s unrounded averages. `intervals` are percentages by benchmark, from questions.
    """
    known = [row for rows in categories.values() for row in rows]
    others = [row for row in scores if row not in known]
    groups = {**categories, OVERALL: known, **({OTHERS: others} if len(others) > 1 else {})}
    cells = {}
    for row, each in scores.items():
        if each:
            low, high = (intervals or {}).get(row, (None, None))
            cells[row] = replace(over_seeds(each), low=low, high=high)
    under = category_averages(base or {}, groups)
    for category, spread in category_averages(scores, groups).items():
        cells[AVERAGE + category] = replace(spread, low=None, high=None)
        if category in under and under[category].mean != 0:
            gain = relative(spread.mean, under[category].mean)
            cells[RELATIVE + category] = Spread(mean=gain, seeds=spread.seeds)
    return Method(name=name, scores=cells)


def layout(title: str, methods: Sequence[Method], categories: Mapping[str, Sequence[str]]) -> Layout:
    """Rows of all categories, each followed by its average and improvement; rows that no column has are left out.

    Raises UsageError when two columns have the same name, which nobody could tell apart.
    """
    names = [one.heading for one in methods]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two columns are called {twice[0]}", hint="give every method its own name")
    held = dict.fromkeys(row for one in methods for row in one.scores)
    rows = [row for name, known in categories.items() for row in (*known, AVERAGE + name, RELATIVE + name)]
    last = [mark + name for name in (OTHERS, OVERALL) for mark in (AVERAGE, RELATIVE)]
    ordered = [*rows, *(row for row in held if row not in (*rows, *last)), *last]
    return Layout(title=title, methods=tuple(methods), rows=tuple(row for row in ordered if row in held))


def render(table: Layout, style: Style, *, intervals: bool = False) -> str:
    """The table as text. Mean, standard deviation over seeds, and on demand the interval; best numbers in bold."""
    if style == "csv":
        return _csv(table)
    return _latex(table, intervals) if style == "latex" else _markdown(table, intervals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Markup:
    """Marks of a way to write."""

    escape: Callable[[str], str]
    """Makes a text that stands as it is."""
    bold: str
    """Of the best numbers."""
    italic: str
    """Of rows made of others."""
    deviation: str
    """Between a mean and its deviation."""


_LATEX_SIGNS = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    }
)  # fmt: skip


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return " ".join(text.split()).translate(_LATEX_SIGNS)


_MARKDOWN = _Markup(escape=escape, bold="**{}**", italic="*{}*", deviation=" ± ")
_LATEX = _Markup(escape=latex_escape, bold=r"\textbf{{{}}}", italic=r"\textit{{{}}}", deviation=r" $\pm$ ")


def _cells(table: Layout, markup: _Markup, intervals: bool) -> Iterator[tuple[bool, list[str]]]:
    """Per row whether it is made of others, and its heading and numbers as they are written."""
    for row, scores, best in table.lines():
        summary = row.startswith((AVERAGE, RELATIVE)) and table.ranked
        label = markup.escape(row)
        cells = [_cell(score, table.digits, markup, intervals, at in best) for at, score in enumerate(scores)]
        yield summary, [markup.italic.format(label) if summary else label, *cells]


def _cell(score: Spread | None, digits: int, markup: _Markup, intervals: bool, best: bool) -> str:
    if score is None:
        return NOTHING
    mean = printed(score.mean, digits)
    shown = markup.bold.format(mean) if best else mean
    if score.sd is not None:
        shown += markup.deviation + printed(score.sd, digits)
    if intervals and score.low is not None and score.high is not None:
        shown += " " + markup.escape(f"[{printed(score.low, digits)}, {printed(score.high, digits)}]")
    return shown


def _markdown(table: Layout, intervals: bool) -> str:
    lines = grid(
        ["Benchmark", *(escape(one.heading) for one in table.methods)],
        [row for _, row in _cells(table, _MARKDOWN, intervals)],
    )
    return "\n".join([f"**{escape(table.title)}**", "", *lines]) + "\n"


def _latex(table: Layout, intervals: bool) -> str:
    body: list[str] = []
    for summary, lines in groupby(_cells(table, _LATEX, intervals), key=lambda line: line[0]):
        # A rule stands between a category's last row and the next category.
        body += [r"\midrule"] if body and not summary else []
        body += [" & ".join(cells) + r" \\" for _, cells in lines]
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


def _csv(table: Layout) -> str:
    """One line per number, unrounded beside printed: for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "method", "source", "printed", "mean", "sd", "low", "high", "seeds", "best"])
    for row, scores, best in table.lines():
        for at, (one, score) in enumerate(zip(table.methods, scores, strict=True)):
            if score is not None:
                source = REPORTED if one.reported else "measured"
                ends = ["" if value is None else repr(float(value)) for value in (score.sd, score.low, score.high)]
                mean = [printed(score.mean, table.digits), repr(float(exactly(score.mean)))]
                writer.writerow([row, one.name, source, *mean, *ends, score.seeds, int(at in best)])
    return out.getvalue()
