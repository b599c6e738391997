"""Runs an external command with a time limit and a watch on its memory; nothing that it started survives it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus.child import kill_group

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WATCH_SECONDS = 0.2
TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended."""

    status: int
    """Exit status; negative for a signal."""
    fault: str
    """The limit it broke; empty when it ended by itself."""
    tail: str
    """End of what it printed, on one line."""
    peak_bytes: int
    """Largest resident memory seen, bytes."""


def _no_trouble() -> str:
    return ""


def run(
    arguments: Sequence[str],
    *,
    wall_seconds: float,
    memory_bytes: int,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    trouble: Callable[[], str] = _no_trouble,
) -> Finished:
    """Run the command until it ends or breaks a limit; then its whole process group is gone.

    `trouble` is asked several times a second; what it says, if anything, ends the command as a broken limit does.
    """
    deadline = time.monotonic() + wall_seconds
    fault = ""
    peak = 0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env=environment,
        )
        try:
            while not fault and _runs(process):
                peak = max(peak, resident_bytes(process.pid))
                if peak > memory_bytes:
                    fault = f"used {peak / 1e9:.1f} GB of memory, {memory_bytes / 1e9:g} GB are allowed"
                elif time.monotonic() > deadline:
                    fault = f"still running after {wall_seconds:g} s"
                else:
                    fault = trouble()
        finally:
            kill_group(process)
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
        tail = " ".join(log.read().decode(errors="replace").split())
    return Finished(status=process.returncode, fault=fault, tail=tail, peak_bytes=peak)


def kill_by_home(home: Path) -> int:
    """Kill every process whose home is this folder, wherever it moved; returns how many.

    A command that leaves servers running gives them a session of their own: the process group does not hold them, but
    they inherit its environment.
    """
    mark = f"HOME={home}".encode()
    killed = 0
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=WATCH_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def resident_bytes(group: int) -> int:
    """Resident memory of all processes of a group, bytes; 0 where the system does not tell."""
    total = 0
    for entry in PROC.glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            # The command's name stands in parentheses and may hold anything; the fields after it are plain.
            if int(stat.rpartition(")")[2].split()[2]) == group:
                total += int((entry / "statm").read_text().split()[1]) * PAGE_BYTES
        except (OSError, IndexError, ValueError):
            continue
    return total
