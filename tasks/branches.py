"""Parallel branches of a run, where the configuration lets independent stages overlap.

The main line stays in its thread and hears signals; a branch has a thread of its own with Prefect's context. The first
failure ends both at their next safe points, and is the error that leaves. Where nothing overlaps, a branch runs at
once, in its place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, Generic, TypeVar

from tasks.interrupts import waiting
from tasks.run import Run, current
from tasks.run_control import Halted

T = TypeVar("T")
_LOOK = 0.1


class Promise(Generic[T]):
    """The result of a branch, once it has ended."""

    def __init__(self, branch: Callable[[], T]) -> None:
        self._branch = branch
        self._made: list[T] = []
        self.error: BaseException | None = None
        """Why it made nothing."""

    def keep(self) -> None:
        """Run the branch; whatever it raises is kept for the main line."""
        try:
            self._made.append(self._branch())
        except BaseException as error:  # a thread's boundary: raised again by the main line
            self.error = error

    def result(self) -> T:
        """The branch's result. Raises its error."""
        if self.error is not None:
            raise self.error
        assert self._made, "wait for the branch first"
        return self._made[0]


class Lane:
    """One branch at a time beside the main line."""

    def __init__(self, run: Run, *, overlaps: bool) -> None:
        self._run, self._overlaps = run, overlaps
        self._thread: Thread | None = None
        self._promise: Promise[Any] | None = None

    def start(self, branch: Callable[..., T], *arguments: Any) -> Promise[T]:
        """Run the branch beside what follows, after the one before."""
        promise = Promise(partial(branch, *arguments))
        self.wait()
        if not self._overlaps or not current(self._run.name).control.executes:
            promise.keep()
            promise.result()
            return promise
        self._promise = promise
        self._thread = Thread(target=copy_context().run, args=(self._work, promise), name="alongside", daemon=True)
        self._thread.start()
        return promise

    def wait(self) -> None:
        """The branch has ended. Raises its error; a signal ends it at its next safe point."""
        if self._thread is not None:
            with waiting(self._run, "what runs alongside") as guard:
                while self._thread.is_alive():
                    self._thread.join(_LOOK)
                    if guard.asked:
                        self._run.control.halt.call("the run was told to stop")
            self._thread = None
        if self._promise is not None:
            self._promise.result()

    def abandon(self, error: BaseException) -> BaseException:
        """The main line has failed: the branch ends too. Returns the error that came first.

        Whoever gave a signal is heard at once meanwhile.
        """
        self._run.control.halt.call(f"the run ends: {type(error).__name__}: {error}")
        if self._thread is not None:
            self._thread.join()
        first = self._promise.error if self._promise is not None else None
        return first if first is not None and isinstance(error, Halted) and not isinstance(first, Halted) else error

    def _work(self, promise: Promise[Any]) -> None:
        promise.keep()
        if promise.error is not None:
            self._run.control.halt.call(f"the run ends: {type(promise.error).__name__}: {promise.error}")


@contextmanager
def alongside(run_name: str) -> Iterator[Lane]:
    """A lane beside the code inside, which leaves when both have ended."""
    run = current(run_name)
    lane = Lane(run, overlaps=run.overlaps)
    if not run.overlaps:
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
