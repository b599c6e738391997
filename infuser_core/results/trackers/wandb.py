"""Tracker for Weights & Biases: online with a key and a network, else a folder for `wandb sync`; WANDB_* come first."""

import netrc
import os
import socket
import uuid
from collections.abc import Iterable
from urllib.parse import urlsplit

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point

PACKAGE = "wandb"
_PATIENCE = 3.0


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Log all metrics of a run over its iterations; later attempts continue the same W&B run."""
    import wandb

    quiet = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True)
    with wandb.init(
        project=os.environ.get("WANDB_PROJECT", "infuser"),
        name=run.name,
        id=run.remembered("id", lambda: uuid.uuid4().hex[:12]),
        resume="allow",
        dir=run.folder,
        mode=os.environ.get("WANDB_MODE") or ("online" if _reachable() else "offline"),
        config=dict(run.settings),
        settings=quiet,
    ) as wandb_run:
        wandb_run.define_metric("*", step_metric="iteration")
        for point in points:
            wandb_run.log({**point.values, "iteration": max(0, point.step)})


def _reachable() -> bool:
    place = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    try:
        if not (os.environ.get("WANDB_API_KEY") or netrc.netrc().authenticators(place.hostname or "")):
            return False
        socket.create_connection((place.hostname or "", place.port or 443), _PATIENCE).close()
    except (OSError, netrc.NetrcParseError):
        return False
    return True
