r"""A pool of persistent worker processes for symbolic mathematics, which may hang: late workers are killed.

Workers start on demand, run `symbolic.py` as a script in an isolated interpreter (the parent's main module is not
imported again), serve one thread at a time and end with their parent.

Limits count the processor time of the worker, so that a request has the same result on an idle and on a busy machine.
Only a worker that uses no processor time at all is killed by wall-clock time, and its request is sent again.
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

from infuser_core.errors import EngineError, KilledProcessError
from infuser_core.system.child import WATCH_SECONDS, Watch, likely_kill_cause
from infuser_core.system.worker import EndedError, WorkerProcess

LIMIT_SECONDS = 4.0
"""Processor time of one request, by the worker's timer: twice that of the slowest known decisions, so that the same
pair always has the same verdict."""
GRACE_SECONDS = 2.0
"""Processor time beyond a request's limit until the parent kills the worker, which then no longer runs Python code."""
IDLE_SECONDS = 60.0
"""Longest wall-clock wait for a worker that uses no processor time."""
ATTEMPTS = 3
"""Workers that try a request if they are killed from outside."""
START_SECONDS = 60.0
"""Processor time of a worker's start: importing takes 0.4 s."""
SCRIPT = Path(__file__).with_name("symbolic.py")
Reply = tuple[str, float]
"""A worker's reply, or `late` or `lost` if it did not answer, and the processor time of the request, seconds."""


class Worker(WorkerProcess):
    """A process that runs `symbolic.py`; its limits count its processor time."""

    def __init__(self, script: Path) -> None:
        # An isolated interpreter ignores PYTHONPATH: pass the folders of this project and of math-verify.
        library = importlib.util.find_spec("math_verify")
        folders = [SCRIPT.parents[3], *([Path(library.origin).parents[1]] if library and library.origin else [])]
        # The log holds the worker's output until it is ready; later output is discarded.
        super().__init__(
            [sys.executable, "-I", str(script)],
            [*map(str, folders)],
            name="the math worker",
            log=tempfile.TemporaryFile(),  # noqa: SIM115 - the worker closes it
            # A worker parses hostile text: never unpickle what it sends.
            encode=lambda message: json.dumps(message[0]).encode(),
            decode=bytes.decode,
        )
        self._ready = False

    def start(self) -> None:
        """Wait on the first call until the worker is ready.

        Raises EngineError with the worker's last output if it fails, EndedError if it is killed.
        """
        if self._ready:
            return
        try:
            self._answer(START_SECONDS)
        except (EndedError, TimeoutError) as error:
            if isinstance(error, EndedError) and self.was_killed():
                raise
            self.kill()
            message = f"verifiers: the math worker does not start: {self.death().message}"
            raise EngineError(message, hint="pip install 'math-verify[antlr4_13_2]>=0.9,<0.10'") from error
        self._ready = True

    def ask(self, request: Mapping[str, object], *, seconds: float) -> str:
        """Send a request and return the reply. Raises TimeoutError if it is late, EndedError if the worker is lost."""
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
        # Last in, first out: a slot without a worker is used only if all workers are busy.
        self._places: LifoQueue[Worker | None] = LifoQueue()
        for _ in range(size):
            self._places.put(None)

    def ask(self, request: Mapping[str, object], *, seconds: float = LIMIT_SECONDS) -> Reply:
        """Send a request to a free worker and return the reply, after at most `seconds` of processor time.

        If the worker is killed from outside, or is idle too long, another one gets the request.

        Raises EngineError if no worker can be started, KilledProcessError if `ATTEMPTS` workers are killed.
        """
        for _ in range(ATTEMPTS):
            reply = self._ask(request, seconds)
            if reply is not None:
                return reply
        raise KilledProcessError(
            f"verifiers: {ATTEMPTS} math workers were killed from outside, or idle for {IDLE_SECONDS:g} s",
            hint=f"{likely_kill_cause()}; free some memory and resume",
        )

    def _ask(self, request: Mapping[str, object], seconds: float) -> Reply | None:
        """Send a request to one worker. Returns None if it was killed from outside, or idle too long."""
        worker = self._places.get() or self._new_worker()
        successor: Worker | None = None
        try:
            before = 0.0
            try:
                worker.start()
                before = worker.processor_seconds()
                text, successor = worker.ask(request, seconds=seconds), worker
            except (TimeoutError, EndedError) as error:
                text = "late" if isinstance(error, TimeoutError) else "lost"
                # Start the next worker before a request needs it.
                successor = None if self._closed else self._new_worker()
            used = max(worker.processor_seconds() - before, 0.0)
            return None if text == "lost" and not self._closed and worker.was_killed() else (text, used)
        finally:
            if successor is not worker:
                self._workers.discard(worker)
                worker.close()
            self._places.put(successor)

    def _new_worker(self) -> Worker:
        worker = Worker(self._script)
        self._workers.add(worker)
        return worker

    def close(self) -> None:
        """End all workers, busy ones too. Does nothing in a forked child: the workers are its parent's."""
        if os.getpid() == self._owner:
            self._closed = True
            for worker in tuple(self._workers):
                worker.kill()

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return sorted(worker.pid for worker in self._workers)


def pool() -> Pool:
    """The pool of math workers of this process."""
    return _POOL


def _new_pool() -> Pool:
    pool = Pool(max(1, min(2, os.cpu_count() or 1)))
    atexit.register(pool.close)
    return pool


def _replace_pool() -> None:
    global _POOL
    _POOL = _new_pool()


_POOL = _new_pool()
os.register_at_fork(after_in_child=_replace_pool)
