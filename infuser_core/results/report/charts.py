"""Charts of a report: line, bar and point charts as values, rendered to SVG (in the page's theme) and PNG."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infuser_core.results.lineage.story import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from infuser_core.evaluation.statistics.correlation import RankCorrelation

Row = dict[str, Any]
"""One row of a query, by column name."""
INK = "#010203"
"""Placeholder for the text colour while matplotlib draws; replaced afterwards."""
PRINTED_INK = "#1d232b"
"""Text colour of charts on white."""
COLOURS = (
    "#2f74b5", "#c06f0a", "#1f8556", "#b03f80", "#6f5fc9", "#8a7610", "#26889e", "#c04a3a", "#6f757e", "#557f28",
    "#94603a", "#4a5fc4",
)  # fmt: skip
"""Colours of lines and bars; the page's dark theme has a lighter one for each."""
WIDTH, PLOT, BELOW, LEGEND_ROW = 7.2, 2.6, 0.52, 0.2
"""Width, height of the plot, room for the lower labels, height of a row of the legend; inches."""
LEFT = 0.11
"""Space for the labels on the left, as a share of the width."""
ROW_CHARS = 88
"""Characters that fit into a row of the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """Data of one line, or of one bar in every group."""

    label: str
    x: Sequence[float]
    """Positions on the horizontal axis, such as iterations."""
    y: Sequence[float]
    low: Sequence[float] = ()
    """Lower ends of the intervals; empty for none."""
    high: Sequence[float] = ()
    """Upper ends of the intervals; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart before it is rendered; its numbers are also in a table of its section."""

    title: str
    """Caption, which is also the alternative text for screen readers."""
    name: str
    """File name and prefix of the ids in the SVG; unique in the report."""
    draw: "Callable[[Axes], None]"
    """Draws the data on the axes."""
    xlabel: str
    """Text below the horizontal axis."""
    label: str
    """Text along the vertical axis."""
    share: bool = False
    """Whether values are shares of 1, shown as percentages."""
    labels: tuple[str, ...] = ()
    """Legend entries; empty for no legend."""
    whole: bool = True
    """Whether the horizontal axis has whole numbers."""
    ticks: tuple[float, ...] = ()
    """Marks of the horizontal axis; empty for round numbers."""
    below: float = BELOW
    """Space for the labels below the axis, inches."""


def series_of(
    label: str, rows: Sequence[Row], y: str, *, x: str = "iteration", low: str = "", high: str = ""
) -> ChartSeries:
    """A chart series from columns of query results."""
    ends = [column(rows, name) if name else () for name in (low, high)]
    return ChartSeries(label=label, x=column(rows, x), y=column(rows, y), low=ends[0], high=ends[1])


def column(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of one column, 0 for a cell without a number."""
    # Round: sums over threads differ in the last bits, and charts must be reproducible.
    return [round(to_number(row[name]), 9) for row in rows]


def to_number(cell: object) -> float:
    """Convert a cell to a number; 0 if it is not one."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def shortened(label: str, longest: int = 40) -> str:
    """Shorten a legend entry; strips underscores in front, because matplotlib hides such entries."""
    short = " ".join(printable(label).split()).lstrip("_") or "unnamed"
    return short if len(short) <= longest else short[: longest - 1] + "\u2026"


def svg(figure: Figure, *, themed: bool = True) -> str:
    """Render a chart as one `<svg>` element, in the page's theme colours or, if not `themed`, in dark ink on white."""
    out = io.StringIO()
    no_dates = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _settings(figure.name):
        _draw(figure).savefig(out, format="svg", transparent=themed, metadata=no_dates)
    drawing = out.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    if not themed:
        return drawing.replace(INK, PRINTED_INK).strip() + "\n"
    drawing = drawing.replace(INK, "currentColor")
    for index, hexadecimal in enumerate(COLOURS):
        drawing = drawing.replace(hexadecimal, f"var(--c{index})")
    # Charts share one page: ids must be distinct.
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{figure.name}-", drawing).strip()


