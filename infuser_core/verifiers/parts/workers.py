r"""Persistent worker processes for what may hang: asked from any thread, killed when late, gone with their parent.

Workers are started when the first request needs one, run `symbolic.py` as a script in a bare interpreter (the parent's
main module is never imported again) and are used by one thread at a time. A request that is late costs its worker; the
next one is started at once, and meanwhile the others go on.

Limits count the processor time of the worker: the same request ends in the same way on an idle machine and on a busy
one. Only a worker that takes no processor time at all is ended by the clock on the wall, and its request asked again.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from queue import LifoQueue

from infuser_core.child import FROM_OUTSIDE, WATCH_SECONDS, Watch, guess_of_kill
from infuser_core.errors import EngineError, KilledProcessError

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


class Worker:
    """One process and the pipes to it."""

    def __init__(self, script: Path) -> None:
        requests, self._outbox = Pipe(duplex=False)
        self._inbox, replies = Pipe(duplex=False)
        ends = (requests.fileno(), replies.fileno())
        # An isolated interpreter ignores PYTHONPATH: those of this project and of math-verify.
        found = importlib.util.find_spec("math_verify")
        folders = [SCRIPT.parents[3], *([Path(found.origin).parents[1]] if found and found.origin else [])]
        with requests, replies:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(script), *map(str, (*ends, *folders))],
                pass_fds=ends,
                # Nothing is written there: the worker ends when it closes.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._ready = False

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def start(self) -> None:
        """Wait until it is ready, once. Raises EngineError with its last words when it fails, EOFError when killed."""
        if self._ready:
            return
        try:
            self._receive(START_SECONDS)
        except (EOFError, TimeoutError) as error:
            if isinstance(error, EOFError) and self.killed():
                raise
            self.kill()
            assert self._process.stderr is not None, "asked for as a pipe"
            said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
            last = said[-1] if said else f"exit code {self._process.returncode}"
            message = f"verifiers: the math worker does not start: {last}"
            raise EngineError(message, hint="pip install 'math-verify[antlr4_13_2]>=0.9,<0.10'") from error
        self._ready = True

    def ask(self, request: Mapping[str, object], *, seconds: float) -> str:
        """The reply. Raises TimeoutError when it is late, EOFError or BrokenPipeError when the worker is lost."""
        self._outbox.send_bytes(json.dumps({**request, "seconds": seconds}).encode())
        return self._receive(seconds + GRACE_SECONDS)

    def _receive(self, seconds: float) -> str:
        before = last = self.used()
        idle = Watch()
        while not self._inbox.poll(WATCH_SECONDS):
            now = self.used()
            if now - before >= seconds:
                raise TimeoutError
            last, idle = (now, Watch()) if now > last else (last, idle)
            if idle.look() >= IDLE_SECONDS:
                self.kill()
        return self._inbox.recv_bytes().decode()

    def used(self) -> float:
        """Processor time of the process so far, seconds; 0 once it has ended and was waited for."""
        with contextlib.suppress(OSError):
            # The number of another process's clock, as clock_getcpuclockid(3) makes it.
            return time.clock_gettime(~self.pid << 3 | 2)
        return 0.0

    def killed(self) -> bool:
        """Whether somebody else ended the lost process: a request makes it crash, it does not kill it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) in FROM_OUTSIDE
        return False

    def kill(self) -> None:
        """End the process, now; whoever waits for its reply learns that it is lost."""
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Close this process's ends of the pipes and leave the worker to whom it belongs."""
        assert self._process.stdin is not None and self._process.stderr is not None, "asked for as pipes"
        for end in (self._outbox, self._inbox, self._process.stdin, self._process.stderr):
            end.close()


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
        worker = self._places.get() or self._new()
        kept: Worker | None = None
        try:
            before = 0.0
            try:
                worker.start()
                before = worker.used()
                text, kept = worker.ask(request, seconds=seconds), worker
            except (TimeoutError, EOFError, BrokenPipeError) as error:
                text = "late" if isinstance(error, TimeoutError) else "lost"
                # It starts while nobody waits for it.
                kept = None if self._closed else self._new()
            used = max(worker.used() - before, 0.0)
            return None if text == "lost" and not self._closed and worker.killed() else (text, used)
        finally:
            if kept is not worker:
                self._workers.discard(worker)
                worker.kill()
                worker.forget()
            self._places.put(kept)

    def _new(self) -> Worker:
        worker = Worker(self._script)
        self._workers.add(worker)
        return worker

    def close(self) -> None:
        """End all workers, busy ones too. Does nothing in a forked child: they are not its own."""
        if os.getpid() == self._owner:
            self._closed = True
            for worker in tuple(self._workers):
                worker.kill()

    def forget(self) -> None:
        """In a forked child: drop the parent's workers without touching them."""
        for worker in self._workers:
            worker.forget()

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return sorted(worker.pid for worker in self._workers)


def pool() -> Pool:
    """The process's own pool."""
    return _POOL


def _own_pool() -> Pool:
    made = Pool(max(1, min(2, os.cpu_count() or 1)))
    atexit.register(made.close)
    return made


def _after_fork() -> None:
    global _POOL
    _POOL.forget()
    _POOL = _own_pool()


_POOL = _own_pool()
os.register_at_fork(after_in_child=_after_fork)
