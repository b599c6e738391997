r"""Persistent worker processes for what may hang: asked from any thread, killed when late, gone with their parent.

Workers are started when the first request needs one, run `symbolic.py` as a script in a bare interpreter (the parent's
main module is never imported again) and are used by one thread at a time. A request that is late costs its worker; the
next one is started at once, and meanwhile the others go on.

Limits count the processor time of the worker: the same request ends in the same way on an idle machine and on a busy
one. Only a worker that takes no processor time at all is ended by the clock on the wall, and its request asked again.
"""

import atexit
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from queue import LifoQueue

from infuser_core.child import WATCH_SECONDS, Watch, guess_of_kill
from infuser_core.errors import EngineError, KilledProcessError
from infuser_core.system.worker import EndedError, WorkerProcess

LIMIT_SECONDS = 4.0
"""Processor time of one request, by the worker's own clock: double what the slowest known decisions take, so that the
same pair does not pass on one day and fail on another."""
GRACE_SECONDS = 2.0
"""Processor time beyond a request's limit until the worker is killed: only what no longer runs Python gets there."""
IDLE_SECONDS = 60.0
"""Longest wait for a worker that takes no processor time: it was stopped, or waits for what never comes."""
ATTEMPTS = 3
"""Workers that a request gets when somebody else kills them."""
START_SECONDS = 60.0
"""Processor time of a worker's start: importing takes 0.4 s."""
SCRIPT = Path(__file__).with_name("symbolic.py")
"""The program of a worker."""


Reply = tuple[str, float]
"""A worker's word, or `late` or `lost` where it had to be given up, and the processor time of the request, seconds."""


class Worker(WorkerProcess):
    """One process that decides; its limits count its own processor time."""

    def __init__(self, script: Path) -> None:
        # An isolated interpreter ignores PYTHONPATH: those of this project and of math-verify.
        library = importlib.util.find_spec("math_verify")
        folders = [SCRIPT.parents[3], *([Path(library.origin).parents[1]] if library and library.origin else [])]
        # Until the worker is ready, this file takes what it prints; then it prints nowhere.
        super().__init__(
            [sys.executable, "-I", str(script)],
            [*map(str, folders)],
            name="the math worker",
            log=tempfile.TemporaryFile(),  # noqa: SIM115 - the worker closes it
            # A worker reads hostile text: nothing that it sends is unpickled.
            encode=lambda message: json.dumps(message[0]).encode(),
            decode=bytes.decode,
        )
        self._ready = False

    def start(self) -> None:
        """Wait until it is ready, once. Raises EngineError with its last words if it fails, EndedError if killed."""
        if self._ready:
            return
        try:
            self._answer(START_SECONDS)
        except (EndedError, TimeoutError) as error:
            if isinstance(error, EndedError) and self.killed():
                raise
            self.kill()
            message = f"verifiers: the math worker does not start: {self.death().message}"
            raise EngineError(message, hint="pip install 'math-verify[antlr4_13_2]>=0.9,<0.10'") from error
        self._ready = True

    def ask(self, request: Mapping[str, object], *, seconds: float) -> str:
        """The reply. Raises TimeoutError if it is late, EndedError if the worker is lost."""
        self.send({**request, "seconds": seconds})
        return self._answer(seconds + GRACE_SECONDS)

    def _answer(self, seconds: float) -> str:
        before = last = self.processor_seconds()
        idle = Watch()
        while (reply := self.receive(WATCH_SECONDS)) is None:
            now = self.processor_seconds()
            if now - before >= seconds:
                raise TimeoutError
            last, idle = (now, Watch()) if now > last else (last, idle)
            if idle.look() >= IDLE_SECONDS:
                self.kill()
        return str(reply)


class Pool:
    """At most `size` workers, started when needed."""

    def __init__(self, size: int, *, script: Path = SCRIPT) -> None:
        self.size = size
        self._script = script
        self._owner = os.getpid()
        self._closed = False
        self._workers: set[Worker] = set()
        # The last place given back is taken first: a place without a worker only when all that have one are busy.
        self._places: LifoQueue[Worker | None] = LifoQueue()
        for _ in range(size):
            self._places.put(None)

    def ask(self, request: Mapping[str, object], *, seconds: float = LIMIT_SECONDS) -> Reply:
        """The reply, after at most `seconds` of processor time. A worker that somebody kills, or that takes no time at
        all, costs a new one, not the reply.

        Raises EngineError when no worker can be started, KilledProcessError when one after the other is killed.
        """
        for _ in range(ATTEMPTS):
            reply = self._ask(request, seconds)
            if reply is not None:
                return reply
        raise KilledProcessError(
            f"verifiers: {ATTEMPTS} math workers were killed from outside, or idle for {IDLE_SECONDS:g} s",
            hint=f"{guess_of_kill()}; free some memory and resume",
        )

    def _ask(self, request: Mapping[str, object], seconds: float) -> Reply | None:
        """The reply of one worker; None where it was killed from outside, or idle."""
        deciding = self._places.get() or self._new()
        successor: Worker | None = None
        try:
            before = 0.0
            try:
                deciding.start()
                before = deciding.processor_seconds()
                text, successor = deciding.ask(request, seconds=seconds), deciding
            except (TimeoutError, EndedError) as error:
                text = "late" if isinstance(error, TimeoutError) else "lost"
                # It starts while nobody waits for it.
                successor = None if self._closed else self._new()
            used = max(deciding.processor_seconds() - before, 0.0)
            return None if text == "lost" and not self._closed and deciding.killed() else (text, used)
        finally:
            if successor is not deciding:
                self._workers.discard(deciding)
                deciding.close()
            self._places.put(successor)

    def _new(self) -> Worker:
        made = Worker(self._script)
        self._workers.add(made)
        return made

    def close(self) -> None:
        """End all workers, busy ones too. Does nothing in a forked child: they are not its own."""
        if os.getpid() == self._owner:
            self._closed = True
            for each in tuple(self._workers):
                each.kill()

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return sorted(each.pid for each in self._workers)


def pool() -> Pool:
    """The process's own pool."""
    return _POOL


def _own_pool() -> Pool:
    made = Pool(max(1, min(2, os.cpu_count() or 1)))
    atexit.register(made.close)
    return made


def _after_fork() -> None:
    global _POOL
    _POOL = _own_pool()


_POOL = _own_pool()
os.register_at_fork(after_in_child=_after_fork)
