"""One contained process: its start, its conversation, its end."""

import contextlib
import json
import marshal
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from infuser_core.system.child import Watch
from infuser_core.verifiers.sandbox import literals
from infuser_core.verifiers.sandbox.containment import ENVIRONMENT, NOBODY, PACKAGES, WORK, Containment, filter_program
from infuser_core.verifiers.sandbox.processes import Exchange, Tree, of_user
from infuser_core.verifiers.sandbox.program import Limits, Program, SandboxError, Status

START_SECONDS = 60.0
"""A sandbox that is not ready by then is broken, or the host is."""
TICK_SECONDS = 0.05
"""Seconds between two looks at the memory."""
PATIENCE = 2.0
"""Waiting for a processor is not held against a program, up to this many times its limit."""
NONCE_BYTES = 16
RECURSION = 50_000
"""Frames of Python; the stack below is large enough for them."""
STACK_BYTES = 112 << 20
"""Stack of the main thread: the kernel leaves 128 MiB below the next mapping."""
RESERVE_BYTES = 1 << 30
"""Address space beyond the memory limit: threads and allocators reserve what they never touch."""
OPEN_FILES = 64
PROCESSES = 24
"""Processes and threads."""
ERROR_BYTES = 1 << 13
"""Bytes kept of standard error."""
_HINT = "nothing is known of the program: run it again; if this repeats, the host is at fault"


