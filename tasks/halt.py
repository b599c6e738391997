"""What ends all branches of a run once one of them has failed: each at its next safe point."""

from threading import Lock


class Halted(Exception):
    """This branch ended because of another one."""


class Halt:
    """Called once for a run, by whoever knows a reason; branches ask at their safe points."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason = ""

    def call(self, reason: str) -> None:
        """Let every branch end. The first reason counts."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """A safe point. Raises Halted once the run ends."""
        if self._reason:
            raise Halted(self._reason)
