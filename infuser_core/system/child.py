"""Run a function or a command in a child process with limits of time, memory and output; kill its process group.

`python -m infuser_core.system.child MODULE:FUNCTION ...` reads one JSON object from standard input, calls the function
with it and writes its result as JSON. Untrusted files are parsed this way: PDFium, for example, parses them in C.
"""

import contextlib
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import DocumentError, KilledProcessError, UsageError

ROOT = Path(__file__).parents[2]
PROC = Path("/proc")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
MEMORY_PAGE = os.sysconf("SC_PAGE_SIZE")
WATCH_SECONDS = 0.2
LOOK_SECONDS = 1.0
ANSWER_BYTES = 512 << 20
"""Maximum size of a called function's result, bytes."""
TAIL_BYTES = 8192
REASON_CHARS = 300
# Signals that mean a kill from outside: our limit of processor time sends SIGXCPU, and other limits set `fault`.
FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT})
MODULE_PREFIX = re.compile(r"^(?:\w+\.)+(?=\w+Error: )")
"""Pattern of the module prefix in an exception's name, which messages omit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for one function call in a child process."""

    wall_seconds: float = 600.0
    """Time until the process group is killed, seconds."""
    cpu_seconds: int = 600
    """Maximum processor time, seconds."""
    memory_bytes: int = 2 << 30
    """Maximum address space, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """Exit status, output and broken limit of a process that has ended."""

    out: bytes
    err: bytes
    status: int
    """Exit status; the negative signal number if a signal ended it."""
    fault: str
    """Description of the limit that it broke; empty if it ended by itself."""
    peak_bytes: int
    """Largest observed resident memory of its group, bytes; 0 if memory was not watched."""

    @property
    def was_killed(self) -> bool:
        """Whether it was killed from outside: by a person, or by the operating system when memory ran out."""
        return not self.fault and self.status in FROM_OUTSIDE

    @property
    def tail(self) -> str:
        """The end of its output joined into one line, standard output before standard error."""
        printed = self.out[-TAIL_BYTES:] + b"\n" + self.err[-TAIL_BYTES:]
        return " ".join(printed.decode(errors="replace").split())[-TAIL_BYTES:]


class Watch:
    """A clock for time limits of other processes that excludes time in which this process itself was stopped."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.seconds = 0.0
        self.missed = 0.0
        """Excluded time, in which this process was stopped, seconds."""

    def look(self) -> float:
        """Update the clock and return its time, seconds. Must be called at least once a second."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        self.seconds += min(passed, LOOK_SECONDS)
        self.missed += max(passed - LOOK_SECONDS, 0.0)
        return self.seconds


CARDS = "CUDA_VISIBLE_DEVICES"
"""Environment variable that lists the accelerators that a process may use."""
_card: ContextVar[str | None] = ContextVar("card", default=None)


@contextlib.contextmanager
def on_card(card: str | None) -> Iterator[None]:
    """Within the block, let commands started by this thread use only the accelerator `card`; None changes nothing."""
    before = _card.set(card)
    try:
        yield
    finally:
        _card.reset(before)


def environment_here() -> dict[str, str]:
    """Environment variables for a command: this process's, with the accelerator set by `on_card`."""
    card = _card.get()
    return {**os.environ, **({} if card is None else {CARDS: card})}


def run(
    arguments: Sequence[str],
    *,
    wall_seconds: float,
    stdin: bytes = b"",
    answer_bytes: int = 64 << 20,
    resident_bytes: int = 0,
    environment: Mapping[str, str] | None = None,
    trouble: Callable[[], str] = str,
) -> ProcessResult:
    """Run a command until it ends or breaks a limit, then kill its process group.

    `resident_bytes` limits the memory of the process group; 0 means no limit. `trouble` is called several times a
    second; if it returns a text, the command is ended with this text as its fault.
    """
    pipe = subprocess.PIPE
    watch = Watch()
    fault, peak, out, err, has_ended = "", 0, b"", b"", False
    unsent = stdin or None
    env = environment_here() if environment is None else environment
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=env) as process:
        try:
            while not (fault or has_ended):
                # Read only once after the end: a child of the process may still hold its streams open.
                has_ended = process.poll() is not None
                try:
                    out, err = process.communicate(unsent, timeout=WATCH_SECONDS)
                    has_ended = True
                except subprocess.TimeoutExpired as waiting:
                    out, err, unsent = waiting.output or b"", waiting.stderr or b"", None
                peak = max(peak, group_memory(process.pid) if resident_bytes and not has_ended else 0)
                if max(len(out), len(err)) > answer_bytes:
                    fault = f"answered with more than {answer_bytes >> 20} MB"
                elif not has_ended:
                    is_late = watch.look() > wall_seconds
                    fault = f"still running after {wall_seconds:g} s" if is_late else trouble()
                    if resident_bytes and peak > resident_bytes:
                        fault = f"used {peak / 1e9:.1f} GB of memory, {resident_bytes / 1e9:g} GB are allowed"
        finally:
            kill_group(process)
    return ProcessResult(out=out, err=err, status=process.returncode, fault=fault, peak_bytes=peak)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its process group, then wait for the process to end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_by_home(home: Path) -> int:
    """Kill every process whose variable HOME is this folder; returns the number of processes killed.

    Finds servers that a command has left running: they have their own session, so they are not in its process group,
    but they inherit its environment.
    """
    mark = f"HOME={home}".encode()
    count = 0
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                count += 1
    return count


