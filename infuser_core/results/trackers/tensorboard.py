"""Tracker for TensorBoard: event files in the run's folder; `tensorboard --logdir .infuser/runs` shows all runs."""

from collections.abc import Iterable

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point

PACKAGE = "tensorboardX"


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Write all metrics of a run as scalars."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(run.folder), flush_secs=5) as writer:
        for point in points:
            for name, value in point.values.items():
                writer.add_scalar(name, value, max(0, point.step), walltime=point.seconds)
