"""Tracker for Trackio: a database in the run's folder or in `TRACKIO_DIR`, for `trackio show`."""

import os
from collections.abc import Iterable

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point

PACKAGE = "trackio"


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Log all metrics of a run; later attempts continue the same Trackio run."""
    # trackio reads the variable at import.
    os.environ.setdefault("TRACKIO_DIR", str(run.folder))
    import trackio

    session = trackio.init(
        project=os.environ.get("TRACKIO_PROJECT", "infuser"),
        name=run.name,
        config=dict(run.settings),
        resume="allow",
        embed=False,
        auto_log_cpu=False,
        auto_log_gpu=False,
    )
    for point in points:
        session.log(point.values, step=max(0, point.step))
    session.finish()