def group_memory(group: int) -> int:
    """Resident memory of all processes in a process group, bytes; 0 if the system does not report it."""
    total = 0
    for entry in PROC.glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            # The command's name is in parentheses and may hold any text; the fields after it are numbers.
            if int(stat.rpartition(")")[2].split()[2]) == group:
                total += int((entry / "statm").read_text().split()[1]) * MEMORY_PAGE
        except (OSError, IndexError, ValueError):
            continue
    return total


def call(function: str, argument: dict[str, Any], limits: Limits) -> Any:
    """Call `module:function` in a child process with limits; returns its JSON result.

    `argument` has the keyword arguments. Raises DocumentError if the process crashes, exceeds a limit or raises an
    error, KilledProcessError if it was killed from outside, UsageError if a package is not installed.
    """
    folders = [ROOT, *(Path(each).absolute() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each)]
    # -P: do not import from the current folder, which may have modules of any name.
    result = run(
        [
            sys.executable,
            "-P",
            "-m",
            "infuser_core.system.child",
            function,
            str(limits.cpu_seconds),
            str(limits.memory_bytes),
        ],
        wall_seconds=limits.wall_seconds,
        stdin=json.dumps(argument).encode(),
        answer_bytes=ANSWER_BYTES,
        # Malicious input may take over the process, so it gets nothing of our environment (tokens, proxies) except the
        # folders of libraries.
        environment={
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    if result.fault:
        raise DocumentError(result.fault, hint="raise the limit or drop the file")
    if result.was_killed:
        raise killed_error(function, result.status)
    if result.status:
        reason = _failure_reason(result, limits)
        if reason.startswith("ModuleNotFoundError: "):
            raise UsageError(f"{function}: {reason}", hint="install the project again, with its dependencies")
        raise DocumentError(reason, hint="the file is damaged or needs more than the limits")
    return json.loads(result.out)


def killed_error(name: str, status: int) -> KilledProcessError:
    """Create the error for a process that was killed from outside, with a hint at the cause."""
    return KilledProcessError(
        f"the process of {name} was killed from outside ({signal.Signals(-status).name})",
        hint=f"{likely_kill_cause()}; free some memory, or use fewer workers, and resume",
    )


def likely_kill_cause() -> str:
    """Text that guesses why a process was killed, from the control group's count of kills for lack of memory."""
    kills = count_memory_kills()
    if kills is None:
        return "perhaps the system killed it for lack of memory: `dmesg` may say so"
    if kills:
        return f"probably for lack of memory: the system has killed {kills} in this control group"
    return "probably a person or a scheduler: in this control group, the system has killed none for lack of memory"


def count_memory_kills(process: Path = PROC / "self", groups: Path = CONTROL_GROUPS) -> int | None:
    """Number of processes in a process's control group that were killed for lack of memory; None if unknown.

    Reads versions 1 and 2 of control groups; a container sees its own group as the root.
    """
    with contextlib.suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            for folder in (groups / controllers / place.lstrip("/"), groups / controllers):
                with contextlib.suppress(OSError):
                    count = (folder / ("memory.oom_control" if controllers else "memory.events")).read_text()
                    if match := re.search(r"^oom_kill (\d+)$", count, re.MULTILINE):
                        return int(match[1])
    return None


def allowed_limit(resource_id: int, limit: int) -> int:
    """The smaller of `limit` and the resource's hard limit, above which no limit can be set."""
    hard = resource.getrlimit(resource_id)[1]
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


def lower_limit(resource_id: int, limit: int, *, spare: int = 0) -> None:
    """Set a resource limit of this process, at most the hard limit; the new hard limit is larger by `spare`."""
    resource.setrlimit(resource_id, (allowed_limit(resource_id, limit), allowed_limit(resource_id, limit + spare)))


def _failure_reason(result: ProcessResult, limits: Limits) -> str:
    """One-line reason for a process's failure, from its exit status and standard error."""
    if result.status == -signal.SIGXCPU:
        return f"used more than {limits.cpu_seconds} s of processor time"
    lines = result.err.decode(errors="replace").strip().splitlines()
    message = MODULE_PREFIX.sub("", lines[-1])[:REASON_CHARS] if lines else ""
    has_aborted = result.status in (-signal.SIGABRT, -signal.SIGTRAP, -signal.SIGILL)
    if "MemoryError" in message or "bad_alloc" in message or has_aborted:
        memory = allowed_limit(resource.RLIMIT_AS, limits.memory_bytes)
        by = ", which is what `ulimit -v` allows" if memory < limits.memory_bytes else ""
        return f"needs more than {round(memory / (1 << 30), 1):g} GB of memory{by}: {message}".rstrip(": ")
    if result.status < 0:
        return f"crashed: {signal.Signals(-result.status).name}"
    return message or f"exit status {result.status}"


def main() -> None:
    """Entry point of the child process: set the limits, call the function, write its result."""
    function, cpu_seconds, memory_bytes = sys.argv[1:4]
    lower_limit(resource.RLIMIT_CPU, int(cpu_seconds), spare=1)
    lower_limit(resource.RLIMIT_AS, int(memory_bytes))
    lower_limit(resource.RLIMIT_FSIZE, 0)
    lower_limit(resource.RLIMIT_CORE, 0)
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps(result).encode())


if __name__ == "__main__":
    main()
