"""Trackio: a database in the run's folder, or where `TRACKIO_DIR` says; `trackio show` looks at it."""

import os
from collections.abc import Iterable

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point

PACKAGE = "trackio"


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Log every number; later attempts go on with the same run."""
    # Read when it is imported.
    os.environ.setdefault("TRACKIO_DIR", str(run.folder))
    import trackio

    shown = trackio.init(
        project=os.environ.get("TRACKIO_PROJECT", "infuser"),
        name=run.name,
        config=dict(run.settings),
        resume="allow",
        embed=False,
        auto_log_cpu=False,
        auto_log_gpu=False,
    )
    for point in points:
        shown.log(point.values, step=max(0, point.step))
    shown.finish()