class Cell:
    """A started sandbox. Use as a context: leaving it ends everything inside.

    The program sees an answer's nonce only with the question it belongs to, so it cannot answer a question that was not
    asked yet. Within a question it can claim any value: that is all a returned value ever is.
    """

    def __init__(self, containment: Containment, program: Program, limits: Limits, watch: Watch | None = None) -> None:
        self.limits = limits
        self._watch = watch or Watch()
        self.ended = False
        self._closing = contextlib.ExitStack()
        self._memory_at = 0.0
        started = False
        # Counted before the start, or the program would be one of them where this process is no root. The count is the
        # user's, not the sandbox's, where there is no user namespace.
        self._others = 0 if containment.mode == "bwrap" else of_user(os.geteuid() or NOBODY)
        try:
            self._start(containment, whole=program.kind == "stdin", scientific=program.scientific)
            nonce = secrets.token_bytes(NONCE_BYTES)
            self._exchange.send(self._requests, len(containment.boot).to_bytes(8, "little") + containment.boot)
            self._ask(self._order(containment, program, nonce))
            self._await_start(nonce)
            started = True
        except OSError as error:
            raise SandboxError(f"the sandbox did not start: {error.strerror}", hint=_HINT) from error
        finally:
            if not started:
                self.end()

    def __enter__(self) -> "Cell":
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def _start(self, containment: Containment, *, whole: bool, scientific: bool) -> None:
        """The process with its pipes; whatever is opened is closed by `end`, also when this fails half-way."""
        self._tree: Tree | None = None
        is_walled = containment.mode == "bwrap"
        folder = None if is_walled else self._closing.enter_context(_folder())
        self._exchange = Exchange()
        self._closing.callback(self._exchange.close)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            requests, self._requests = _pipe(theirs, ours)
            answers_from, answers = _pipe(ours, theirs)
            info_from, info = _pipe(ours, theirs) if is_walled else (-1, -1)
            filter_ = _filter_pipe(theirs) if is_walled else -1
            numbers = {"requests": requests, "answers": answers, "info": info, "filter_": filter_}
            stream = subprocess.PIPE if whole else subprocess.DEVNULL
            self._process = subprocess.Popen(
                containment.command(**numbers, disk_mb=self.limits.disk_mb, scientific=scientific),
                stdin=stream,
                stdout=stream,
                stderr=subprocess.PIPE,
                env={} if is_walled else ENVIRONMENT,
                cwd=folder or "/",
                pass_fds=[number for number in numbers.values() if number >= 0],
                start_new_session=True,
            )
            self._tree = Tree(self._process)
            if os.geteuid() == 0:
                # The program is nobody, and opens /dev/stdin by its name.
                for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                    if pipe is not None:
                        os.fchown(pipe.fileno(), NOBODY, NOBODY)
            ours.pop_all()
        self._connect(answers_from, info_from)

    def _connect(self, answers: int, info: int) -> None:
        self._exchange.outlet(self._requests)
        self._answers = self._exchange.inlet(answers, self.limits.value_bytes + 1024)
        self._info = self._exchange.inlet(info, ERROR_BYTES) if info >= 0 else None
        self._errors = self._exchange.inlet(_taken(self._process.stderr), ERROR_BYTES, keeps_end=True)
        self._output, self._stdin = None, -1
        if self._process.stdout is not None:
            self._output = self._exchange.inlet(_taken(self._process.stdout), self.limits.output_bytes)
            self._stdin = _taken(self._process.stdin)
            self._exchange.outlet(self._stdin)
        ending = os.pidfd_open(self._process.pid)
        self._closing.callback(os.close, ending)
        self._exchange.watch(ending)

    def _order(self, containment: Containment, program: Program, nonce: bytes) -> dict[str, Any]:
        seconds = self.limits.seconds if program.kind == "stdin" else self.limits.total_seconds
        limits = {
            "RLIMIT_CPU": math.ceil(seconds) + 1,
            "RLIMIT_AS": (self.limits.memory_mb << 20) + RESERVE_BYTES,
            "RLIMIT_STACK": STACK_BYTES,
            "RLIMIT_FSIZE": self.limits.disk_mb << 20,
            "RLIMIT_NOFILE": OPEN_FILES,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_NPROC": PROCESSES + self._others,
        }
        order = {"kind": program.kind, "source": program.source, "setup": program.setup, "entry": program.entry}
        shown = PACKAGES if program.scientific and containment.mode == "bwrap" else ""
        return {**order, "limits": list(limits.items()), "recursion": RECURSION, "nonce": nonce, "packages": shown}

    def _await_start(self, nonce: bytes) -> None:
        """Until the interpreter inside says, before the program runs, that its limits stand."""
        try:
            status = self.wait(self.is_answered, START_SECONDS)
            started = status is None and self.is_answered() and self.take(nonce) is None
        except (ValueError, RecursionError):
            started = False
        if started and self._info is not None:
            found = re.search(rb'"child-pid": *(\d+)', bytes(self._info.content))
            started = found is not None
            if found and self._tree is not None:
                self._tree.adopt(int(found.group(1)))
        if not started:
            raise SandboxError(f"the sandbox did not start: {self.last_words() or 'no message'}", hint=_HINT)

    def feed(self, text: str) -> None:
        """Gives the program its standard input."""
        self._exchange.send(self._stdin, text.encode("utf-8", "surrogatepass"), last=True)

    def ask(self, question: Any = None) -> bytes:
        """Sends a question of plain data and returns the nonce that its answer has to carry."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._ask(nonce if question is None else (nonce, question))
        return nonce

    def _ask(self, request: Any) -> None:
        # Version 2 keeps no identities: two equal arguments arrive as two objects.
        content = marshal.dumps(request, 2)
        self._exchange.send(self._requests, len(content).to_bytes(8, "little") + content)

    def answered(self, seconds: float) -> Status | None:
        """Waits for the answer to a question; None when it is there, else what came instead."""
        return self.wait(self.is_answered, seconds)

    def is_answered(self) -> bool:
        """Whether a whole answer has arrived."""
        content = self._answers.content
        return len(content) >= NONCE_BYTES + 8 and len(content) >= NONCE_BYTES + 8 + self._size()

    def _size(self) -> int:
        return int.from_bytes(self._answers.content[NONCE_BYTES : NONCE_BYTES + 8], "little")

    def take(self, nonce: bytes) -> Any:
        """The value of the answer that has arrived. Raises ValueError or RecursionError for anything but one."""
        content = self._answers.content
        end = NONCE_BYTES + 8 + self._size()
        given, text = bytes(content[:NONCE_BYTES]), bytes(content[NONCE_BYTES + 8 : end])
        del content[:end]
        if not secrets.compare_digest(given, nonce):
            raise ValueError("an answer that was not asked for")
        return literals.decode(json.loads(text.decode("ascii")))

    def wait(self, done: Callable[[], bool], seconds: float) -> Status | None:
        """Until `done` or the end of the process: None. A limit passed before that ends everything and is returned."""
        assert self._tree is not None, "started"
        began = self._watch.look()
        waited = self._tree.waited_seconds()
        limit = seconds
        while not done() and not self.ended:
            now = self._watch.look()
            if now - began > limit:
                limit = seconds + min(self._tree.waited_seconds() - waited, PATIENCE * seconds)
                if now - began > limit:
                    return self._stop(Status.TIMEOUT)
            if now - self._memory_at > TICK_SECONDS:
                self._memory_at = now
                if self._tree.held_bytes(WORK) > self.limits.memory_mb << 20:
                    return self._stop(Status.MEMORY)
            self._exchange.step(min(TICK_SECONDS, limit - (now - began)))
            if self._exchange.overflowed:
                return self._stop(Status.OUTPUT_LIMIT)
            if self._process.poll() is not None:
                self._finish()
        return Status.OUTPUT_LIMIT if self._exchange.overflowed else None

    @property
    def failed(self) -> bool:
        """Whether it ended by an exception that nobody caught, or by a signal."""
        return self._process.returncode != 0

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it although no limit was passed; bubblewrap reports a signal as 128 and its number."""
        return self._process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)

    def output(self) -> str:
        """Standard output so far."""
        return bytes(self._output.content).decode("utf-8", "replace") if self._output else ""

    def last_words(self) -> str:
        """Last line of standard error."""
        lines = bytes(self._errors.content).decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:300] if lines else ""

    def _stop(self, status: Status) -> Status:
        self.end()
        return status

    def _finish(self) -> None:
        """Ends what the program left behind, then reads what is still in the pipes."""
        if self.ended:
            return
        self.ended = True
        if self._tree is None:
            return
        gone = self._tree.end()
        self._exchange.drain()
        if not gone:
            raise SandboxError("processes of a sandbox cannot be killed", hint=_HINT)

    def end(self) -> None:
        """Kills everything inside and gives back every resource."""
        with self._closing.pop_all():
            self._finish()


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose two ends belong to two parties."""
    source, drain = os.pipe()
    reading.callback(os.close, source)
    writing.callback(os.close, drain)
    return source, drain


def _taken(stream: "IO[bytes] | None") -> int:
    """The descriptor of a stream, without the stream."""
    assert stream is not None, "asked for as a pipe"
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor


def _filter_pipe(theirs: contextlib.ExitStack) -> int:
    """A descriptor from which bubblewrap reads the filter of system calls; -1 where there is none."""
    content = filter_program()
    if not content:
        return -1
    with contextlib.ExitStack() as ours:
        reading, writing = _pipe(theirs, ours)
        # Shorter than a pipe's buffer, so that this cannot block.
        os.write(writing, content)
    return reading


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A working folder for a program without a file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="infuser-sandbox-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
