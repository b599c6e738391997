"""Safe points of stages: signals, time limits and parallel branches all end a stage at its next one.

A safe point is between two batches or optimizer steps, or the end of the stage. Killing it anywhere else would be as
harmless, but waste what the point keeps. The second signal is obeyed at once. Branches are for independent stages that
the configuration lets overlap: the main line stays in its thread and hears signals, a branch has a thread of its own
with Prefect's context, and the first failure ends both and is the error that leaves. Where nothing overlaps, a branch
runs at once, in its place.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, TypeVar

from infuser_core.errors import StageError
from infuser_core.settings import VARIABLE, phase_seconds
from tasks.run import Execution, Run, current, served
from tasks.run_control import Halted

T = TypeVar("T")
_GRACE = 5.0
_LOOK = 0.1


class Overdue(StageError):
    """A stage took longer than it may."""


class Guard:
    """Around one stage of a run."""

    def __init__(self, run: Execution, phase: str, *, record: Callable[[Exception], None], limit: float | None) -> None:
        self._run, self._phase, self._record = run, phase, record
        self._limit = limit
        self._asked: int | None = None
        self._overdue = False
        self._former: dict[int, Any] = {}
        self._done = threading.Event()
        self._here = threading.current_thread()

    @property
    def asked(self) -> bool:
        """Whether a signal waits to be obeyed."""
        return self._asked is not None

    def point(self) -> None:
        """A safe point: whoever was asked to stop stops here, and so does a branch when another one has failed."""
        if threading.current_thread() is not self._here:
            return
        if self._overdue:
            raise self._error()
        if self._asked is not None:
            self._deliver()
        self._run.control.halt.check()

    def __enter__(self) -> "Guard":
        """Listen, and look at the clock."""
        if self._here is threading.main_thread():
            # Of a run in a deployment, SIGTERM belongs to its runner: it cancels by it.
            numbers = [signal.SIGINT] if served() else [signal.SIGINT, signal.SIGTERM]
            self._former = {number: signal.signal(number, self._hear) for number in numbers}
            self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._ring)
        if self._limit is not None:
            threading.Thread(target=self._watch, args=(self._limit,), name="time limit", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The stage is over. The end of one that succeeded is a safe point too."""
        self._stop()
        if error is None and self._asked is not None:
            _pass_on(self._asked)

    def _stop(self) -> None:
        self._done.set()
        for number, handler in self._former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._asked is not None:
            self._deliver()
        self._asked = number
        self._run.console.say(f"stopping {self._phase} at its next safe point; again to stop at once")

    def _deliver(self) -> None:
        assert self._asked is not None
        number, self._asked = self._asked, None
        self._stop()
        _pass_on(number)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._overdue:
            raise self._error()

    def _watch(self, limit: float) -> None:
        if self._done.wait(limit):
            return
        self._overdue = True
        if self._here is threading.main_thread():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        if self._done.wait(_GRACE):
            return
        # Stuck where no signal is heard. Nobody else is left to say so.
        error = self._error()
        self._record(error)
        self._run.console.clear()
        sys.stderr.write(f"infuser: {error.message}\n  hint: {error.hint}\n")
        sys.stderr.flush()
        if self._run.hold is not None:
            self._run.hold.give_back()
        os._exit(error.exit_code)

    def _error(self) -> Overdue:
        return Overdue(
            f"stage {self._phase} of run {self._run.name} took more than {self._limit:g} s",
            hint=f"set {VARIABLE} (seconds, or {self._phase}=SECONDS; 0 for no limit), then `infuser resume "
            f"{self._run.name}`: finished stages are kept",
        )


def guarded(run: Execution, phase: str, *, record: Callable[[Exception], None]) -> Guard:
    """Signals wait for the safe points of this stage, and it ends when its time is over."""
    return Guard(run, phase, record=record, limit=phase_seconds(phase))


def waiting(run: Execution, what: str) -> Guard:
    """A signal is obeyed when the wait is over. The code inside sees to it that it soon is."""
    return Guard(run, what, record=lambda error: None, limit=None)


def _pass_on(number: int) -> None:
    """The signal's default effect; a process that it would have ended leaves cleanly instead."""
    if signal.getsignal(number) == signal.SIG_DFL:
        raise SystemExit(128 + number)
    signal.raise_signal(number)


_computing: ContextVar[threading.Event | None] = ContextVar("computing", default=None)


def release_engines() -> None:
    """Say that what is left of this branch's stage is to write: the main line may have the engines."""
    event = _computing.get()
    if event is not None:
        event.set()


class Lane:
    """One branch at a time beside the main line, each a future."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._thread: Thread | None = None
        self._future: Future[Any] = Future()
        self._future.set_result(None)

    def start(self, branch: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Run the branch beside what follows, after the one before."""
        return self._begin(partial(branch, *arguments), threading.Event(), beside=self._run.overlaps)

    def hand_over(self, branch: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Run a stage that needs the engines before what follows, and let it write its artifact beside that."""
        free = threading.Event()
        future = self._begin(partial(branch, *arguments), free, beside=self._run.writes_beside)
        self._look_after(lambda: free.is_set() or future.done())
        if future.done():
            future.result()
        return future

    def _begin(self, branch: Callable[[], T], free: threading.Event, *, beside: bool) -> "Future[T]":
        self.wait()
        future: Future[T] = Future()

        def keep() -> None:
            _computing.set(free)
            try:
                future.set_result(branch())
            except BaseException as error:  # a thread's boundary: raised again by the main line
                if beside:
                    self._run.control.halt.call(f"the run ends: {type(error).__name__}: {error}")
                future.set_exception(error)

        beside = beside and current(self._run.name).control.executes
        if not beside:
            keep()
            future.result()
            return future
        self._future = future
        self._thread = Thread(target=copy_context().run, args=(keep,), name="alongside", daemon=True)
        self._thread.start()
        return future

    def wait(self) -> None:
        """The branch has ended. Raises its error; a signal ends it at its next safe point."""
        self._look_after(self._future.done)
        self._thread = None
        self._future.result()

    def _look_after(self, done: Callable[[], bool]) -> None:
        if self._thread is None:
            return
        with waiting(self._run, "what runs alongside") as guard:
            while not done():
                self._thread.join(_LOOK)
                if guard.asked:
                    self._run.control.halt.call("the run was told to stop")

    def abandon(self, error: BaseException) -> BaseException:
        """The main line has failed: the branch ends too. Returns the error that came first."""
        self._run.control.halt.call(f"the run ends: {type(error).__name__}: {error}")
        if self._thread is not None:
            self._thread.join()
        first = self._future.exception()
        return first if first is not None and isinstance(error, Halted) and not isinstance(first, Halted) else error


@contextmanager
def alongside(run_name: str) -> Iterator[Lane]:
    """A lane beside the code inside, which leaves when both have ended."""
    run = current(run_name)
    lane = Lane(run)
    if not (run.overlaps or run.writes_beside):
        yield lane
        return
    try:
        yield lane
        lane.wait()
    except BaseException as error:  # whatever it is, the branch ends first
        first = lane.abandon(error)
        if first is not error:
            raise first from None
        raise
