"""Limited child processes: a function or a command under limits of time, memory and output, killed with its group.

`python -m infuser_core.system.child MODULE:FUNCTION` reads one JSON object from standard input, calls the function with
it and writes its result as JSON. Work on hostile files runs this way: PDFium parses untrusted bytes in C.
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
"""Length of a called function's answer."""
TAIL_BYTES = 8192
REASON_CHARS = 300
# None of these is a limit of ours: the processor's is SIGXCPU, and what breaks another limit is on record as a fault.
FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT})
RAISED = re.compile(r"^(?:\w+\.)+(?=\w+Error: )")
"""The module of an exception, which says nothing to a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one called function."""

    wall_seconds: float = 600.0
    """Time until the process group is killed, seconds."""
    cpu_seconds: int = 600
    """Processor time, seconds."""
    memory_bytes: int = 2 << 30
    """Address space, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Exit and output of a process."""

    out: bytes
    """Its standard output."""
    err: bytes
    """Its standard error."""
    status: int
    """Exit status; negative for a signal."""
    fault: str
    """The limit it broke; empty when it ended by itself."""
    peak_bytes: int
    """Largest resident memory seen, bytes; 0 where it was not watched."""

    @property
    def killed(self) -> bool:
        """Whether somebody else ended it: a person, or the system for want of memory."""
        return not self.fault and self.status in FROM_OUTSIDE

    @property
    def tail(self) -> str:
        """The end of what it printed, on one line, its errors last."""
        printed = self.out[-TAIL_BYTES:] + b"\n" + self.err[-TAIL_BYTES:]
        return " ".join(printed.decode(errors="replace").split())[-TAIL_BYTES:]


class Watch:
    """A clock for limits on others: it stands still while this process is stopped itself, and they with it perhaps."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.seconds = 0.0
        self.missed = 0.0
        """Time in which this process did not run, seconds."""

    def look(self) -> float:
        """Seconds that were watched; looks follow each other within one."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        self.seconds += min(passed, LOOK_SECONDS)
        self.missed += max(passed - LOOK_SECONDS, 0.0)
        return self.seconds


CARDS = "CUDA_VISIBLE_DEVICES"
"""Variable that names the accelerators which a process may use."""
_card: ContextVar[str | None] = ContextVar("card", default=None)


@contextlib.contextmanager
def on_card(card: str | None) -> Iterator[None]:
    """Commands of this thread see that accelerator alone; None changes nothing."""
    before = _card.set(card)
    try:
        yield
    finally:
        _card.reset(before)


def environment_here() -> dict[str, str]:
    """This process's variables, with the thread's own accelerator."""
    card = _card.get()
    return {**os.environ, **({} if card is None else {CARDS: card})}


def run(
    arguments: Sequence[str],
    *,
    wall_seconds: float,
    given: bytes = b"",
    answer_bytes: int = 64 << 20,
    resident_bytes: int = 0,
    environment: Mapping[str, str] | None = None,
    trouble: Callable[[], str] = str,
) -> Finished:
    """Run a command until it ends or breaks a limit; then its whole process group is gone.

    `given` is its standard input. `resident_bytes` limits the memory of its process group; 0 does not watch it.
    `trouble` is asked several times a second; what it says, if anything, ends the command as a broken limit does.
    """
    pipe = subprocess.PIPE
    watch = Watch()
    fault, peak, out, err, ended = "", 0, b"", b"", False
    ahead = given or None
    own = environment_here() if environment is None else environment
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=own) as process:
        try:
            while not (fault or ended):
                # Whoever inherited its streams may hold them open when the process is gone: one more look is enough.
                ended = process.poll() is not None
                try:
                    out, err = process.communicate(ahead, timeout=WATCH_SECONDS)
                    ended = True
                except subprocess.TimeoutExpired as waiting:
                    out, err, ahead = waiting.output or b"", waiting.stderr or b"", None
                peak = max(peak, group_memory(process.pid) if resident_bytes and not ended else 0)
                if max(len(out), len(err)) > answer_bytes:
                    fault = f"answered with more than {answer_bytes >> 20} MB"
                elif not ended:
                    late = watch.look() > wall_seconds
                    fault = f"still running after {wall_seconds:g} s" if late else trouble()
                    if resident_bytes and peak > resident_bytes:
                        fault = f"used {peak / 1e9:.1f} GB of memory, {resident_bytes / 1e9:g} GB are allowed"
        finally:
            kill_group(process)
    return Finished(out=out, err=err, status=process.returncode, fault=fault, peak_bytes=peak)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything it started, then collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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


