"""Runs that start at once: a process that has imported everything, and done nothing else, forks one per request.

`python -m flows.warm` reads requests as JSON lines, `{"arguments": [...], "log": FILE}`, one after the answer to the
other, and writes `{"pid": N}` for each, and `{"ended": N, "code": C}` when it ends. The forked process leaves the loop
and is the command itself, so that it ends as every process ends. The imports take 8 s of processor
time, a short run less than a minute.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from infuser_core.errors import EngineError

PRELOADED = (
    "flows.full_pipeline",
    "flows.crashed_runs",
    "infuser_core.engines.local.trainer",
    "infuser_core.engines.hf.sampler",
    "infuser_core.report.build",
)
"""What a run imports at its start."""
LOST = -1
"""Exit code of a run about which nobody can tell any more."""
_LOOK = 0.2
_PIECE = 65536
"""Bytes read at a time; a request is far shorter."""


class WarmRun:
    """A forked command, with what the sweep needs of `subprocess.Popen`."""

    def __init__(self, warm: "Warm", pid: int) -> None:
        self._warm, self.pid = warm, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        self._warm.look()
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end at its next safe point."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """The exit code, when it has ended."""
        while self.returncode is None:
            self._warm.look(wait=True)
        return self.returncode


class Warm:
    """The process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flows.warm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self._process.pid
        self._open: dict[int, WarmRun] = {}
        self._newest: WarmRun | None = None
        self._gone = False
        self._rest = b""

    def spawn(self, arguments: Sequence[str], *, log: Path) -> WarmRun:
        """`infuser ARGUMENTS` as another process, its output in a file."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        assert self._process.stdin is not None
        request = json.dumps({"arguments": list(arguments), "log": str(log)})
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n".encode())
        self._newest = None
        while self._newest is None:
            self.look(wait=True)
            if self._gone:
                raise EngineError("the process that starts runs has ended", hint="the same command goes on")
        return self._newest

    def look(self, *, wait: bool = False) -> None:
        """Note who has begun and ended; `wait` until there is something to note."""
        for answer in self._lines(wait=wait):
            if "pid" in answer:
                self._newest = self._open[answer["pid"]] = WarmRun(self, answer["pid"])
            else:
                self._open.pop(answer["ended"]).returncode = answer["code"]
        if self._gone:
            for run in self._open.values():
                run.returncode = LOST
            self._open.clear()

    def close(self) -> None:
        """End it. Runs that it has forked go on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _lines(self, *, wait: bool) -> list[Mapping[str, Any]]:
        """What it has said since."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], None if wait else 0)[0]:
            return []
        said = os.read(self._process.stdout.fileno(), _PIECE)
        self._gone = not said
        *whole, self._rest = b"".join([self._rest, said]).split(b"\n")
        return [json.loads(line) for line in whole]


def _requested() -> Mapping[str, Any]:
    """Fork one process per request. Returns in each of them with its request, and never in this one."""
    while True:
        if select.select([0], [], [], _LOOK)[0]:
            line = os.read(0, _PIECE)
            if not line:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                return dict(json.loads(line))
            _say({"pid": pid})
        for pid, code in _ended():
            _say({"ended": pid, "code": code})


def _ended() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def _say(answer: Mapping[str, int]) -> None:
    os.write(1, f"{json.dumps(answer)}\n".encode())


def _become(request: Mapping[str, Any]) -> None:
    """The command, with its output in the file."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.argv = ["infuser", *request["arguments"]]


if __name__ == "__main__":
    # Ctrl-C is for the runs, which end one by one and are still to be told about.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _name in PRELOADED:
        import_module(_name)
    _become(_requested())
    from flows.cli.main import main

    main()
