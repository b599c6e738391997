"""Interrupt stages at safe points: by signals, by time limits, or because a parallel stage failed.

A safe point is between two batches or optimizer steps, or at the end of a stage. Killing a stage elsewhere does no
damage, but loses the work since the last point. A second signal takes effect at once. Independent stages may overlap:
the main line stays in its thread and receives the signals, a branch has its own thread with Prefect's context, and the
first failure ends both and is the error that is raised. Without overlap, a branch runs immediately in the main thread.
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
from infuser_core.settings import VARIABLE
from tasks.run import Execution, Run, current_run, is_deployed
from tasks.run_control import Halted

T = TypeVar("T")
_GRACE = 5.0
"""Seconds that a stage has to reach a safe point after its time limit."""
_POLL = 0.1
"""Seconds between checks of a parallel branch."""


class Overdue(StageError):
    """Raised when a stage exceeds its time limit."""


class StageInterrupts:
    """Context of one stage: delays signals until the next safe point, and ends the stage after `limit` seconds."""

    def __init__(
        self,
        run: Execution,
        phase: str,
        *,
        record: Callable[[Exception], None] = lambda error: None,
        limit: float | None = None,
    ) -> None:
        self._run, self._phase, self._record = run, phase, record
        self._limit = limit
        self._signal: int | None = None
        self._overdue = False
        self._former: dict[int, Any] = {}
        self._finished = threading.Event()
        self._thread = threading.current_thread()

    @property
    def is_pending(self) -> bool:
        """Whether a signal has arrived and waits for the next safe point."""
        return self._signal is not None

    def point(self) -> None:
        """Mark a safe point: end the stage after a signal, a time limit or the failure of another branch."""
        if threading.current_thread() is not self._thread:
            return
        if self._overdue:
            raise self._error()
        if self._signal is not None:
            self._deliver()
        self._run.control.halt.check()

    def __enter__(self) -> "StageInterrupts":
        """Install the signal handlers and start the timeout."""
        if self._thread is threading.main_thread():
            # In a deployment's flow run, SIGTERM is handled by Prefect's runner, which uses it to cancel.
            numbers = [signal.SIGINT] if is_deployed() else [signal.SIGINT, signal.SIGTERM]
            self._former = {number: signal.signal(number, self._receive) for number in numbers}
            self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._alarm)
        if self._limit is not None:
            threading.Thread(target=self._watch, args=(self._limit,), name="time limit", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the signal handlers; the end of a successful stage is also a safe point."""
        self._stop()
        if error is None and self._signal is not None:
            _raise_default(self._signal)

    def _stop(self) -> None:
        self._finished.set()
        for number, handler in self._former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former = {}

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            self._deliver()
        self._signal = number
        self._run.console.say(f"stopping {self._phase} at its next safe point; again to stop at once")

    def _deliver(self) -> None:
        assert self._signal is not None
        number, self._signal = self._signal, None
        self._stop()
        _raise_default(number)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._overdue:
            raise self._error()

    def _watch(self, limit: float) -> None:
        if self._finished.wait(limit):
            return
        self._overdue = True
        if self._thread is threading.main_thread():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        if self._finished.wait(_GRACE):
            return
        # The stage is stuck in code that Python cannot interrupt: report from this thread and exit.
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


def _raise_default(number: int) -> None:
    """Apply the signal's default effect; if that would kill the process, raise SystemExit instead."""
    if signal.getsignal(number) == signal.SIG_DFL:
        raise SystemExit(128 + number)
    signal.raise_signal(number)


_engines_free: ContextVar[threading.Event | None] = ContextVar("engines_free", default=None)


def release_engines() -> None:
    """Signal that the stage of this branch only has to write its artifact, so that others can use the engines."""
    event = _engines_free.get()
    if event is not None:
        event.set()


class Lane:
    """Runs branches of one or more stages, one at a time, in parallel to the main thread; results are futures."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._thread: Thread | None = None
        self._future: Future[Any] = Future()
        self._future.set_result(None)

    def start(self, branch: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Start a branch in parallel to the main thread, after the previous branch has ended."""
        return self._begin(partial(branch, *arguments), threading.Event(), parallel=self._run.overlaps)

    def hand_over(self, branch: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Wait for a stage's computation, then let it write its artifact in parallel to the main thread."""
        free = threading.Event()
        future = self._begin(partial(branch, *arguments), free, parallel=self._run.overlaps_commits)
        self._wait_until(lambda: free.is_set() or future.done())
        if future.done():
            future.result()
        return future

    def _begin(self, branch: Callable[[], T], free: threading.Event, *, parallel: bool) -> "Future[T]":
        self.wait()
        future: Future[T] = Future()
        parallel = parallel and current_run(self._run.name).control.executes

        def run_branch() -> None:
            _engines_free.set(free)
            try:
                future.set_result(branch())
            except BaseException as error:  # a thread's boundary: raised again by the main line
                if parallel:
                    self._run.control.halt.call(f"the run ends: {type(error).__name__}: {error}")
                future.set_exception(error)

        if not parallel:
            run_branch()
            future.result()
            return future
        self._future = future
        self._thread = Thread(target=copy_context().run, args=(run_branch,), name="branch", daemon=True)
        self._thread.start()
        return future

    def wait(self) -> None:
        """Wait for the running branch and raise its error. A signal ends the branch at its next safe point."""
        self._wait_until(self._future.done)
        self._thread = None
        self._future.result()

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        if self._thread is None:
            return
        with StageInterrupts(self._run, "the parallel branch") as interrupts:
            while not is_ready():
                self._thread.join(_POLL)
                if interrupts.is_pending:
                    self._run.control.halt.call("the run received a signal to stop")

    def abandon(self, error: BaseException) -> BaseException:
        """End the branch after the main thread failed with `error`. Returns the error that came first."""
        self._run.control.halt.call(f"the run ends: {type(error).__name__}: {error}")
        if self._thread is not None:
            self._thread.join()
        first = self._future.exception()
        return first if first is not None and isinstance(error, Halted) and not isinstance(first, Halted) else error


@contextmanager
def alongside(run_name: str) -> Iterator[Lane]:
    """Provide a lane for parallel stages; the block ends once both its code and the last branch have ended."""
    run = current_run(run_name)
    lane = Lane(run)
    if not (run.overlaps or run.overlaps_commits):
        yield lane
        return
    try:
        yield lane
        lane.wait()
    except BaseException as error:  # the branch must end before any error leaves
        first = lane.abandon(error)
        if first is not error:
            raise first from None
        raise