def group_memory(group: int) -> int:
    """Resident memory of all processes of a group, bytes; 0 where the system does not tell."""
    total = 0
    for entry in PROC.glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            # The command's name stands in parentheses and may hold anything; the fields after it are plain.
            if int(stat.rpartition(")")[2].split()[2]) == group:
                total += int((entry / "statm").read_text().split()[1]) * MEMORY_PAGE
        except (OSError, IndexError, ValueError):
            continue
    return total


def call(function: str, argument: dict[str, Any], limits: Limits) -> Any:
    """The JSON result of `module:function` called with `argument` in a limited process.

    Raises DocumentError when the process crashes, exceeds a limit or reports an error of its own, KilledProcessError
    when somebody else ended it, UsageError where a package is not installed, which no document is to blame for.
    """
    # -P: the current folder may hold modules of any name.
    ended = run(
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
        given=json.dumps(argument).encode(),
        answer_bytes=ANSWER_BYTES,
        # Nothing of the parent's environment (tokens, proxies) is for a process that may be taken over.
        environment={"PYTHONPATH": str(ROOT), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if ended.fault:
        raise DocumentError(ended.fault, hint="raise the limit or drop the file")
    if ended.killed:
        raise killed(function, ended.status)
    if ended.status:
        reason = _reason(ended, limits)
        if reason.startswith("ModuleNotFoundError: "):
            raise UsageError(f"{function}: {reason}", hint="install the project again, with its dependencies")
        raise DocumentError(reason, hint="the file is damaged or needs more than the limits")
    return json.loads(ended.out)


def killed(name: str, status: int) -> KilledProcessError:
    """The error for a process that somebody else ended."""
    return KilledProcessError(
        f"the process of {name} was killed from outside ({signal.Signals(-status).name})",
        hint=f"{guess_of_kill()}; free some memory, or use fewer workers, and resume",
    )


def guess_of_kill() -> str:
    """The likely cause of a kill: a signal does not say who sent it, and the control group only counts."""
    kills = memory_kills()
    if kills is None:
        return "perhaps the system killed it for want of memory: `dmesg` may say so"
    if kills:
        return f"probably for want of memory: the system has killed {kills} in this control group"
    return "probably a person or a scheduler: in this control group, the system has killed none for want of memory"


def memory_kills(process: Path = PROC / "self", groups: Path = CONTROL_GROUPS) -> int | None:
    """Processes that the system killed for want of memory in the control group of a process; None if it does not say.

    Versions 1 and 2 of control groups; the folder of a container's own group is the root of what it sees.
    """
    with contextlib.suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            for folder in (groups / controllers / place.lstrip("/"), groups / controllers):
                with contextlib.suppress(OSError):
                    count = (folder / ("memory.oom_control" if controllers else "memory.events")).read_text()
                    if found := re.search(r"^oom_kill (\d+)$", count, re.MULTILINE):
                        return int(found[1])
    return None


def permitted(limit: int, wanted: int) -> int:
    """The smaller of a resource's wanted limit and its hard one, which no process may raise."""
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def lower(limit: int, wanted: int, *, spare: int = 0) -> None:
    """Limit a resource of this process as far as it may; `spare` is how much larger the hard limit is."""
    resource.setrlimit(limit, (permitted(limit, wanted), permitted(limit, wanted + spare)))


def _reason(ended: Finished, limits: Limits) -> str:
    """One line on why a process failed."""
    if ended.status == -signal.SIGXCPU:
        return f"used more than {limits.cpu_seconds} s of processor time"
    lines = ended.err.decode(errors="replace").strip().splitlines()
    said = RAISED.sub("", lines[-1])[:REASON_CHARS] if lines else ""
    aborted = ended.status in (-signal.SIGABRT, -signal.SIGTRAP, -signal.SIGILL)
    if "MemoryError" in said or "bad_alloc" in said or aborted:
        memory = permitted(resource.RLIMIT_AS, limits.memory_bytes)
        by = ", which is what `ulimit -v` allows" if memory < limits.memory_bytes else ""
        return f"needs more than {round(memory / (1 << 30), 1):g} GB of memory{by}: {said}".rstrip(": ")
    if ended.status < 0:
        return f"crashed: {signal.Signals(-ended.status).name}"
    return said or f"exit status {ended.status}"


def _limit(cpu_seconds: int, memory_bytes: int) -> None:
    lower(resource.RLIMIT_CPU, cpu_seconds, spare=1)
    lower(resource.RLIMIT_AS, memory_bytes)
    lower(resource.RLIMIT_FSIZE, 0)
    lower(resource.RLIMIT_CORE, 0)


def main() -> None:
    """Entry of the child."""
    function, cpu_seconds, memory_bytes = sys.argv[1:4]
    _limit(int(cpu_seconds), int(memory_bytes))
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps(result).encode())


if __name__ == "__main__":
    main()