def png(figure: Figure) -> bytes:
    """Render a chart as PNG on white, 200 pixels per inch."""
    out = io.BytesIO()
    with _settings(figure.name, ink=PRINTED_INK):
        _draw(figure).savefig(out, format="png", dpi=200, metadata={"Software": None})
    return out.getvalue()


def _settings(name: str, *, ink: str = INK) -> Any:
    # Imported here: `infuser --help` and runs without a report need no plotting library.
    from matplotlib import rc_context

    # Labels can come from models: no mathtext, no TeX. Text remains text, so that no font outlines are embedded.
    plain: dict[Any, Any] = {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "text.parse_math": False,
        "text.usetex": False,
        "font.size": 9.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    inked: tuple[Any, ...] = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return rc_context({**plain, **dict.fromkeys(inked, ink)})


def _draw(figure: Figure) -> "Canvas":
    from matplotlib.figure import Figure as Canvas

    columns, rows = _legend_grid(figure.labels)
    below = figure.below + rows * LEGEND_ROW
    height = PLOT + below + 0.15
    canvas = Canvas(figsize=(WIDTH, height))
    top, bottom = 1 - 0.15 / height, below / height
    axes = canvas.add_axes((LEFT, bottom, 0.98 - LEFT, top - bottom))
    figure.draw(axes)
    axes.grid(axis="y", color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    _label_axes(axes, figure)
    if figure.labels:
        handles, entries = axes.get_legend_handles_labels()
        where: dict[str, Any] = {"bbox_to_anchor": (0.5, 0.0), "ncols": columns}
        canvas.legend(handles, entries, loc="lower center", frameon=False, fontsize=8, borderaxespad=0.2, **where)
    return canvas


def _label_axes(axes: "Axes", figure: Figure) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

    axes.set_xlabel(printable(figure.xlabel))
    axes.set_ylabel(printable(figure.label))
    if figure.ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(figure.ticks)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    if figure.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if axes.get_xlim()[1] - axes.get_xlim()[0] < 1:
            axes.set_xlim(axes.get_xlim()[0] - 0.5, axes.get_xlim()[1] + 0.5)
    if figure.share:
        low, high = axes.get_ylim()
        top = min(max(high, low + 0.2), 1.02)
        axes.set_ylim(max(min(low, top - 0.2), -0.02), top)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))


