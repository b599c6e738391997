"""Charts: same numbers, same bytes. In a page, ink is the text's colour and lines take their colours from variables."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infuser_core.report.content import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the text colour while matplotlib draws."""
COLOURS = (
    "#2f74b5", "#c06f0a", "#1f8556", "#b03f80", "#6f5fc9", "#8a7610", "#26889e", "#c04a3a", "#6f757e", "#557f28",
    "#94603a", "#4a5fc4",
)  # fmt: skip
"""Of lines and bars; the page's dark theme has a lighter one for each."""
STROKES, MARKERS = ("-", "--", "-.", ":"), "os^D"
"""Of lines, one after the other: lines that coincide, or lost their colour in print, can still be told apart."""
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
class Drawing:
    """A chart before it is written as text or pixels."""

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


def lines(
    series: Sequence[Series],
    *,
    name: str,
    label: str,
    share: bool = False,
    mark: float | None = None,
    xlabel: str = "iteration",
    ticks: Sequence[float] = (),
) -> Drawing:
    """A line chart; `mark` draws a vertical line at the selected iteration.

    With `ticks` the axis has these marks alone, and is logarithmic where they span a decade or double each time.
    """
    spread = len(ticks) > 1 and min(ticks) > 0 and (max(ticks) / min(ticks) >= 10 or _doubling(ticks))

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            style: dict[str, Any] = {
                "color": colour(index),
                "linestyle": STROKES[index % 4],
                "marker": MARKERS[index % 4],
            }
            axes.plot(one.x, one.y, label=shortened(one.label), markersize=3.5, linewidth=1.8, **style)
            if len(one.x) == 1 and one.low:
                # A band over a single place has no width.
                axes.vlines(one.x, one.low, one.high, color=colour(index), linewidth=1.2)
            elif one.low:
                axes.fill_between(one.x, one.low, one.high, color=colour(index), alpha=0.18, linewidth=0)
        if spread:
            axes.set_xscale("log")
        if mark is not None:
            axes.axvline(mark, color=INK, linewidth=1, linestyle=":", label="selected")

    shown = [*(one.label for one in series), *(["selected"] if mark is not None else [])]
    labels = tuple(shown) if len(shown) > 1 else ()
    return Drawing(
        name=name,
        draw=draw,
        xlabel=xlabel,
        label=label,
        share=share,
        labels=labels,
        whole=not ticks,
        ticks=tuple(ticks),
    )


def _doubling(ticks: Sequence[float]) -> bool:
    return all(after == 2 * before for before, after in pairwise(ticks))


def bars(layers: Sequence[Series], *, name: str, label: str, share: bool = False, xlabel: str = "iteration") -> Drawing:
    """Stacked bars; every layer has the same x."""

    def draw(axes: "Axes") -> None:
        base = [0.0] * len(layers[0].x)
        for index, layer in enumerate(layers):
            hatch = "//" if index >= len(COLOURS) else None
            axes.bar(
                layer.x, layer.y, bottom=base, label=shortened(layer.label), color=colour(index), hatch=hatch, width=0.8
            )
            base = [below + value for below, value in zip(base, layer.y, strict=True)]

    labels = tuple(layer.label for layer in layers)
    return Drawing(name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=labels)


def colour(index: int) -> str:
    """Colour of the n-th line or layer."""
    return COLOURS[index % len(COLOURS)]


def shortened(label: str, longest: int = 40) -> str:
    """A short legend entry; matplotlib hides entries that start with an underscore."""
    shown = " ".join(printable(label).split()).lstrip("_") or "unnamed"
    return shown if len(shown) <= longest else shown[: longest - 1] + "\u2026"


def svg(drawing: Drawing, *, themed: bool = True) -> str:
    """The chart as one `<svg>` element; `themed` for a page, else with ink of its own on white."""
    out = io.StringIO()
    plain = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _settings(drawing.name):
        _drawn(drawing).savefig(out, format="svg", transparent=themed, metadata=plain)
    written = out.getvalue()
    written = written[written.index("<svg") :]
    if not themed:
        return written.replace(INK, "#1d232b").strip() + "\n"
    written = written.replace(INK, "currentColor")
    for index, hexadecimal in enumerate(COLOURS):
        written = written.replace(hexadecimal, f"var(--c{index})")
    # Charts share one page: ids must not meet.
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{drawing.name}-", written).strip()


def png(drawing: Drawing) -> bytes:
    """The chart as pixels on white, 200 per inch."""
    out = io.BytesIO()
    with _settings(drawing.name, ink="#1d232b"):
        _drawn(drawing).savefig(out, format="png", dpi=200, metadata={"Software": None})
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
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plain |= dict.fromkeys(inked, ink)
    return rc_context(plain)


def _drawn(drawing: Drawing) -> "Figure":
    from matplotlib.figure import Figure

    columns, rows = _legend_grid(drawing.labels)
    below = drawing.below + rows * LEGEND_ROW
    height = drawing.plot + below + 0.15
    figure = Figure(figsize=(WIDTH, height))
    top, bottom = 1 - 0.15 / height, below / height
    if drawing.polar:
        axes = figure.add_axes((0.25, bottom, 0.5, top - bottom - 0.3 / height), projection="polar")
    else:
        axes = figure.add_axes((drawing.left, bottom, 0.98 - drawing.left, top - bottom))
    drawing.draw(axes)
    axes.grid(axis="both" if drawing.polar else "y", color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    if not drawing.polar:
        _label_axes(axes, drawing)
    if drawing.labels:
        handles, entries = axes.get_legend_handles_labels()
        where: dict[str, Any] = {"bbox_to_anchor": (0.5, 0.0), "ncols": columns}
        figure.legend(handles, entries, loc="lower center", frameon=False, fontsize=8, borderaxespad=0.2, **where)
    return figure


def _label_axes(axes: "Axes", drawing: Drawing) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

    axes.set_xlabel(printable(drawing.xlabel))
    axes.set_ylabel(printable(drawing.label))
    if drawing.ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(drawing.ticks)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    if drawing.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if axes.get_xlim()[1] - axes.get_xlim()[0] < 1:
            axes.set_xlim(axes.get_xlim()[0] - 0.5, axes.get_xlim()[1] + 0.5)
    if drawing.share:
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
