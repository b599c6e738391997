"""Terminal output: a live progress line with speed and time left, and tables."""

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from infuser_core.errors import DataWarning, EngineWarning

_EVERY = 0.2
_WIDTH = 118
_EMPTY = "\r\x1b[2K"
_MEGABYTE = 1_000_000
# C0 but tab and newline, DEL, C1, and what turns the direction of a line: a model's text must not steer a terminal.
_STEERING = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPED = {code: f"\\u{code:04x}" for code in _STEERING}


def printable(text: str) -> str:
    """The text with control characters as JSON writes them: nothing from data reaches a terminal as a command."""
    return text.translate(_ESCAPED)


def to_json(value: Any) -> str:
    """The value as one line of JSON, which has no NaN and no infinity: they are null. Other types become text."""
    return printable(json.dumps(finite(value), ensure_ascii=False, default=str))


def finite(value: Any) -> Any:
    """The value with null for NaN and infinities, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """For `warnings.formatwarning`: one readable line for this project's warnings, Python's own form for others."""
    if issubclass(category, (DataWarning, EngineWarning)):
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def ignore(line: str) -> None:
    """Nobody writes it down."""


class _Stage:
    """Progress of one thread."""

    def __init__(self, label: str) -> None:
        self.label = self.text = label
        self.started = time.monotonic()


@dataclass(slots=True, kw_only=True)
class Console:
    """Writes to standard error: a live line, which stages of several threads share, or plain lines, or nothing."""

    enabled: bool
    """Whether there is a terminal for a live line."""
    plain: bool = False
    """Whether lines are written where there is no terminal."""
    iterations: int = 0
    """How many iterations the run has; 0 before it is known."""
    record: Callable[[str], None] = ignore
    """Writes down every line that is said, seen or not."""
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _shown: float = 0.0

    @staticmethod
    def here(*, plain: bool = False) -> "Console":
        """For this process's standard error; lines where that is no terminal are said where they are wanted."""
        live = sys.stderr.isatty()
        return Console(enabled=live, plain=plain and not live)

    def start(self, label: str) -> None:
        """A stage begins."""
        self._stages[get_ident()] = _Stage(label)
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

    def say(self, line: str, *, passing: bool = False) -> None:
        """A line that stays. One in passing is not for a terminal, where the live line said as much."""
        self.record(line)
        if self.plain:
            _write(f"{time.strftime('%H:%M:%S')}  {printable(line)}\n")
        elif not passing:
            self.keep(line)

    def keep(self, line: str) -> None:
        """A line that stays on a terminal, and is nowhere else."""
        if self.enabled:
            _write(f"{_EMPTY}{printable(line)}\n")

    def clear(self) -> None:
        """Empty the live line."""
        if self.enabled:
            _write(_EMPTY)

    def _draw(self) -> None:
        if self.enabled:
            _write(_EMPTY + "  |  ".join(stage.text for stage in list(self._stages.values()))[:_WIDTH])


def _write(text: str) -> None:
    # Nobody may read any more, and a signal may say something in the middle of another line: no reason to stop.
    with suppress(OSError, RuntimeError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def table(rows: Sequence[Mapping[str, Any]], *, width: int = 48) -> str:
    """Rows as a table: fitted to the window on a terminal, columns aligned by blanks elsewhere; long values cut."""
    if not rows:
        return "no rows"
    names = list(rows[0])
    cells = [[_cell(row[name], width) for name in names] for row in rows]
    if not sys.stdout.isatty():
        return _aligned([names, *cells])
    # Imported here: most commands print no table.
    from rich import box
    from rich.console import Console as Window
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="")
    for name in names:
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        drawn.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for line in cells:
        drawn.add_row(*map(Text, line))
    window = Window()
    with window.capture() as captured:
        window.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * size for size in widths], *lines[1:]]
    return "\n".join(
        "  ".join(value.ljust(size) for value, size in zip(line, widths, strict=True)).rstrip() for line in ruled
    )


def _cell(value: Any, width: int) -> str:
    if value is None or value == "" or value != value:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else printable(str(value).replace("\n", " "))
    return text if len(text) <= width else text[: width - 3] + "..."


def duration(seconds: float) -> str:
    """A length of time in words."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def room(lines: int) -> int:
    """Number of a table's lines that fit a terminal's window; all of them where there is no terminal."""
    return max(1, min(lines, shutil.get_terminal_size().lines - 6)) if sys.stdout.isatty() else lines


@contextmanager
def live(label: str = "") -> Iterator[Console]:
    """A live line on standard error, which disappears at the end."""
    console = Console(enabled=sys.stderr.isatty())
    if label:
        console.start(label)
    try:
        yield console
    finally:
        console.clear()


@contextmanager
def meter(label: str) -> Iterator[Callable[[int, int], None]]:
    """A live line for work counted in bytes: megabytes done, and the time left."""
    with live(f"{label}, MB") as console:
        yield lambda done, total: console.progress(done // _MEGABYTE, total // _MEGABYTE, 0)
