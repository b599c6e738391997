"""The prediction study as one picture: score against measured change, and every predictor's rank correlation."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from infuser_core.statistics.correlation import RankCorrelation


def draw_study(
    scores: Sequence[float], changes: Sequence[float], correlations: Sequence[RankCorrelation], out: Path
) -> None:
    """Write a two-panel SVG; the same numbers give the same bytes."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "infuser", "font.size": 9}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        left.scatter(scores, changes, s=14, alpha=0.7)
        left.axhline(0, color="grey", linewidth=0.6)
        left.axvline(0, color="grey", linewidth=0.6)
        left.set(xlabel="influence score", ylabel="change of the dev objective by one step")
        _bars(right, [row for row in correlations if row.target == "dev"])
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)


def _bars(axes: "matplotlib.axes.Axes", rows: Sequence[RankCorrelation]) -> None:
    places = range(len(rows))
    lengths = [row.spearman for row in rows]
    errors = [[row.spearman - row.low for row in rows], [row.high - row.spearman for row in rows]]
    axes.barh(places, lengths, xerr=errors, color="#3b7dc4", ecolor="black", capsize=2)
    axes.set_yticks(places, [row.predictor.replace("_", " ") for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="Spearman's rho with the change, 95% bootstrap", xlim=(-1, 1))


def draw_curve(iterations: Sequence[int], means: Sequence[float], out: Path, *, ylabel: str) -> None:
    """Write one curve as SVG."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "infuser", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
        axes.plot(iterations, means, marker="o", markersize=3)
        axes.set(xlabel="generator updates", ylabel=ylabel)
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)
