"""Charts for reports: lines, bars, points and radars as SVG or PNG; same numbers, same bytes."""

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


if TYPE_CHECKING:
    from matplotlib.axes import Axes


def groups(
    names: Sequence[str], series: Sequence[Series], *, name: str, label: str, share: bool = False, xlabel: str = ""
) -> Drawing:
    """Bars side by side, one group per name, one bar per series; `low` and `high` draw whiskers."""
    width = 0.8 / max(1, len(series))
    tilted = sum(len(shortened(text, 24)) for text in names) > 80

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            places = [at - 0.4 + width * (index + 0.5) for at in one.x]
            ends: Any = None
            if one.low:
                ends = [
                    [max(0.0, y - low) for y, low in zip(one.y, one.low, strict=True)],
                    [max(0.0, high - y) for y, high in zip(one.y, one.high, strict=True)],
                ]
            style: dict[str, Any] = {
                "color": colour(index),
                "error_kw": {"ecolor": INK, "elinewidth": 1},
                "capsize": 2.5,
            }
            axes.bar(places, one.y, width=width * 0.92, yerr=ends, label=shortened(one.label), **style)
        tilt: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
        axes.set_xticks(range(len(names)), [shortened(text, 24) for text in names], **tilt)
        axes.tick_params(axis="x", length=0, labelsize=8)
        axes.set_xlim(min(-0.6, (len(names) - 3.2) / 2), max(len(names) - 0.4, (len(names) + 1.2) / 2))
        axes.axhline(0, color=INK, linewidth=0.8)

    labels = tuple(one.label for one in series) if len(series) > 1 else ()
    below = 0.32 + 0.2 * bool(xlabel) + 0.5 * tilted
    return Drawing(
        name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=labels, whole=False, below=below
    )


def points(
    series: Sequence[Series],
    *,
    name: str,
    label: str,
    xlabel: str,
    fit: tuple[float, float] | None = None,
    share: bool = False,
    log: bool = True,
) -> Drawing:
    """Points by series, x logarithmic unless told; `fit` (intercept, slope) draws intercept + slope ln(x)."""

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            axes.plot(one.x, one.y, "o", label=shortened(one.label), color=colour(index), markersize=5, alpha=0.85)
        if log:
            _logarithmic(axes, [x for one in series for x in one.x])
        if fit is not None:
            places = [x for one in series for x in one.x]
            span = [min(places) * (max(places) / min(places)) ** (step / 20) for step in range(21)]
            line = [fit[0] + fit[1] * math.log(x) for x in span]
            axes.plot(span, line, color=INK, linewidth=1, linestyle=":", label="fit")

    shown = [*(one.label for one in series), *(["fit"] if fit is not None else [])]
    labels = tuple(shown) if len(shown) > 1 else ()
    return Drawing(name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=labels, whole=False)


def _logarithmic(axes: "Axes", places: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

    low, high = min(places), max(places)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    if low == high:
        axes.set_xlim(low * 0.8, high * 1.25)
    if low * 8 > high:
        # A logarithmic axis over less than a decade has hardly a tick of its own.
        found = [tick for tick in MaxNLocator(5).tick_values(low * 0.85, high * 1.15) if tick > 0]
        axes.xaxis.set_major_locator(FixedLocator(found))
        axes.xaxis.set_minor_locator(NullLocator())


def stacks(names: Sequence[str], layers: Sequence[Series], *, name: str, label: str) -> Drawing:
    """One stacked bar per name; every layer has one value per name."""

    def draw(axes: "Axes") -> None:
        base = [0.0] * len(names)
        for index, one in enumerate(layers):
            hatch = "//" if index >= 12 else None
            style: dict[str, Any] = {"color": colour(index), "hatch": hatch, "height": 0.6}
            axes.barh(range(len(names)), one.y, left=base, label=shortened(one.label), **style)
            base = [below + value for below, value in zip(base, one.y, strict=True)]
        axes.set_yticks(range(len(names)), [shortened(text, 22) for text in names])
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.invert_yaxis()

    labels = tuple(one.label for one in layers)
    height = 0.5 + 0.42 * len(names)
    return Drawing(name=name, draw=draw, xlabel=label, label="", labels=labels, whole=False, plot=height, left=0.22)


def radar(names: Sequence[str], series: Sequence[Series], *, name: str) -> Drawing:
    """One closed line per series over three axes or more; values are shares of 1."""
    assert len(names) >= 3, names
    angles = [2 * math.pi * at / len(names) for at in range(len(names))]

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            closed = [*one.y, one.y[0]]
            style: dict[str, Any] = {"color": colour(index), "linestyle": STROKES[index % 4]}
            axes.plot([*angles, angles[0]], closed, label=shortened(one.label), linewidth=1.8, **style)
            axes.fill([*angles, angles[0]], closed, color=colour(index), alpha=0.08)
        axes.set_xticks(angles, [shortened(text, 26) for text in names])
        axes.tick_params(axis="x", pad=8, labelsize=8)
        top = max(0.1, max(value for one in series for value in one.y))
        ticks = [top * step / 4 for step in range(1, 5)]
        axes.set_ylim(0, top * 1.05)
        axes.set_yticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks], fontsize=7)

    labels = tuple(one.label for one in series)
    return Drawing(name=name, draw=draw, xlabel="", label="", labels=labels, polar=True, plot=3.6)
