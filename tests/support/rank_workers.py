"""What ranks do in the tests of rank groups: as told, well or badly."""

import os
import time
from typing import Any

from infuser_core.engines.cluster.ranks import Seat
from infuser_core.errors import CheckpointError


class Obedient:
    """A rank without any engine."""

    def __init__(self, seat: Seat, options: Any) -> None:
        if options == f"refuse {seat.rank}":
            raise CheckpointError("no such folder", hint="look elsewhere")
        self._seat = seat
        self.progress = (0, 0)

    def say(self, word: str) -> str:
        return f"{self._seat.rank} of {self._seat.ranks}: {word}"

    def process(self) -> int:
        return os.getpid()

    def work(self, rows: int) -> int:
        for row in range(rows):
            time.sleep(0.5)
            self.progress = (row + 1, 10 * (row + 1))
        return rows

    def fail(self, seconds: float, error: str) -> None:
        """Sleep, as in a collective that others do not join; and fail, if told how."""
        time.sleep(seconds)
        if error == "ours":
            raise CheckpointError("a bad folder", hint="look elsewhere")
        if error:
            raise RuntimeError(error)
