"""Worker processes: start them, exchange messages, notice silence and explain a death.

A worker is a process group with its own session, so a Ctrl-C for this process does not reach it. Messages pass through
a socket without blocking and without threads: both ends may send any amount before either reads. The worker prints to a
file of the caller or to standard error, never to this process's standard output. When this process ends, even by
SIGKILL, the kernel ends the worker's group at once. A forked child of this process does not keep its parent's workers
alive.
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
"""Time for a killed process to end, seconds."""
CHUNK = 1 << 20
"""Most bytes per read."""
SHORT = 0x7FFFFFFF
"""Largest message whose header is one signed 32-bit number, bytes; see multiprocessing.connection."""


class EndedError(EngineError):
    """The worker has ended or closed its connection."""


class Peer(ABC):
    """A process on this or another machine with which messages are exchanged.

    `output` becomes the hint of its errors: where to read its output.
    """

    def __init__(self, name: str, pid: int, *, output: str = "") -> None:
        self.name, self.pid, self.output = name, pid, output
        """Process id, which is also the id of its group."""
        self.silence = Watch()
        """Time since its last message."""

    @abstractmethod
    def send(self, *message: Any) -> None:
        """Send a message, without waiting until it is read."""

    @abstractmethod
    def waiting_seconds(self) -> float:
        """Age of the oldest unread message, seconds; 0 if it has read everything."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; a thread that waits for its message gets an EngineError."""

    @abstractmethod
    def close(self) -> None:
        """Kill it and close the connection; for the thread that receives its messages."""

    @abstractmethod
    def _next(self, seconds: float) -> Any:
        """The next message, or None after `seconds`. Raises EngineError if it is dead."""

    def receive(self, seconds: float = 0.0) -> Any:
        """The next message, or None after `seconds`. Raises EngineError with its reason if the worker is dead."""
        message = self._next(seconds)
        if message is not None:
            self.silence = Watch()
        return message

    def expect(self, *start: Any, seconds: float) -> tuple[Any, ...]:
        """Wait for the next message that begins with `start`. Raises EngineError after `seconds` without one."""
        deadline = time.monotonic() + seconds
        while (message := self.receive(deadline - time.monotonic())) is not None:
            if message[: len(start)] == start:
                received: tuple[Any, ...] = message
                return received
        raise self.hung(f"did not answer {start[-1]!r} within {seconds:.0f} s")

    def require_pace(self, seconds: float) -> None:
        """Raises EngineError if it was silent for `seconds`, or has left a message unread for as long."""
        if self.silence.look() > seconds:
            raise self.hung(f"has sent nothing for {seconds:.0f} s with work to do")
        if self.waiting_seconds() > seconds:
            raise self.hung(f"has taken no command for {seconds:.0f} s")

    def hung(self, what: str) -> EngineError:
        """The error for a worker that is alive and does not work."""
        return EngineError(f"{self.name} (pid {self.pid}) {what}", hint=self.output)


class WorkerProcess(Peer):
    """A process of this machine, started with `[*command, DESCRIPTOR, *arguments]`; it calls `connect(DESCRIPTOR)`.

    It prints to `log`, which its errors quote, or to standard error. This object closes the log. Messages are pickled
    unless another codec is passed. Raises OSError if it cannot be started.
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
                # Nothing is written there: the worker's group ends when it closes.
                stdin=subprocess.PIPE,
                stdout=2 if log is None else log,
                stderr=None if log is None else subprocess.STDOUT,
                start_new_session=True,
            )
            failed.pop_all()
        self._socket.setblocking(False)
        self._log, self._encode, self._decode = log, encode, decode
        # Time of sending, and bytes that are still unwritten.
        self._unwritten: deque[tuple[float, memoryview]] = deque()
        self._lock = threading.Lock()
        self._read = bytearray()
        self._messages: deque[Any] = deque()
        self._ended = False
        super().__init__(name, self._process.pid, output=output)
        _WORKERS.add(self)

    def send(self, *message: Any) -> None:
        """Send a message, without waiting until it is read; a dead worker shows when the next message is received."""
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
        """Processor time of the process so far, seconds; 0 once it has ended and was waited for."""
        with contextlib.suppress(OSError):
            # The number of another process's clock, as clock_getcpuclockid(3) makes it.
            return time.clock_gettime(~self.pid << 3 | 2)
        return 0.0

    def was_killed(self) -> bool:
        """Whether another process killed the ended one; False if it crashed itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) in FROM_OUTSIDE
        return False

    def kill(self) -> None:
        """End it and its children, at once; a thread that waits for its message gets EndedError.

        Warns if the process does not end: its accelerator may stay occupied.
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
        """Kill it and close the connection; for the thread that receives its messages."""
        self.kill()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the connection, which are copies of its parent's in a forked child."""
        assert self._process.stdin is not None, "requested as a pipe"
        self._process.stdin.close()
        self._socket.close()
        if self._log is not None:
            self._log.close()

    def death(self) -> EndedError:
        """The error for its end: exit status or signal, and the exception that it printed last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        reason = ""
        if self._log is not None:
            # The worker writes through the same offset: reading here must not move it.
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
        """Write as much as the socket takes."""
        with self._lock:
            while self._unwritten:
                since, rest = self._unwritten[0]
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    return
                except OSError:
                    # Its death shows when the next message is received.
                    self._unwritten.clear()
                    return
                if rest:
                    self._unwritten[0] = (since, rest)
                else:
                    self._unwritten.popleft()

    def _read_socket(self) -> bool:
        """Read what has arrived; False for nothing."""
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
    """Return when a worker has a message or is dead, or after `seconds`. Writes messages to them in the meantime."""
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
    """The last exception in a worker's output; empty without one."""
    lines = [line.strip() for line in output.splitlines()]
    exceptions = [line for line in lines if re.match(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    return exceptions[-1][:500] if exceptions else ""


def connect(descriptor: str) -> Connection:
    """Open, in the worker, the connection to its parent. From now on the kernel ends its group with the parent."""
    # Not the descriptor of the messages: each of them would cause a signal.
    life = os.dup(0)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:
        os.killpg(0, signal.SIGKILL)
    # Commands that the worker runs must get an empty input, and neither descriptor.
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.set_inheritable(int(descriptor), False)
    return Connection(int(descriptor))


_WORKERS: WeakSet[WorkerProcess] = WeakSet()


def _forget_workers() -> None:
    """In a forked child, close the copies of its parent's connections."""
    for worker in [*_WORKERS]:
        worker.forget()
    _WORKERS.clear()


os.register_at_fork(after_in_child=_forget_workers)
