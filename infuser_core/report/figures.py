"""Charts as SVG text: same numbers, same bytes; text takes the page's colour, so that dark pages stay readable."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infuser_core.report.content import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
"""Stands for the page's text colour while matplotlib draws."""
COLOURS = (
    "#3b82c4", "#e08a1e", "#2a9d68", "#c2528b", "#8173d1", "#a8921a", "#3fa7bd", "#c9594a", "#8a8f98", "#6f9e3c",
    "#b07a4f", "#5a6fd0",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or one layer of bars."""

    label: str
    """Legend entry."""
    x: Sequence[float]
    """Iterations."""
    y: Sequence[float]
    """Values."""
    low: Sequence[float] = ()
    """Lower ends of the intervals; empty for none."""
    high: Sequence[float] = ()
    """Upper ends of the intervals; empty for none."""


def lines(series: Sequence[Series], *, name: str, label: str, share: bool = False, mark: float | None = None) -> str:
    """A line chart over iterations; `mark` draws a vertical line at the selected iteration."""

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(one.x, one.y, label=_label(one.label), color=colour, marker="o", markersize=3.5, linewidth=1.8)
            if one.low:
                axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
        if mark is not None:
            axes.axvline(mark, color=INK, linewidth=1, linestyle=":", label="selected")

    return _svg(draw, name=name, label=label, share=share, legend=len(series) > 1 or mark is not None)


def bars(layers: Sequence[Series], *, name: str, label: str, share: bool = False) -> str:
    """Stacked bars over iterations; every layer has the same x."""

    def draw(axes: "Axes") -> None:
        base = [0.0] * len(layers[0].x)
        for index, layer in enumerate(layers):
            colour, hatch = COLOURS[index % len(COLOURS)], "//" if index >= len(COLOURS) else None
            axes.bar(layer.x, layer.y, bottom=base, label=_label(layer.label), color=colour, hatch=hatch, width=0.8)
            base = [below + value for below, value in zip(base, layer.y, strict=True)]

    return _svg(draw, name=name, label=label, share=share, legend=True)


def _label(label: str) -> str:
    """A short legend entry; matplotlib hides entries that start with an underscore."""
    shown = " ".join(printable(label).split()).lstrip("_") or "unnamed"
    return shown if len(shown) <= 40 else shown[:39] + "\u2026"


def _svg(draw: "Callable[[Axes], None]", *, name: str, label: str, share: bool, legend: bool) -> str:
    # Imported here: `infuser --help` and runs without a report need no plotting library.
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    # Labels come from models: no mathtext, no TeX. Text stays text, so that no font outlines are embedded.
    settings: dict[Any, Any] = {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "text.parse_math": False,
        "text.usetex": False,
    }
    settings |= {"font.size": 9.0, "axes.spines.top": False, "axes.spines.right": False, **dict.fromkeys(inked, INK)}
    with rc_context(settings):
        figure = Figure(figsize=(7.2, 2.9))
        figure.subplots_adjust(left=0.13, right=0.72 if legend else 0.98, bottom=0.16, top=0.95)
        axes = figure.add_subplot()
        draw(axes)
        axes.set_xlabel("iteration")
        axes.set_ylabel(label)
        axes.grid(axis="y", color=INK, alpha=0.15, linewidth=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if axes.get_xlim()[1] - axes.get_xlim()[0] < 1:
            axes.set_xlim(axes.get_xlim()[0] - 0.5, axes.get_xlim()[1] + 0.5)
        if share:
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, -0.02), min(max(high, low + 0.2), 1.02))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
        if legend:
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
        out = io.StringIO()
        figure.savefig(
            out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    written = out.getvalue()
    written = written[written.index("<svg") :].replace(INK, "currentColor")
    # Charts share one page: ids must not meet.
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", written).strip()
