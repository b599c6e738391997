"""Trackers that a run must survive, and one that does its work."""

import json
import os
import time
from collections.abc import Iterable

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point


def good(run: Tracked, points: Iterable[Point]) -> None:
    """Writes every point and the settings beside them."""
    with (run.folder / "points.jsonl").open("a") as file:
        file.write(json.dumps({"attempt": run.remembered("id", lambda: str(os.getpid())), **run.settings}) + "\n")
        for point in points:
            file.write(json.dumps({"step": point.step, **point.values}) + "\n")
            file.flush()


def raises(run: Tracked, points: Iterable[Point]) -> None:
    """Has no network."""
    for _ in points:
        raise ConnectionError("https://me:hush@nowhere.example does not answer")


def hangs(run: Tracked, points: Iterable[Point]) -> None:
    """Never comes back, whatever it is told."""
    while True:
        time.sleep(60)


def slow(run: Tracked, points: Iterable[Point]) -> None:
    """Takes a minute for each point."""
    for _ in points:
        time.sleep(60)


def dies(run: Tracked, points: Iterable[Point]) -> None:
    """Is killed by the machine."""
    os.kill(os.getpid(), 9)


NO_FUNCTION = 1
