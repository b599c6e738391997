"""Processes and pipes of one sandbox: which there are, what they hold, what they say, and their end."""

import contextlib
import os
import select
import selectors
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

CHUNK = 1 << 18
"""Bytes moved at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlet:
    """Bytes received on one descriptor."""

    limit: int
    """Bytes kept; one more is an overflow."""
    keeps_end: bool
    """Whether what exceeds the limit pushes out the oldest bytes instead of being an overflow."""
    content: bytearray = field(default_factory=bytearray)
    """Bytes received and not yet taken."""


class Exchange:
    """Reads and writes whatever is ready. Descriptors handed to it are closed by it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._inlets: dict[int, Inlet] = {}
        self._outlets: dict[int, bytearray] = {}
        self._last: set[int] = set()
        self.overflowed = False

    def inlet(self, descriptor: int, limit: int, *, keeps_end: bool = False) -> Inlet:
        """Receive on a descriptor."""
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._inlets[descriptor] = Inlet(limit=limit, keeps_end=keeps_end)
        return self._inlets[descriptor]

    def watch(self, descriptor: int) -> None:
        """Wake up when a descriptor that is not read becomes readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def outlet(self, descriptor: int) -> None:
        """Send on a descriptor."""
        os.set_blocking(descriptor, False)
        self._outlets[descriptor] = bytearray()

    def send(self, descriptor: int, content: bytes, *, last: bool = False) -> None:
        """Queue bytes for an outlet; `last` closes it after them."""
        if not self._outlets[descriptor]:
            self._selector.register(descriptor, selectors.EVENT_WRITE)
        self._outlets[descriptor] += content
        if last:
            self._last.add(descriptor)

    def step(self, timeout: float) -> None:
        """Moves what can be moved, waiting for it up to `timeout` seconds."""
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fd in self._inlets:
                self._read(key.fd)
            elif key.fd in self._outlets:
                self._write(key.fd)

    def drain(self) -> None:
        """Reads what is left in the pipes once nobody writes any more."""
        for descriptor in list(self._inlets):
            while descriptor in self._inlets and not self.overflowed and self._read(descriptor):
                pass

    def close(self) -> None:
        """Closes every descriptor."""
        self._selector.close()
        for descriptor in {*self._inlets, *self._outlets}:
            os.close(descriptor)
        self._inlets.clear()
        self._outlets.clear()

    def _read(self, descriptor: int) -> bool:
        """Whether there was something to read."""
        inlet = self._inlets[descriptor]
        try:
            part = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        inlet.content.extend(part)
        if len(inlet.content) > inlet.limit:
            if inlet.keeps_end:
                del inlet.content[: -inlet.limit]
            else:
                self.overflowed = True
        if not part:
            self._drop(descriptor)
            del self._inlets[descriptor]
        return bool(part)

    def _write(self, descriptor: int) -> None:
        waiting = self._outlets[descriptor]
        try:
            del waiting[: os.write(descriptor, memoryview(waiting)[:CHUNK].tobytes())]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # A program need not read its input.
            waiting.clear()
        if waiting:
            return
        if descriptor in self._last:
            self._drop(descriptor)
            del self._outlets[descriptor]
        else:
            self._selector.unregister(descriptor)

    def _drop(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)


PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
NAME_BYTES = 1 << 10
"""Kernel memory of an empty file, about."""
END_SECONDS = 10.0
"""A killed namespace that is still there after this long is a broken host."""


class Tree:
    """A process and everything below it.

    Inside a process namespace nothing gets away: orphans become children of the namespace's first process, and with it
    the kernel ends them all before the end of the first one can be seen.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.top = process.pid
        self._first = -1
        self._ended = False

    def adopt(self, first: int) -> None:
        """`first` is process 1 of the namespace; nothing is held of one whose tree has ended already."""
        if self._ended:
            return
        with contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(first)
            self.top = first

    def members(self) -> list[int]:
        """Process ids, the top one included."""
        found, waiting = [], [self.top]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += _children(pid)
        return found

    def held_bytes(self, folder: str) -> int:
        """Memory of all of them, pages that two share counted twice, and of the files in their working folder."""
        resident = sum(int(_field(pid, "statm", 1)) * PAGE for pid in self.members())
        if self._first < 0:
            return resident
        with contextlib.suppress(OSError):
            used = os.statvfs(f"/proc/{self.top}/root{folder}")
            # A limit on the size of a file system in memory does not count its names: empty files are not free.
            names = (used.f_files - used.f_ffree) * NAME_BYTES
            return resident + names + (used.f_blocks - used.f_bfree) * used.f_frsize
        return resident

    def waited_seconds(self) -> float:
        """Longest time that one of them was ready to run and had no processor."""
        return max(int(_field(pid, "schedstat", 1)) for pid in self.members()) / 1e9

    def end(self) -> bool:
        """Kills all; whether all are gone."""
        gone, self._ended = True, True
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        else:
            # Without a namespace a member can start others while it is looked for: sweep until none is left.
            for _ in range(100):
                below = self.members()[1:]
                for pid in below:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                if not below:
                    break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self._first >= 0:
            # `select.select` refuses descriptors from 1,024 on, which a process with many files has.
            ending = select.poll()
            ending.register(self._first, select.POLLIN)
            gone = bool(ending.poll(END_SECONDS * 1000))
            os.close(self._first)
            self._first = -1
        self.process.kill()
        self.process.wait()
        return gone


def of_user(uid: int) -> int:
    """Processes and threads that a user has now."""
    count = 0
    for folder in PROC.iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                count += len(list((folder / "task").iterdir()))
    return count


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def _field(pid: int, name: str, place: int) -> bytes:
    """One number of a file under /proc; 0 for a process that has ended."""
    with contextlib.suppress(OSError, IndexError):
        return (PROC / str(pid) / name).read_bytes().split()[place]
    return b"0"
