"""One sandboxed process: start it, send inputs, receive outputs, enforce its limits, end it."""

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
from infuser_core.verifiers.sandbox.processes import Exchange, Tree, count_of_user
from infuser_core.verifiers.sandbox.program import Limits, Program, SandboxError, Status

START_SECONDS = 60.0
"""Time limit for the start of a sandbox."""
TICK_SECONDS = 0.05
"""Interval of memory checks."""
PATIENCE = 2.0
"""Time without a processor does not count towards a program's time limit, up to this many times the limit."""
NONCE_BYTES = 16
RECURSION = 50_000
"""Python's recursion limit; its frames fit into `STACK_BYTES`."""
STACK_BYTES = 112 << 20
"""Stack of the main thread: the kernel leaves 128 MiB below the next mapping."""
RESERVE_BYTES = 1 << 30
"""Address space beyond the memory limit: threads and allocators reserve memory that they never use."""
OPEN_FILES = 64
PROCESSES = 24
"""Processes and threads."""
ERROR_BYTES = 1 << 13
"""Last bytes of standard error that are stored."""
_HINT = "nothing is known of the program: run it again; if this repeats, the host is at fault"


class Cell:
    """A running sandbox with one program. Use it as a context manager: leaving the context kills everything inside.

    Every answer must repeat the random nonce of its question. The program learns the nonce only with the question, so
    it cannot answer a later question in advance. A returned value is only the program's claim.
    """

    def __init__(self, containment: Containment, program: Program, limits: Limits, watch: Watch | None = None) -> None:
        self.limits = limits
        self._watch = watch or Watch()
        self.has_ended = False
        self._closing = contextlib.ExitStack()
        self._memory_at = 0.0
        started = False
        # Without a user namespace RLIMIT_NPROC counts all processes of the user. They are counted before the start, as
        # the program runs as the same user unless this process is root.
        self._others = 0 if containment.mode == "bwrap" else count_of_user(os.geteuid() or NOBODY)
        try:
            self._start(containment, whole=program.kind == "stdin", scientific=program.scientific)
            nonce = secrets.token_bytes(NONCE_BYTES)
            self._exchange.send(self._requests, len(containment.boot).to_bytes(8, "little") + containment.boot)
            self._send(self._start_order(containment, program, nonce))
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
        """Start the process with its pipes. `end` closes everything, even if the start fails half-way."""
        self._tree: Tree | None = None
        is_walled = containment.mode == "bwrap"
        folder = None if is_walled else self._closing.enter_context(_working_folder())
        self._exchange = Exchange()
        self._closing.callback(self._exchange.close)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            requests, self._requests = _pipe(theirs, ours)
            answers_from, answers = _pipe(ours, theirs)
            info_from, info = _pipe(ours, theirs) if is_walled else (-1, -1)
            filter_ = _open_filter(theirs) if is_walled else -1
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
                # The program runs as nobody and may open /dev/stdin by its name.
                for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                    if pipe is not None:
                        os.fchown(pipe.fileno(), NOBODY, NOBODY)
            ours.pop_all()
        self._connect(answers_from, info_from)

    def _connect(self, answers: int, info: int) -> None:
        self._exchange.add_outlet(self._requests)
        self._answers = self._exchange.add_inlet(answers, self.limits.value_bytes + 1024)
        self._info = self._exchange.add_inlet(info, ERROR_BYTES) if info >= 0 else None
        self._errors = self._exchange.add_inlet(_detach(self._process.stderr), ERROR_BYTES, keeps_end=True)
        self._output, self._stdin = None, -1
        if self._process.stdout is not None:
            self._output = self._exchange.add_inlet(_detach(self._process.stdout), self.limits.output_bytes)
            self._stdin = _detach(self._process.stdin)
            self._exchange.add_outlet(self._stdin)
        ending = os.pidfd_open(self._process.pid)
        self._closing.callback(os.close, ending)
        self._exchange.watch(ending)

    def _start_order(self, containment: Containment, program: Program, nonce: bytes) -> dict[str, Any]:
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
        packages = PACKAGES if program.scientific and containment.mode == "bwrap" else ""
        return {**order, "limits": list(limits.items()), "recursion": RECURSION, "nonce": nonce, "packages": packages}

    def _await_start(self, nonce: bytes) -> None:
        """Wait until the interpreter inside reports that its limits are set, before the program runs."""
        try:
            status = self.wait(self.has_answer, START_SECONDS)
            started = status is None and self.has_answer() and self.take_answer(nonce) is None
        except (ValueError, RecursionError):
            started = False
        if started and self._info is not None:
            match = re.search(rb'"child-pid": *(\d+)', bytes(self._info.content))
            started = match is not None
            if match and self._tree is not None:
                self._tree.adopt(int(match.group(1)))
        if not started:
            raise SandboxError(f"the sandbox did not start: {self.last_words() or 'no message'}", hint=_HINT)

    def send_stdin(self, text: str) -> None:
        """Send the program its standard input."""
        self._exchange.send(self._stdin, text.encode("utf-8", "surrogatepass"), last=True)

    def ask(self, question: Any = None) -> bytes:
        """Send a question made of plain data. Returns the nonce that the answer must repeat."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._send(nonce if question is None else (nonce, question))
        return nonce

    def _send(self, request: Any) -> None:
        # Version 2 has no references: two identical arguments arrive as two objects.
        content = marshal.dumps(request, 2)
        self._exchange.send(self._requests, len(content).to_bytes(8, "little") + content)

    def wait_for_answer(self, seconds: float) -> Status | None:
        """Wait for an answer or the end of the process. Returns the limit that was exceeded, or None."""
        return self.wait(self.has_answer, seconds)

    def wait_for_end(self, seconds: float) -> Status | None:
        """Wait for the end of the process. Returns the limit that was exceeded, or None."""
        return self.wait(lambda: self.has_ended, seconds)

    def has_answer(self) -> bool:
        """Whether a complete answer has arrived."""
        content = self._answers.content
        return len(content) >= NONCE_BYTES + 8 and len(content) >= NONCE_BYTES + 8 + self._size()

    def _size(self) -> int:
        return int.from_bytes(self._answers.content[NONCE_BYTES : NONCE_BYTES + 8], "little")

    def take_answer(self, nonce: bytes) -> Any:
        """The value of the answer that has arrived. Raises ValueError or RecursionError if it is malformed."""
        content = self._answers.content
        end = NONCE_BYTES + 8 + self._size()
        received, text = bytes(content[:NONCE_BYTES]), bytes(content[NONCE_BYTES + 8 : end])
        del content[:end]
        if not secrets.compare_digest(received, nonce):
            raise ValueError("an answer that was not asked for")
        return literals.decode(json.loads(text.decode("ascii")))

    def wait(self, condition: Callable[[], bool], seconds: float) -> Status | None:
        """Wait for a condition or the end of the process. Returns None, or kills all and returns the limit exceeded."""
        assert self._tree is not None, "started"
        start = self._watch.look()
        waited_before = self._tree.waited_seconds()
        limit = seconds
        while not condition() and not self.has_ended:
            now = self._watch.look()
            if now - start > limit:
                limit = seconds + min(self._tree.waited_seconds() - waited_before, PATIENCE * seconds)
                if now - start > limit:
                    return self._stop(Status.TIMEOUT)
            if now - self._memory_at > TICK_SECONDS:
                self._memory_at = now
                if self._tree.held_bytes(WORK) > self.limits.memory_mb << 20:
                    return self._stop(Status.MEMORY)
            self._exchange.step(min(TICK_SECONDS, limit - (now - start)))
            if self._exchange.overflowed:
                return self._stop(Status.OUTPUT_LIMIT)
            if self._process.poll() is not None:
                self._finish()
        return Status.OUTPUT_LIMIT if self._exchange.overflowed else None

    @property
    def failed(self) -> bool:
        """Whether the process ended by an uncaught exception or by a signal."""
        return self._process.returncode != 0

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended the process; bubblewrap reports a signal as 128 + its number."""
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
        """End the remaining processes, then read what is still in the pipes."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._tree is None:
            return
        all_ended = self._tree.end()
        self._exchange.drain()
        if not all_ended:
            raise SandboxError("processes of a sandbox cannot be killed", hint=_HINT)

    def end(self) -> None:
        """Kill everything inside and release all resources."""
        with self._closing.pop_all():
            self._finish()


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Open a pipe. The stack `reading` closes its read end, the stack `writing` its write end."""
    source, drain = os.pipe()
    reading.callback(os.close, source)
    writing.callback(os.close, drain)
    return source, drain


def _detach(stream: "IO[bytes] | None") -> int:
    """Close a stream and return a duplicate of its descriptor."""
    assert stream is not None, "opened as a pipe"
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor


def _open_filter(theirs: contextlib.ExitStack) -> int:
    """A descriptor from which bubblewrap reads the system call filter; -1 if this machine has none."""
    content = filter_program()
    if not content:
        return -1
    with contextlib.ExitStack() as ours:
        reading, writing = _pipe(theirs, ours)
        # The filter fits into the pipe's buffer, so this cannot block.
        os.write(writing, content)
    return reading


@contextlib.contextmanager
def _working_folder() -> Iterator[Path]:
    """A temporary working folder for a program without a private file system."""
    folder = Path(tempfile.mkdtemp(prefix="infuser-sandbox-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
