"""Kinds of charts: lines, grouped and stacked bars, points, radars, and the picture of the prediction study."""

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infuser_core.report.figures import COLOURS, INK, Figure, Series, shortened
from infuser_core.statistics.correlation import RankCorrelation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STROKES, MARKERS = ("-", "--", "-.", ":"), "os^D"
"""Of lines, one after the other: lines that coincide, or lost their colour in print, can still be told apart."""


def lines(
    title: str,
    series: Sequence[Series],
    *,
    name: str,
    label: str,
    share: bool = False,
    xlabel: str = "iteration",
    ticks: Sequence[float] = (),
) -> Figure:
    """A line chart; with `ticks` the axis has these marks alone, logarithmic where they span a decade or double."""
    doubling = all(after == 2 * before for before, after in pairwise(ticks))
    spread = len(ticks) > 1 and min(ticks) > 0 and (max(ticks) / min(ticks) >= 10 or doubling)

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            style: dict[str, Any] = {"linestyle": STROKES[index % 4], "marker": MARKERS[index % 4]}
            axes.plot(
                one.x, one.y, color=_colour(index), label=shortened(one.label), markersize=3.5, linewidth=1.8, **style
            )
            if len(one.x) == 1 and one.low:
                # A band over a single place has no width.
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


def _legend(series: Sequence[Series], more: str = "") -> tuple[str, ...]:
    """Entries of the legend; none for a single one."""
    labels = (*(one.label for one in series), *([more] if more else []))
    return labels if len(labels) > 1 else ()


def groups(
    title: str,
    names: Sequence[str],
    series: Sequence[Series],
    *,
    name: str,
    label: str,
    share: bool = False,
    xlabel: str = "",
) -> Figure:
    """Bars side by side, one group per name, one bar per series; `low` and `high` draw whiskers."""
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


def _whiskers(one: Series) -> list[list[float]] | None:
    if not one.low:
        return None
    down = [max(0.0, y - low) for y, low in zip(one.y, one.low, strict=True)]
    return [down, [max(0.0, high - y) for y, high in zip(one.y, one.high, strict=True)]]


def points(
    title: str,
    series: Sequence[Series],
    *,
    name: str,
    label: str,
    xlabel: str,
    fit: tuple[float, float] | None = None,
    share: bool = False,
    log: bool = True,
) -> Figure:
    """Points by series, x logarithmic unless told; `fit` (intercept, slope) draws intercept + slope ln(x)."""
    places = [x for one in series for x in one.x]

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            axes.plot(one.x, one.y, "o", label=shortened(one.label), color=_colour(index), markersize=5, alpha=0.85)
        if log:
            _logarithmic(axes, min(places), max(places))
        if fit is not None:
            span = [min(places) * (max(places) / min(places)) ** (step / 20) for step in range(21)]
            axes.plot(
                span, [fit[0] + fit[1] * math.log(x) for x in span], color=INK, linewidth=1, linestyle=":", label="fit"
            )

    labels = _legend(series, "fit" if fit is not None else "")
    return Figure(
        title=title, name=name, draw=draw, xlabel=xlabel, label=label, share=share, labels=labels, whole=False
    )


def _logarithmic(axes: "Axes", low: float, high: float) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

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


def stacks(title: str, names: Sequence[str], layers: Sequence[Series], *, name: str, label: str) -> Figure:
    """One stacked bar per name; every layer has one value per name."""

    def draw(axes: "Axes") -> None:
        base = [0.0] * len(names)
        for index, one in enumerate(layers):
            style: dict[str, Any] = {"color": _colour(index), "hatch": _hatch(index), "height": 0.6}
            axes.barh(range(len(names)), one.y, left=base, label=shortened(one.label), **style)
            base = [below + value for below, value in zip(base, one.y, strict=True)]
        axes.set_yticks(range(len(names)), [shortened(text, 22) for text in names])
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.invert_yaxis()

    labels = tuple(one.label for one in layers)
    height = 0.5 + 0.42 * len(names)
    return Figure(
        title=title, name=name, draw=draw, xlabel=label, label="", labels=labels, whole=False, plot=height, left=0.22
    )


def radar(title: str, names: Sequence[str], series: Sequence[Series], *, name: str) -> Figure:
    """One closed line per series over three axes or more; values are shares of 1."""
    assert len(names) >= 3, names
    angles = [2 * math.pi * at / len(names) for at in range(len(names))]
    around = [*angles, angles[0]]

    def draw(axes: "Axes") -> None:
        for index, one in enumerate(series):
            closed = [*one.y, one.y[0]]
            style: dict[str, Any] = {"color": _colour(index), "linestyle": STROKES[index % 4], "linewidth": 1.8}
            axes.plot(around, closed, label=shortened(one.label), **style)
            axes.fill(around, closed, color=_colour(index), alpha=0.08)
        axes.set_xticks(angles, [shortened(text, 26) for text in names])
        axes.tick_params(axis="x", pad=8, labelsize=8)
        top = max(0.1, max(value for one in series for value in one.y))
        ticks = [top * step / 4 for step in range(1, 5)]
        axes.set_ylim(0, top * 1.05)
        axes.set_yticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks], fontsize=7)

    labels = tuple(one.label for one in series)
    return Figure(title=title, name=name, draw=draw, xlabel="", label="", labels=labels, polar=True, plot=3.6)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _hatch(index: int) -> str | None:
    """A second way to tell bars apart where the colours begin again."""
    return "//" if index >= len(COLOURS) else None


def study(scores: Sequence[float], changes: Sequence[float], correlations: Sequence[RankCorrelation]) -> str:
    """The prediction study as one SVG: score against measured change, and every predictor's rank correlation."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    out = io.StringIO()
    with rc_context({"svg.hashsalt": "infuser", "font.size": 9}):
        canvas = Canvas(figsize=(9, 3.6), layout="constrained")
        left, right = canvas.subplots(1, 2)
        left.scatter(scores, changes, s=14, alpha=0.7)
        left.axhline(0, color="grey", linewidth=0.6)
        left.axvline(0, color="grey", linewidth=0.6)
        left.set(xlabel="influence score", ylabel="change of the dev objective by one step")
        _predictors(right, [row for row in correlations if row.target == "dev"])
        canvas.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _predictors(axes: "Axes", rows: Sequence[RankCorrelation]) -> None:
    errors = [[row.spearman - row.low for row in rows], [row.high - row.spearman for row in rows]]
    style: dict[str, Any] = {"color": "#3b7dc4", "ecolor": "black", "capsize": 2}
    axes.barh(range(len(rows)), [row.spearman for row in rows], xerr=errors, **style)
    axes.set_yticks(range(len(rows)), [row.predictor.replace("_", " ") for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="Spearman's rho with the change, 95% bootstrap", xlim=(-1, 1))
