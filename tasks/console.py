"""A live line in the terminal: what is running, how far it is, how fast, and when it will be done."""

import sys
import time
from dataclasses import dataclass

_EVERY = 0.2


@dataclass(slots=True, kw_only=True)
class Console:
    """Writes to standard error when it is a terminal, and nothing otherwise."""

    enabled: bool
    """Whether there is a terminal to write to."""
    _label: str = ""
    _started: float = 0.0
    _shown: float = 0.0
    _total: int = 0
    _iterations: int = 0

    def expect(self, iterations: int) -> None:
        """How many iterations the run has."""
        self._iterations = iterations

    def start(self, phase: str, iteration: int) -> None:
        """A stage begins."""
        where = f"iteration {iteration + 1}/{self._iterations}  " if iteration >= 0 and self._iterations else ""
        self._label, self._started, self._shown = f"{where}{phase}", time.monotonic(), 0.0
        self._draw(self._label)

    def progress(self, done: int, total: int, tokens: int) -> None:
        """The stage moved."""
        now = time.monotonic()
        if not self.enabled or now - self._shown < _EVERY:
            return
        self._shown = now
        seconds = max(now - self._started, 1e-6)
        remaining = seconds * (total - done) / done if done else 0.0
        speed = f"  {tokens / seconds:,.0f} tokens/s" if tokens else ""
        self._draw(f"{self._label}  {done}/{total}{speed}  ETA {remaining:.0f} s")

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.enabled:
            self.clear()
            sys.stderr.write(line + "\n")

    def clear(self) -> None:
        """Empty the live line."""
        if self.enabled:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _draw(self, text: str) -> None:
        if self.enabled:
            sys.stderr.write("\r\x1b[2K" + text[:118])
            sys.stderr.flush()
