"""Terminal output: a live progress line with speed and remaining time, text tables, escaping of control characters."""

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

from infuser_core.errors import InfuserWarning

_DRAW_SECONDS = 0.2
_WIDTH = 118
_CELL = 48
_CLEAR = "\r\x1b[2K"
_MEGABYTE = 1_000_000
# C0 except tab and newline, DEL, C1, and changes of the writing direction.
_CONTROL_CODES = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPED = {code: f"\\u{code:04x}" for code in _CONTROL_CODES}


def printable(text: str) -> str:
    """Escape control characters as JSON does, so that untrusted text cannot control the terminal."""
    return text.translate(_ESCAPED)


def to_json(value: Any) -> str:
    """Serialize a value as one line of JSON. NaN and infinities become null; types unknown to JSON become text."""
    return printable(json.dumps(null_nonfinite(value), ensure_ascii=False, default=str))


def null_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities in nested lists and mappings by None, for JSON."""
    if isinstance(value, Mapping):
        return {key: null_nonfinite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [null_nonfinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning, as `warnings.formatwarning` does: one readable line for this project's own warnings."""
    if issubclass(category, InfuserWarning):
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def ignore(line: str) -> None:
    """Do nothing with a line: the default of `Console.record`."""


class _Stage:
    """The stage that one thread executes: its label, start time, and text on the live line."""

    def __init__(self, label: str) -> None:
        self.label = self.text = label
        self.started = time.monotonic()


@dataclass(slots=True, kw_only=True)
class Console:
    """Writes progress to standard error: a live line shared by the stages of all threads, plain lines, or nothing."""

    enabled: bool
    """Whether to draw the live line, which needs a terminal."""
    plain: bool = False
    """Whether to write plain lines with a time, if there is no terminal."""
    iterations: int = 0
    """Iterations of the run; 0 if unknown."""
    record: Callable[[str], None] = ignore
    """Logs every line, displayed or not."""
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _last_draw: float = 0.0

    @staticmethod
    def here(*, plain: bool = False) -> "Console":
        """Create a console for this process's standard error; `plain` writes plain lines if that is not a terminal."""
        is_terminal = sys.stderr.isatty()
        return Console(enabled=is_terminal, plain=plain and not is_terminal)

    def start(self, label: str) -> None:
        """Start a stage in this thread and display its label."""
        self._stages[get_ident()] = _Stage(label)
        self._last_draw = 0.0
        self._draw()

    def end(self) -> None:
        """Remove this thread's stage from the live line."""
        self._stages.pop(get_ident(), None)

    def progress(self, done: int, total: int, tokens: int) -> None:
        """Update this thread's stage on the live line: finished and total items, speed, remaining time."""
        now = time.monotonic()
        # A phase may report its progress from another thread.
        stage = self._stages.get(get_ident()) or next(reversed(list(self._stages.values())), None)
        if not self.enabled or stage is None or now - self._last_draw < _DRAW_SECONDS:
            return
        self._last_draw = now
        seconds = max(now - stage.started, 1e-6)
        remaining = seconds * (total - done) / done if done else 0.0
        speed = f"  {tokens / seconds:,.0f} tokens/s" if tokens else ""
        stage.text = f"{stage.label}  {done}/{total}{speed}  ETA {remaining:.0f} s"
        self._draw()

    def say(self, line: str, *, passing: bool = False) -> None:
        """Log a line and print it permanently.

        A `passing` line is not printed to a terminal, whose live line has already shown it.
        """
        self.record(line)
        if self.plain:
            _write(f"{time.strftime('%H:%M:%S')}  {printable(line)}\n")
        elif not passing:
            self.keep(line)

    def warn(self, line: str) -> None:
        """Log a warning and print it permanently, also to a file or a pipe."""
        self.say(f"warning: {line}")
        if not self.enabled and not self.plain:
            _write(f"warning: {printable(line)}\n")

    def keep(self, line: str) -> None:
        """Print a permanent line to a terminal only."""
        if self.enabled:
            _write(f"{_CLEAR}{printable(line)}\n")

    def clear(self) -> None:
        """Clear the live line."""
        if self.enabled:
            _write(_CLEAR)

    def _draw(self) -> None:
        if self.enabled:
            _write(_CLEAR + "  |  ".join(stage.text for stage in list(self._stages.values()))[:_WIDTH])


def _write(text: str) -> None:
    # Ignore errors: the reader may have closed the pipe, or a signal handler may write during another write.
    with suppress(OSError, RuntimeError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def format_rows(rows: Sequence[Mapping[str, Any]], *, width: int = _CELL) -> str:
    """Format rows as a text table, fitted to the terminal's window if there is one; long values are cut.

    The columns are the keys of the first row.
    """
    if not rows:
        return "no rows"
    names = list(rows[0])
    cells = [[_format_cell(row[name], width) for name in names] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        lines = [names, ["-" * size for size in widths], *cells]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    # Imported here: most commands print no table.
    from rich import box
    from rich.console import Console as Window
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="")
    for name in names:
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        grid.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for line in cells:
        grid.add_row(*map(Text, line))
    window = Window()
    with window.capture() as captured:
        window.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def _format_cell(value: Any, width: int) -> str:
    if value is None or value == "" or value != value:
        return "-"
    return shorten(f"{value:.6g}" if isinstance(value, float) else printable(str(value).replace("\n", " ")), width)


def shorten(text: str, width: int = _CELL) -> str:
    """A text of at most `width` characters; a longer one ends with three dots."""
    return text if len(text) <= width else text[: width - 3] + "..."


def format_duration(seconds: float) -> str:
    """Format a duration as text such as `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def num_visible_rows(lines: int) -> int:
    """Number of a table's `lines` that fit into the terminal's window; all without a terminal."""
    return max(1, min(lines, shutil.get_terminal_size().lines - 6)) if sys.stdout.isatty() else lines


def number_ranges(numbers: Sequence[int]) -> str:
    """Format increasing whole numbers as ranges, such as `0-4, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, each)) for each in ranges)


@contextmanager
def live_console(label: str = "") -> Iterator[Console]:
    """Open a console with a live line on standard error, which is cleared at the end."""
    console = Console(enabled=sys.stderr.isatty())
    if label:
        console.start(label)
    try:
        yield console
    finally:
        console.clear()


@contextmanager
def byte_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a live line for work counted in bytes; yields a function of the finished and the total bytes."""
    with live_console(f"{label}, MB") as console:
        yield lambda done, total: console.progress(done // _MEGABYTE, total // _MEGABYTE, 0)
