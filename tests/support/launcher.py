"""Real `infuser` commands for the system tests, each a process of its own, without the seconds a start costs.

One process per test session has imported everything and forks a process for every command. It ends by itself when no
test process uses it any more.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from places import ROOT

from infuser_core.schemas import Checkpoint
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store

PATIENCE = 180.0
TELLS = re.compile(r"\d\d:\d\d:\d\d  ")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An ended command."""

    code: int
    """Exit code; negative for the signal that ended it."""
    out: str
    """Standard output."""
    err: str
    """Standard error, but for the lines that tell what a run is doing."""
    told: str
    """Those lines, one per stage."""


def apart(err: str) -> tuple[str, str]:
    """Standard error without the lines that tell what a run is doing, and those lines."""
    told, rest = [], []
    for line in err.splitlines(keepends=True):
        (told if TELLS.match(line) else rest).append(line)
    return "".join(rest), "".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A running command."""

    pid: int
    """Its process."""
    launcher: "Launcher"
    """Who asked for it."""
    out: Path
    """File of its standard output."""
    err: Path
    """File of its standard error."""

    def wait(self, patience: float = PATIENCE) -> Finished:
        """Its end. Fails when it has not come after so many seconds."""
        deadline = time.monotonic() + patience
        while (code := self.launcher.ask({"poll": self.pid})) is None:
            assert time.monotonic() < deadline, f"still running: {self.err.read_text()}"
            time.sleep(0.02)
        err, told = apart(self.err.read_text())
        return Finished(code=code, out=self.out.read_text(), err=err, told=told)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


class Launcher:
    """Starts commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = str(folder / "socket")

    def ask(self, job: dict[str, Any]) -> Any:
        """One question to the forking process, and its answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._address)
            connection.sendall(json.dumps(job).encode() + b"\n")
            return json.loads(connection.makefile().readline())

    def answers(self) -> bool:
        """Whether the forking process is there."""
        try:
            return bool(self.ask({"hello": True}))
        except OSError:
            return False

    def start(self, *arguments: str, store: Path, folder: Path = ROOT, **environment: str) -> Started:
        """Start a command on a store."""
        name = uuid.uuid4().hex
        files = {part: str(self._folder / f"{name}.{part}") for part in ("out", "err")}
        # A command that is killed at once has not opened them.
        for file in files.values():
            Path(file).touch()
        values = {"INFUSER_STORE": str(store), **environment}
        pid = self.ask({"arguments": arguments, "folder": str(folder), "environment": values, **files})
        return Started(pid=pid, launcher=self, out=Path(files["out"]), err=Path(files["err"]))

    def __call__(self, *arguments: str, store: Path, folder: Path = ROOT, **environment: str) -> Finished:
        """Run a command to its end."""
        return self.start(*arguments, store=store, folder=folder, **environment).wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRun:
    """A finished run: two iterations with a handful of questions. Look, but do not write into its store."""

    root: Path
    """The store, with one more run: the fixed-generator control."""
    name: str
    """The run."""
    fixed: str
    """The control."""
    arguments: list[str]
    """What `infuser` was called with."""
    fixed_arguments: list[str]
    """The same for the control."""

    @property
    def store(self) -> Store:
        """The artifacts."""
        return Store(self.root)

    def checkpoint(self, phase: str, iteration: int) -> Checkpoint:
        """What an update phase left."""
        (entry,) = [e for e in Journal(self.root, self.name).latest() if (e.phase, e.iteration) == (phase, iteration)]
        role = phase.removeprefix("update_")
        return Checkpoint(checkpoint_id=entry.key, role=role, path=str(self.store.folder(entry.key)), step=0)


def copy_store(source: Path, target: Path, *, without: tuple[str, ...] = ()) -> Path:
    """A store with the same artifacts, but those of some kinds, and no runs. Hard links: artifacts never change."""
    for kind in sorted((source / "artifacts").iterdir()):
        if kind.name not in without:
            shutil.copytree(kind, target / "artifacts" / kind.name, copy_function=os.link)
    return target


@contextmanager
def launcher(folder: Path) -> Iterator[Launcher]:
    """The session's launcher, started by whoever comes first."""
    folder.mkdir(exist_ok=True)
    client = Launcher(folder)
    with (folder / "users").open("w") as users, (folder / "start").open("w") as start:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(start, fcntl.LOCK_EX)
        if not client.answers():
            command = [sys.executable, __file__, str(folder)]
            environment = {**os.environ, **ENVIRONMENT}
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
            while not client.answers():
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        fcntl.flock(start, fcntl.LOCK_UN)
        yield client


def serve(folder: Path) -> None:
    """Fork commands until nobody holds the lock `users`."""
    _import_everything()
    with socket.socket(socket.AF_UNIX) as listening, (folder / "users").open("w") as users:
        (folder / "socket").unlink(missing_ok=True)
        listening.bind(str(folder / "socket"))
        listening.listen()
        listening.settimeout(0.5)
        while _in_use(users):
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection:
                job = json.loads(connection.makefile().readline())
                connection.sendall(json.dumps(_answer(job)).encode() + b"\n")


def _import_everything() -> None:
    import torch

    for name in ("flows.cli.main", "flows.pipeline", "flows.plan"):
        import_module(name)
    for name in ("results.report.build", "results.lineage.why", "results.lineage.diff", "store.views"):
        import_module(f"infuser_core.{name}")
    import_module("matplotlib.backends.backend_svg")
    for name in ("hf.causal_lm", "hf.sampler", "local.trainer"):
        import_module(f"infuser_core.engines.{name}")
    from infuser_core.engines.hf.causal_lm import load_model
    from infuser_core.nano.lab import anchor_path

    # Loading once imports the model's own modules, and starts no thread.
    load_model(anchor_path(), dtype=torch.float32, device=torch.device("cpu"))


def _in_use(users: Any) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _answer(job: dict[str, Any]) -> Any:
    if "hello" in job:
        return True
    if "poll" in job:
        found, status = os.waitpid(job["poll"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None
    process = os.fork()
    if process == 0:
        _run(job)
    return process


def _run(job: dict[str, Any]) -> None:
    """In the forked process: become the command."""
    import traceback

    import flows.cli.main

    code = 99
    try:
        os.chdir(job["folder"])
        os.environ.update(job["environment"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.closerange(3, 256)
        sys.argv = ["infuser", *job["arguments"]]
        flows.cli.main.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