def _legend_grid(labels: Sequence[str]) -> tuple[int, int]:
    """Numbers of columns and rows of the legend below the plot."""
    if not labels:
        return 0, 0
    longest = max(len(shortened(label)) for label in labels) + 6
    columns = max(1, min(len(labels), ROW_CHARS // longest))
    return columns, math.ceil(len(labels) / columns)


STROKES, MARKERS = ("-", "--", "-.", ":"), "os^D"
"""Styles of successive lines, so that lines that coincide or are printed without colour can be told apart."""


def lines(
    title: str,
    series: Sequence[ChartSeries],
    *,
    name: str,
    label: str,
    share: bool = False,
    xlabel: str = "iteration",
    ticks: Sequence[float] = (),
) -> Figure:
    """A line chart. `ticks` are the only axis marks; the axis is logarithmic if they span a decade or keep doubling."""
    doubling = all(after == 2 * before for before, after in pairwise(ticks))
    spread = len(ticks) > 1 and min(ticks) > 0 and (max(ticks) / min(ticks) >= 10 or doubling)

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            style: dict[str, Any] = {"linestyle": STROKES[index % 4], "marker": MARKERS[index % 4]}
            axes.plot(
                one.x, one.y, color=_colour(index), label=shortened(one.label), markersize=3.5, linewidth=1.8, **style
            )
            if len(one.x) == 1 and one.low:
                # A band over a single point has no width.
                axes.vlines(one.x, one.low, one.high, color=_colour(index), linewidth=1.2)
            elif one.low:
                axes.fill_between(one.x, one.low, one.high, color=_colour(index), alpha=0.18, linewidth=0)
        if spread:
            axes.set_xscale("log")

    return Figure(
        title=title, name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=_legend(series),
        whole=not ticks,
        ticks=tuple(ticks),
    )  # fmt: skip


def _legend(series: Sequence[ChartSeries], more: str = "") -> tuple[str, ...]:
    """Entries of the legend; empty for a single entry."""
    labels = (*(one.label for one in series), *([more] if more else []))
    return labels if len(labels) > 1 else ()


def groups(
    title: str,
    names: Sequence[str],
    series: Sequence[ChartSeries],
    *,
    name: str,
    label: str,
    share: bool = False,
    xlabel: str = "",
) -> Figure:
    """A grouped bar chart: one group per name, one bar per series; `low` and `high` of a series draw whiskers."""
    width = 0.8 / max(1, len(series))
    tilted = sum(len(shortened(text, 24)) for text in names) > 80

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            places = [at - 0.4 + width * (index + 0.5) for at in one.x]
            style: dict[str, Any] = {
                "color": _colour(index),
                "error_kw": {"ecolor": INK, "elinewidth": 1},
                "capsize": 2.5,
            }
            axes.bar(places, one.y, width=width * 0.92, yerr=_whiskers(one), label=shortened(one.label), **style)
        tilt: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
        axes.set_xticks(range(len(names)), [shortened(text, 24) for text in names], **tilt)
        axes.tick_params(axis="x", length=0, labelsize=8)
        axes.set_xlim(min(-0.6, (len(names) - 3.2) / 2), max(len(names) - 0.4, (len(names) + 1.2) / 2))
        axes.axhline(0, color=INK, linewidth=0.8)

    below = 0.32 + 0.2 * bool(xlabel) + 0.5 * tilted
    return Figure(
        title=title, name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=_legend(series),
        whole=False, below=below,
    )  # fmt: skip


def _whiskers(one: ChartSeries) -> list[list[float]] | None:
    if not one.low:
        return None
    down = [max(0.0, y - low) for y, low in zip(one.y, one.low, strict=True)]
    return [down, [max(0.0, high - y) for y, high in zip(one.y, one.high, strict=True)]]


def points(
    title: str,
    series: Sequence[ChartSeries],
    *,
    name: str,
    label: str,
    xlabel: str,
    fit: tuple[float, float] | None = None,
    share: bool = False,
) -> Figure:
    """A scatter chart, one colour per series; `fit` (intercept, slope) adds the curve intercept + slope ln(x)."""
    places = [x for one in series for x in one.x]

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            axes.plot(one.x, one.y, "o", label=shortened(one.label), color=_colour(index), markersize=5, alpha=0.85)
        if fit is not None:
            span = [min(places) * (max(places) / min(places)) ** (step / 20) for step in range(21)]
            axes.plot(
                span, [fit[0] + fit[1] * math.log(x) for x in span], color=INK, linewidth=1, linestyle=":", label="fit"
            )

    labels = _legend(series, "fit" if fit is not None else "")
    return Figure(
        title=title, name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=labels, whole=False
    )


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def correlations(rows: "Sequence[RankCorrelation]") -> Figure:
    """Bar chart of the rank correlation of every predictor with every measured change, with intervals."""
    names = list(dict.fromkeys(row.predictor for row in rows))
    placed = [{**asdict(row), "place": names.index(row.predictor)} for row in rows]
    series = [
        series_of(
            target, [row for row in placed if row["target"] == target], "spearman", x="place", low="low", high="high"
        )
        for target in dict.fromkeys(row.target for row in rows)
    ]
    caption = "Rank correlation with the change by one step, 95% bootstrap"
    headings = [name.replace("_", " ") for name in names]
    return groups(caption, headings, series, name="correlations", label="Spearman's rho")
