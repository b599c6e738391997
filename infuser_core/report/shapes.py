"""Charts beside lines and stacks: bars side by side, points with a fitted line, radars."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infuser_core.report.figures import INK, STROKES, Drawing, Series, colour, shortened

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
