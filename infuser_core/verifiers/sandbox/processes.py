"""Pipes of a sandbox, and its process tree: measure its memory and waiting time, kill it."""

import contextlib
import os
import select
import selectors
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

CHUNK = 1 << 18
"""Most bytes per read or write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlet:
    """Bytes received on one descriptor."""

    limit: int
    """Most bytes; more set `Exchange.overflowed`."""
    keeps_end: bool
    """Whether to drop the oldest bytes beyond the limit instead."""
    content: bytearray = field(default_factory=bytearray)


class Exchange:
    """Non-blocking reads and writes on several descriptors. Closes the descriptors that were added."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._inlets: dict[int, Inlet] = {}
        self._outlets: dict[int, bytearray] = {}
        self._last: set[int] = set()
        self.overflowed = False

    def add_inlet(self, descriptor: int, limit: int, *, keeps_end: bool = False) -> Inlet:
        """Receive on a descriptor."""
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._inlets[descriptor] = Inlet(limit=limit, keeps_end=keeps_end)
        return self._inlets[descriptor]

    def watch(self, descriptor: int) -> None:
        """End `step` when a descriptor becomes readable, without reading it."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def add_outlet(self, descriptor: int) -> None:
        """Send on a descriptor."""
        os.set_blocking(descriptor, False)
        self._outlets[descriptor] = bytearray()

    def send(self, descriptor: int, content: bytes, *, last: bool = False) -> None:
        """Queue bytes for an outlet; `last` closes it afterwards."""
        if not self._outlets[descriptor]:
            self._selector.register(descriptor, selectors.EVENT_WRITE)
        self._outlets[descriptor] += content
        if last:
            self._last.add(descriptor)

    def step(self, timeout: float) -> None:
        """Read and write what is ready, waiting up to `timeout` seconds."""
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fd in self._inlets:
                self._read(key.fd)
            elif key.fd in self._outlets:
                self._write(key.fd)

    def drain(self) -> None:
        """Read the rest of all pipes, after the end of all writers."""
        for descriptor in list(self._inlets):
            while descriptor in self._inlets and not self.overflowed and self._read(descriptor):
                pass

    def close(self) -> None:
        """Close every descriptor."""
        self._selector.close()
        for descriptor in {*self._inlets, *self._outlets}:
            os.close(descriptor)
        self._inlets.clear()
        self._outlets.clear()

    def _read(self, descriptor: int) -> bool:
        """Read once. Returns whether there was something to read."""
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
            # The program has closed its input without reading all of it, which is allowed.
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
"""Approximate kernel memory of an empty file."""
END_SECONDS = 10.0
"""Longest time in which a killed namespace has to end."""


class Tree:
    """A process and its descendants.

    Nothing escapes from a process namespace: orphans become children of its first process, and the kernel ends them all
    before the end of the first process is visible.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.top = process.pid
        self._first = -1
        self._ended = False

    def adopt(self, first: int) -> None:
        """Set the first process of the namespace. Does nothing after `end`."""
        if self._ended:
            return
        with contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(first)
            self.top = first

    def members(self) -> list[int]:
        """Ids of the process and its descendants."""
        pids, waiting = [], [self.top]
        while waiting:
            pid = waiting.pop()
            pids.append(pid)
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                    with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                        waiting += map(int, file.read().split())
        return pids

    def held_bytes(self, folder: str) -> int:
        """Memory of all processes, with shared pages counted for each, and of the files in the working folder."""
        resident = sum(int(_field(pid, "statm", 1)) * PAGE for pid in self.members())
        if self._first < 0:
            return resident
        with contextlib.suppress(OSError):
            used = os.statvfs(f"/proc/{self.top}/root{folder}")
            # The size limit of a tmpfs does not count its names, so count empty files here.
            names = (used.f_files - used.f_ffree) * NAME_BYTES
            return resident + names + (used.f_blocks - used.f_bfree) * used.f_frsize
        return resident

    def waited_seconds(self) -> float:
        """Longest time that one process was ready to run but had no processor."""
        return max(int(_field(pid, "schedstat", 1)) for pid in self.members()) / 1e9

    def end(self) -> bool:
        """Kill all processes. Returns whether all have ended."""
        all_ended, self._ended = True, True
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        else:
            # Without a namespace a process can start others during the sweep: repeat until none remains.
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
            # `select.select` refuses descriptors from 1,024 on.
            ending = select.poll()
            ending.register(self._first, select.POLLIN)
            all_ended = bool(ending.poll(END_SECONDS * 1000))
            os.close(self._first)
            self._first = -1
        self.process.kill()
        self.process.wait()
        return all_ended


def count_of_user(uid: int) -> int:
    """Number of processes and threads of a user."""
    count = 0
    for folder in PROC.iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                count += len(list((folder / "task").iterdir()))
    return count


def _field(pid: int, name: str, place: int) -> bytes:
    """One number of a file in /proc/PID; 0 if the process has ended."""
    with contextlib.suppress(OSError, IndexError):
        return (PROC / str(pid) / name).read_bytes().split()[place]
    return b"0"
