"""Run log: a line per stage on the terminal and in `log.txt`, its metrics in `metrics.jsonl` and trackers."""

import os
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any

from infuser_core.config.phase_table import FACTS, TESTS
from infuser_core.errors import InfuserWarning
from infuser_core.results.trackers.parts.files import LOG, Lines, points_in, redacted
from infuser_core.results.trackers.parts.follow import Followers
from infuser_core.results.trackers.parts.points import Point, in_words, metrics_of
from infuser_core.store.recipe import Record
from infuser_core.store.runs import METRICS
from infuser_core.terminal import Console, format_duration, ignore, number_ranges


def place_of(phase: str, iteration: int, iterations: int) -> str:
    """Position of a stage, such as `iteration 3 of 0-9`; empty outside the loop."""
    if iteration < 0 or not iterations:
        return ""
    if phase not in TESTS:
        return f"iteration {iteration} of {number_ranges(range(iterations))}"
    return f"after {iteration} of {iterations}" if iteration else "anchor"


class RemainingTime:
    """Estimates the remaining time of a run's iterations from those of this attempt."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        self._cached: set[int] = set()

    def ran(self, iteration: int, began: float) -> None:
        """Record that a stage of this iteration ran, from `began` on."""
        self._began.setdefault(iteration, began)

    def skip(self, iteration: int) -> None:
        """Record that a stage of this iteration was cached."""
        self._cached.add(iteration)

    def seconds_left(self, iterations: int, now: float) -> float | None:
        """Seconds until all iterations are done; None until two uncached iterations have begun."""
        whole = sorted(set(self._began) - self._cached)
        if len(whole) < 2:
            return None
        first, last = whole[0], whole[-1]
        each = (self._began[last] - self._began[first]) / (last - first)
        return max(0.0, each * (iterations - last) - (now - self._began[last]))


class RunLog:
    """Writes log and metrics of a run or an evaluation as it goes. Errors of the log never stop the run."""

    def __init__(
        self,
        console: Console | None = None,
        folder: Path | None = None,
        *,
        attempt: int = 0,
        track: Sequence[str] = (),
    ) -> None:
        self._folder, self._track = folder, track
        self._followers: Followers | None = None
        self._console = console or Console(enabled=False)
        self._number, self._lock, self._clock = attempt, RLock(), RemainingTime()
        # Errors of the log itself go only to the console.
        self._log = Lines(folder / LOG, self._console.warn) if folder else None
        self._metrics = Lines(folder / METRICS, self.warn) if folder else None
        self._known = {point.key for point in points_in(folder / METRICS)} if folder else set[str]()
        self._ran = self._num_cached = self._unsaid = 0
        self._spent = 0.0
        self._headlines: list[str] = []
        self._iteration = -1
        self._console.record = self.note

    def ran(self, record: Record, *, seconds: float, tokens: int = 0) -> str:
        """Record a stage that ran. Returns its log line."""
        metrics = metrics_of(record, seconds=seconds, tokens=tokens)
        with self._lock, self._counting():
            self._ran += 1
            self._say_cached()
            self._point(record, metrics, "ran", record.iteration)
            line = self._line(record, metrics, seconds)
            self._console.say(line, passing=True)
            self._sum_up(record, metrics)
            if self._followers is not None:
                self._followers.look()
        return line

    def add_cached(self, record: Record, iteration: int) -> None:
        """Record a stage that was cached, with its metrics unless an earlier attempt recorded them."""
        with self._lock, self._counting():
            self._num_cached += 1
            self._unsaid += 1
            if record.phase not in TESTS:
                self._clock.skip(iteration)
            self._point(record, metrics_of(record, seconds=record.seconds), "cached", iteration)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._spent += time.thread_time() - began

    def _point(self, record: Record, metrics: dict[str, float], state: str, iteration: int) -> None:
        if self._metrics is None or record.key in self._known:
            return
        self._known.add(record.key)
        point = Point(
            step=iteration,
            phase=record.phase,
            of=record.label,
            time=datetime.now().astimezone().isoformat(timespec="milliseconds"),
            attempt=self._number,
            state=state,
            key=record.key,
            metrics=metrics,
        )
        self._metrics.add(point.line())

    def _say_cached(self) -> None:
        if self._unsaid:
            self._console.say(f"{self._unsaid:,} stages found in the store", passing=True)
            self._unsaid = 0

    def _line(self, record: Record, metrics: dict[str, float], seconds: float) -> str:
        where = place_of(record.phase, record.iteration, self._console.iterations)
        stage = f"{record.phase} {record.label}".rstrip()
        words = in_words(metrics, record.summary)
        eta = self._eta(record, seconds)
        return "  ".join(part for part in (where, stage, f"{seconds:.2f} s", words, eta) if part)

    def _eta(self, record: Record, seconds: float) -> str:
        if record.iteration < 0 or record.phase in TESTS:
            return ""
        now = time.monotonic()
        self._clock.ran(record.iteration, now - seconds)
        seconds_left = self._clock.seconds_left(self._console.iterations, now)
        return "" if seconds_left is None else f"ETA {format_duration(seconds_left)}"

    def _sum_up(self, record: Record, metrics: dict[str, float]) -> None:
        """Collect metrics for the one line per iteration on a terminal, printed when the next iteration begins."""
        if record.iteration != self._iteration and record.iteration >= 0 and record.phase not in TESTS:
            self.sum_up()
            self._iteration = record.iteration
        name = FACTS[record.phase].headline
        if name in metrics:
            self._headlines.append(f"{record.phase} {in_words({name: metrics[name]}, {})}")

    def sum_up(self) -> None:
        """Print the collected line of the last iteration on a terminal."""
        if self._headlines:
            where = place_of("", self._iteration, self._console.iterations) or "anchor"
            seconds_left = self._clock.seconds_left(self._console.iterations, time.monotonic())
            eta = [f"ETA {format_duration(seconds_left)}"] if seconds_left else []
            self._console.keep("  ".join(part for part in (where, ", ".join(self._headlines), *eta) if part))
        self._headlines = []

    def note(self, line: str) -> None:
        """Add a line to the log only."""
        if self._log is not None:
            now = datetime.now().astimezone().isoformat(sep=" ", timespec="milliseconds")
            self._log.add(f"{now}  {redacted(line)}")

    def warn(self, line: str) -> None:
        """Show a warning and write it to the log."""
        self._console.warn(line)

    def failed(self, where: str, seconds: float, error: BaseException) -> None:
        """Log a failed stage; the error itself is shown by the caller."""
        self.note(f"{where} failed after {seconds:.2f} s: {type(error).__name__}: {error}")

    @contextmanager
    def attempt(self, name: str, *facts: str) -> Iterator[None]:
        """Context of an attempt: logs its start, Python warnings, and how it ended; starts and ends trackers."""
        began, here = time.monotonic(), f"process {os.getpid()} on {platform.node()}"
        self.note(", ".join([f"attempt {self._number} of {name} starts: {here}", *facts]))
        outcome = "ended"
        if self._folder is not None and self._track:
            self._followers = Followers(self._folder, self._track, self.warn)
        try:
            with self._hearing_warnings():
                yield
        except BaseException as error:  # the boundary of an attempt: recorded, and raised again
            outcome = f"ended by {type(error).__name__}: {error}".removesuffix(": ")
            raise
        finally:
            self._say_cached()
            self.sum_up()
            if self._followers is not None:
                self._followers.end()
            stages = f"{self._ran:,} stages ran, {self._num_cached:,} found in the store"
            counts = f"{stages}, {self._spent:.3f} CPU-s for the run log"
            self.note(f"attempt {self._number} {outcome}, after {time.monotonic() - began:.1f} s: {counts}")
            self._console.record = ignore

    @contextmanager
    def _hearing_warnings(self) -> Iterator[None]:
        show_warning = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any, **options: Any) -> None:
            if issubclass(category, InfuserWarning):
                self.warn(str(message))
            else:
                self.note(f"warning: {category.__name__}: {message}")
                show_warning(message, category, *rest, **options)

        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = show_warning
