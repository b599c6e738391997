"""Terminal output: a live progress line with speed and time left."""

import sys
import time
from dataclasses import dataclass, field
from threading import get_ident

_EVERY = 0.2
_WIDTH = 118


class _Stage:
    """What one thread is at."""

    def __init__(self, label: str) -> None:
        self.label = self.text = label
        self.started = time.monotonic()


@dataclass(slots=True, kw_only=True)
class Console:
    """Writes to standard error when it is a terminal, and nothing otherwise. Stages of several threads share a line."""

    enabled: bool
    """Whether there is a terminal to write to."""
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _shown: float = 0.0
    _iterations: int = 0

    def expect(self, iterations: int) -> None:
        """How many iterations the run has."""
        self._iterations = iterations

    def start(self, phase: str, iteration: int) -> None:
        """A stage begins."""
        where = f"iteration {iteration + 1}/{self._iterations}  " if iteration >= 0 and self._iterations else ""
        self._stages[get_ident()] = _Stage(f"{where}{phase}")
        self._shown = 0.0
        self._draw()

    def end(self) -> None:
        """This thread's stage is over."""
        self._stages.pop(get_ident(), None)

    def progress(self, done: int, total: int, tokens: int) -> None:
        """The stage moved."""
        now = time.monotonic()
        # A phase may tell of its progress from a thread of its own.
        stage = self._stages.get(get_ident()) or next(reversed(list(self._stages.values())), None)
        if not self.enabled or stage is None or now - self._shown < _EVERY:
            return
        self._shown = now
        seconds = max(now - stage.started, 1e-6)
        remaining = seconds * (total - done) / done if done else 0.0
        speed = f"  {tokens / seconds:,.0f} tokens/s" if tokens else ""
        stage.text = f"{stage.label}  {done}/{total}{speed}  ETA {remaining:.0f} s"
        self._draw()

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

    def _draw(self) -> None:
        if self.enabled:
            text = "  |  ".join(stage.text for stage in list(self._stages.values()))
            sys.stderr.write("\r\x1b[2K" + text[:_WIDTH])
            sys.stderr.flush()
