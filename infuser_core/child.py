"""Limited child processes: a function called in a process with limits, and an external command under watch.

`python -m infuser_core.child MODULE:FUNCTION` reads one JSON object from standard input, calls the function with it and
writes its result as JSON.
"""

import contextlib
import importlib
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import DocumentError

ROOT = Path(__file__).parent.parent
REASON_CHARS = 300
BLOCK = 1 << 20
RAISED = re.compile(r"^(?:\w+\.)+(?=\w+Error: )")
"""The module of an exception, which says nothing to a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child process may use."""

    wall_seconds: float = 600.0
    """Time until the process group is killed, seconds."""
    cpu_seconds: int = 600
    """Processor time, seconds."""
    memory_bytes: int = 2 << 30
    """Address space, bytes."""
    answer_bytes: int = 512 << 20
    """Length of its answer, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a process ended and what it wrote."""

    out: bytes
    """Its answer."""
    err: bytes
    """Its complaints."""
    status: int
    """Exit status; negative for a signal."""
    fault: str
    """The limit it broke; empty when it ended by itself."""


def call(function: str, argument: dict[str, Any], limits: Limits) -> Any:
    """The JSON result of `module:function` called with `argument` in a limited process.

    Raises DocumentError when the process crashes, exceeds a limit or reports an error of its own.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "infuser_core.child", function, str(limits.cpu_seconds), str(limits.memory_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Nothing of the parent's environment (tokens, proxies) is for a process that may be taken over.
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        ended = _collected(process, json.dumps(argument).encode(), limits)
    finally:
        kill_group(process)
    if ended.fault:
        raise DocumentError(f"{function}: {ended.fault}", hint="raise the limit or drop the file")
    if ended.status:
        reason = _reason(ended, limits)
        raise DocumentError(f"{function}: {reason}", hint="the file is damaged or needs more than the limits")
    return json.loads(ended.out)


def _collected(process: subprocess.Popen[bytes], argument: bytes, limits: Limits) -> _Ended:
    """What the process wrote until it ended or broke a limit. Its answer is never longer in memory than allowed."""
    assert process.stdin and process.stdout and process.stderr
    deadline = time.monotonic() + limits.wall_seconds
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(argument)
        process.stdin.close()
    written = {process.stdout: bytearray(), process.stderr: bytearray()}
    fault = ""
    with selectors.DefaultSelector() as selector:
        for stream in written:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and not fault:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                fresh = os.read(key.fd, BLOCK)
                written[key.fileobj] += fresh  # type: ignore[index]
                if not fresh:
                    selector.unregister(key.fileobj)
            if any(len(buffer) > limits.answer_bytes for buffer in written.values()):
                fault = f"answered with more than {limits.answer_bytes >> 20} MB"
            elif time.monotonic() >= deadline:
                fault = f"still running after {limits.wall_seconds:g} s"
    status = process.wait() if not fault else 0
    out, err = (bytes(buffer) for buffer in written.values())
    for stream in written:
        stream.close()
    return _Ended(out=out, err=err, status=status, fault=fault)


def _reason(ended: _Ended, limits: Limits) -> str:
    """One line on why a process failed."""
    if ended.status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"used more than {limits.cpu_seconds} s of processor time"
    lines = ended.err.decode(errors="replace").strip().splitlines()
    said = RAISED.sub("", lines[-1])[:REASON_CHARS] if lines else ""
    if (
        "MemoryError" in said
        or "bad_alloc" in said
        or ended.status in (-signal.SIGABRT, -signal.SIGTRAP, -signal.SIGILL)
    ):
        return f"needs more than {round(limits.memory_bytes / (1 << 30), 1):g} GB of memory: {said}".rstrip(": ")
    if ended.status < 0:
        return f"crashed: {signal.Signals(-ended.status).name}"
    return said or f"exit status {ended.status}"


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything it started, then collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _limit(cpu_seconds: int, memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Entry of the child."""
    function, cpu_seconds, memory_bytes = sys.argv[1:4]
    _limit(int(cpu_seconds), int(memory_bytes))
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps(result).encode())


if __name__ == "__main__":
    main()


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
