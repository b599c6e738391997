"""Worker processes: start them, exchange messages, detect hangs, and report why a worker died.

A worker has its own session and process group, so a Ctrl-C for this process does not reach it. Messages pass through a
socket without blocking and without threads: both ends may send any amount before either reads. The worker's output goes
to a file of the caller or to standard error, never to this process's standard output. When this process ends, even by
SIGKILL, the kernel ends the worker's group at once. A forked child of this process does not keep the workers alive.
"""

import contextlib
import fcntl
import os
import pickle
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from infuser_core.errors import EngineError, EngineWarning
from infuser_core.system.child import FROM_OUTSIDE, LOOK_SECONDS, Watch

ENDING_SECONDS = 10.0
"""Time that a killed process has to end, seconds."""
CHUNK = 1 << 20
"""Maximum bytes per read."""
SHORT = 0x7FFFFFFF
"""Size of the largest message whose header is one signed 32-bit number, bytes; see multiprocessing.connection."""


class EndedError(EngineError):
    """The worker has ended or closed its connection."""


class Peer(ABC):
    """A worker process on this or another machine, with a connection for sending and receiving messages.

    `output` says where its output can be read; it becomes the hint of errors.
    """

    def __init__(self, name: str, pid: int, *, output: str = "") -> None:
        self.name, self.pid, self.output = name, pid, output
        """Process id, which is also the id of its group."""
        self.silence = Watch()
        """Clock of the time since the worker's last message."""

    @abstractmethod
    def send(self, *message: Any) -> None:
        """Send a message to the worker, without waiting until it is read."""

    @abstractmethod
    def waiting_seconds(self) -> float:
        """Age of the oldest message that the worker has not read, seconds; 0 if it has read all."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the worker at once; a thread that waits for its message gets an EngineError."""

    @abstractmethod
    def close(self) -> None:
        """Kill the worker and close the connection. Only the thread that receives its messages may call this."""

    @abstractmethod
    def _next(self, seconds: float) -> Any:
        """Wait for the worker's next message; None after `seconds`. Raises EngineError if the worker is dead."""

    def receive(self, seconds: float = 0.0) -> Any:
        """Wait for the worker's next message; None after `seconds`. Raises EngineError with the cause if it is dead."""
        message = self._next(seconds)
        if message is not None:
            self.silence = Watch()
        return message

    def expect(self, *start: Any, seconds: float) -> tuple[Any, ...]:
        """Wait for a message that begins with `start`; drops all others. Raises EngineError after `seconds`."""
        deadline = time.monotonic() + seconds
        while (message := self.receive(deadline - time.monotonic())) is not None:
            if message[: len(start)] == start:
                received: tuple[Any, ...] = message
                return received
        raise self.hung(f"did not answer {start[-1]!r} within {seconds:.0f} s")

    def require_pace(self, seconds: float) -> None:
        """Raise EngineError if the worker sent nothing for `seconds`, or left a message unread for so long."""
        if self.silence.look() > seconds:
            raise self.hung(f"has sent nothing for {seconds:.0f} s with work to do")
        if self.waiting_seconds() > seconds:
            raise self.hung(f"has taken no command for {seconds:.0f} s")

    def hung(self, what: str) -> EngineError:
        """Create the error for a worker that hangs; `what` describes the symptom."""
        return EngineError(f"{self.name} (pid {self.pid}) {what}", hint=self.output)


