"""A chart as a value, and its SVG and PNG: same numbers, same bytes.

In a page, ink is the text's colour and lines take their colours from the page's variables, so that both themes can be
read.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infuser_core.report.content import Row, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#010203"
"""Stands for the text colour while matplotlib draws."""
PRINTED_INK = "#1d232b"
"""Text colour of charts on white."""
COLOURS = (
    "#2f74b5", "#c06f0a", "#1f8556", "#b03f80", "#6f5fc9", "#8a7610", "#26889e", "#c04a3a", "#6f757e", "#557f28",
    "#94603a", "#4a5fc4",
)  # fmt: skip
"""Of lines and bars; the page's dark theme has a lighter one for each."""
WIDTH, PLOT, BELOW, LEGEND_ROW = 7.2, 2.6, 0.52, 0.2
"""Width, height of the plot, room for the lower labels, height of a row of the legend; inches."""
ROW_CHARS = 88
"""Characters that fit into a row of the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or one layer of bars."""

    label: str
    """Legend entry."""
    x: Sequence[float]
    """Iterations, or whatever the axis counts."""
    y: Sequence[float]
    """Values."""
    low: Sequence[float] = ()
    """Lower ends of the intervals; empty for none."""
    high: Sequence[float] = ()
    """Upper ends of the intervals; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart before it is written as text or pixels; its numbers also stand in a table of the section."""

    title: str
    """Caption, and the description for those who cannot see the chart."""
    name: str
    """Distinct in its report: file name, and start of the ids inside."""
    draw: "Callable[[Axes], None]"
    """Puts the data on the axes."""
    xlabel: str
    """Text below the horizontal axis."""
    label: str
    """Text beside the vertical axis."""
    share: bool = False
    """Values are shares of 1, written as percentages."""
    labels: tuple[str, ...] = ()
    """Legend entries; empty for no legend."""
    whole: bool = True
    """The horizontal axis counts whole things."""
    polar: bool = False
    """A radar."""
    plot: float = PLOT
    """Height of the plot, inches."""
    ticks: tuple[float, ...] = ()
    """Marks of the horizontal axis; empty for round numbers."""
    below: float = BELOW
    """Room for the lower labels, inches."""
    left: float = 0.11
    """Room for the labels on the left, share of the width."""


def series_of(
    label: str, rows: Sequence[Row], y: str, *, x: str = "iteration", low: str = "", high: str = ""
) -> Series:
    """Columns of query results as one line."""
    ends = [column(rows, name) if name else () for name in (low, high)]
    return Series(label=label, x=column(rows, x), y=column(rows, y), low=ends[0], high=ends[1])


def column(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of one column, 0 where there is none."""
    # Sums over threads differ in the last bits; charts must not.
    return [round(value(row[name]), 9) for row in rows]


def value(found: object) -> float:
    """A number, 0 where there is none."""
    return float(found) if isinstance(found, int | float) else 0.0


def shortened(label: str, longest: int = 40) -> str:
    """A short legend entry; matplotlib hides entries that start with an underscore."""
    shown = " ".join(printable(label).split()).lstrip("_") or "unnamed"
    return shown if len(shown) <= longest else shown[: longest - 1] + "\u2026"


def svg(figure: Figure, *, themed: bool = True) -> str:
    """The chart as one `<svg>` element; `themed` for a page, else with ink of its own on white."""
    out = io.StringIO()
    no_dates = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _settings(figure.name):
        _drawn(figure).savefig(out, format="svg", transparent=themed, metadata=no_dates)
    written = out.getvalue()
    written = written[written.index("<svg") :]
    if not themed:
        return written.replace(INK, PRINTED_INK).strip() + "\n"
    written = written.replace(INK, "currentColor")
    for index, hexadecimal in enumerate(COLOURS):
        written = written.replace(hexadecimal, f"var(--c{index})")
    # Charts share one page: ids must not meet.
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{figure.name}-", written).strip()


def png(figure: Figure) -> bytes:
    """The chart as pixels on white, 200 per inch."""
    out = io.BytesIO()
    with _settings(figure.name, ink=PRINTED_INK):
        _drawn(figure).savefig(out, format="png", dpi=200, metadata={"Software": None})
    return out.getvalue()


def _settings(name: str, *, ink: str = INK) -> Any:
    # Imported here: `infuser --help` and runs without a report need no plotting library.
    from matplotlib import rc_context

    # Labels come from models: no mathtext, no TeX. Text stays text, so that no font outlines are embedded.
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


def _drawn(figure: Figure) -> "Canvas":
    from matplotlib.figure import Figure as Canvas

    columns, rows = _legend_grid(figure.labels)
    below = figure.below + rows * LEGEND_ROW
    height = figure.plot + below + 0.15
    canvas = Canvas(figsize=(WIDTH, height))
    top, bottom = 1 - 0.15 / height, below / height
    if figure.polar:
        axes = canvas.add_axes((0.25, bottom, 0.5, top - bottom - 0.3 / height), projection="polar")
    else:
        axes = canvas.add_axes((figure.left, bottom, 0.98 - figure.left, top - bottom))
    figure.draw(axes)
    axes.grid(axis="both" if figure.polar else "y", color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    if not figure.polar:
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
    """Columns and rows of the legend below the plot."""
    if not labels:
        return 0, 0
    longest = max(len(shortened(label)) for label in labels) + 6
    columns = max(1, min(len(labels), ROW_CHARS // longest))
    return columns, math.ceil(len(labels) / columns)