class WorkerProcess(Peer):
    """A worker process on this machine, started with `[*command, DESCRIPTOR, *arguments]`.

    The worker must call `connect(DESCRIPTOR)`. Its output goes to `log`, which errors quote and this object closes, or
    to standard error. Messages are pickled unless `encode` and `decode` are passed. Raises OSError if it cannot be
    started.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        name: str,
        log: IO[bytes] | None = None,
        output: str = "",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        encode: Callable[[Any], bytes] = pickle.dumps,
        decode: Callable[[bytes], Any] = pickle.loads,
    ) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as failed:
            failed.callback(self._socket.close)
            if log is not None:
                failed.callback(log.close)
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), *arguments],
                cwd=folder,
                env=environment,
                pass_fds=[theirs.fileno()],
                # Never written to: when the pipe closes, the worker's process group is ended.
                stdin=subprocess.PIPE,
                stdout=2 if log is None else log,
                stderr=None if log is None else subprocess.STDOUT,
                start_new_session=True,
            )
            failed.pop_all()
        self._socket.setblocking(False)
        self._log, self._encode, self._decode = log, encode, decode
        # Messages not yet written completely: time of sending, and remaining bytes.
        self._unwritten: deque[tuple[float, memoryview]] = deque()
        self._lock = threading.Lock()
        self._read = bytearray()
        self._messages: deque[Any] = deque()
        self._ended = False
        super().__init__(name, self._process.pid, output=output)
        _WORKERS.add(self)

    def send(self, *message: Any) -> None:
        """Send a message, without waiting until it is read. Raises nothing if the worker is dead: `receive` does."""
        body = self._encode(message)
        size = len(body)
        header = struct.pack("!i", size) if size <= SHORT else struct.pack("!iQ", -1, size)
        with self._lock:
            self._unwritten.append((time.monotonic(), memoryview(header + body)))
        self._write()

    def waiting_seconds(self) -> float:
        self._write()
        with self._lock:
            return time.monotonic() - self._unwritten[0][0] if self._unwritten else 0.0

    def processor_seconds(self) -> float:
        """Processor time that the worker has used, seconds; 0 after it has ended and was waited for."""
        with contextlib.suppress(OSError):
            # The id of the worker's processor clock, computed as in clock_getcpuclockid(3).
            return time.clock_gettime(~self.pid << 3 | 2)
        return 0.0

    def was_killed(self) -> bool:
        """Whether the worker was killed by another process; False if it crashed or is still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) in FROM_OUTSIDE
        return False

    def kill(self) -> None:
        """Kill the worker and its children at once; a thread that waits for its message gets EndedError.

        Warns if the worker does not end, as its accelerator may stay occupied.
        """
        with contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.killpg(self.pid, signal.SIGKILL)
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            text = f"{self.name} (pid {self.pid}) was killed and has not ended within {ENDING_SECONDS:.0f} s"
            warnings.warn(text, EngineWarning, stacklevel=2)

    def close(self) -> None:
        """Kill the worker and close the connection. Only the thread that receives its messages may call this."""
        self.kill()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the connection. In a forked child they are copies: the worker lives on."""
        assert self._process.stdin is not None, "requested as a pipe"
        self._process.stdin.close()
        self._socket.close()
        if self._log is not None:
            self._log.close()

    def death(self) -> EndedError:
        """Create the error for a dead worker: exit status or signal, and the exception that it printed last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        reason = ""
        if self._log is not None:
            # pread, because the worker writes at the same file offset, which must not move.
            printed = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0)
            reason = last_words(printed.decode(errors="replace"))
        return EndedError(f"{self.name} (pid {self.pid}) {how}{f': {reason}' if reason else ''}", hint=self.output)

    def _next(self, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not self._messages:
            if self._ended:
                raise self.death()
            remaining = deadline - time.monotonic()
            wait([self], min(remaining, LOOK_SECONDS))
            # A child of the worker may hold the connection open after the worker itself has died.
            is_dead = self._process.poll() is not None
            if not self._read_socket() and is_dead:
                self._ended = True
            elif not self._messages and not self._ended and remaining <= 0:
                return None
        return self._messages.popleft()

    def _write(self) -> None:
        """Write as much of the waiting messages as the socket takes without blocking."""
        with self._lock:
            while self._unwritten:
                since, rest = self._unwritten[0]
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    return
                except OSError:
                    # The worker is dead, which `receive` will report.
                    self._unwritten.clear()
                    return
                if rest:
                    self._unwritten[0] = (since, rest)
                else:
                    self._unwritten.popleft()

    def _read_socket(self) -> bool:
        """Read the bytes that have arrived and decode complete messages; False if no bytes have arrived."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._ended = not data
        self._read += data
        while len(self._read) >= 4:
            start, size = 4, struct.unpack_from("!i", self._read)[0]
            if size == -1 and len(self._read) >= 12:
                start, size = 12, struct.unpack_from("!Q", self._read, 4)[0]
            if size == -1 or len(self._read) < start + size:
                break
            with memoryview(self._read) as view:
                self._messages.append(self._decode(bytes(view[start : start + size])))
            del self._read[: start + size]
        return bool(data)


def wait(workers: Sequence[WorkerProcess], seconds: float) -> None:
    """Wait until a worker has sent something or is dead, or for `seconds`; also writes waiting messages."""
    deadline = time.monotonic() + seconds
    while not any(worker._messages or worker._ended for worker in workers):
        poll = select.poll()
        for worker in workers:
            worker._write()
            poll.register(worker._socket, select.POLLIN | (select.POLLOUT if worker._unwritten else 0))
        ready = poll.poll(max(deadline - time.monotonic(), 0.0) * 1000)
        if not ready or any(events & ~select.POLLOUT for _, events in ready):
            return


def last_words(output: str) -> str:
    """The last exception's line in a worker's output; empty if there is none."""
    lines = [line.strip() for line in output.splitlines()]
    exceptions = [line for line in lines if re.match(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    return exceptions[-1][:500] if exceptions else ""


def connect(descriptor: str) -> Connection:
    """Open the connection to the parent process; called by the worker.

    From now on, the kernel ends the worker's process group when the parent ends.
    """
    # Watch standard input, not the descriptor of the messages: each message would cause a signal.
    life = os.dup(0)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:
        os.killpg(0, signal.SIGKILL)
    # Commands that the worker runs must get an empty standard input and inherit neither descriptor.
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.set_inheritable(int(descriptor), False)
    return Connection(int(descriptor))


_WORKERS: WeakSet[WorkerProcess] = WeakSet()


def _forget_workers() -> None:
    """Close a forked child's copies of its parent's connections to workers."""
    for worker in [*_WORKERS]:
        worker.forget()
    _WORKERS.clear()


os.register_at_fork(after_in_child=_forget_workers)
