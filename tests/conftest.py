"""Real `infuser` commands for the system tests, and one small finished run that all of them may look at.

Every command is a process of its own. They are forked from one process per worker that has imported everything, and
talk to one Prefect server per worker: a start costs milliseconds instead of seconds.
"""

import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import server
from infuser_core.nano import world
from infuser_core.runs import find_run
from infuser_core.store import Store

ROOT = Path(__file__).parent.parent
NANO = "configs/nano.yaml"
FIXED = "configs/ablation/fixed_generator.yaml"

# The forking process. One line in starts a command, another waits for it; each is answered by one line.
_FORKER = """
import json, os, sys
import torch
import flows.cli, flows.full_pipeline, tasks.inspection, tasks.reporting
from infuser_core.engines import anchor, causal_lm, hf_sampler, local_trainer
from infuser_core.nano.lab import anchor_path

# Loading once imports the model's own modules, and starts no thread.
causal_lm.load_model(anchor_path(), dtype=torch.float32, device=torch.device("cpu"))

def command(job):
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["infuser", *job["arguments"]]
    code = 99
    try:
        flows.cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    job = json.loads(line)
    if "wait" in job:
        print(os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1]), flush=True)
        continue
    process = os.fork()
    if process == 0:
        command(job)
    print(process, flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An ended command."""

    code: int
    """Exit code; negative for the signal that ended it."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A running command."""

    pid: int
    """Its process."""
    launcher: "Launcher"
    """Who forked it."""
    out: Path
    """File of its standard output."""
    err: Path
    """File of its standard error."""

    def wait(self) -> Finished:
        """Its end."""
        code = int(self.launcher.ask({"wait": self.pid}))
        return Finished(code=code, out=self.out.read_text(), err=self.err.read_text())


class Launcher:
    """Starts `infuser` commands as processes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKER],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, job: dict[str, Any]) -> str:
        """Send one line to the forking process and read its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def start(self, *arguments: str, store: Path, folder: Path = ROOT, **environment: str) -> Started:
        """Start a command on a store."""
        name = uuid.uuid4().hex
        files = {part: str(self._folder / f"{name}.{part}") for part in ("out", "err")}
        values = {"INFUSER_STORE": str(store), **environment}
        job = {"arguments": arguments, "folder": str(folder), "environment": values, **files}
        return Started(pid=int(self.ask(job)), launcher=self, out=Path(files["out"]), err=Path(files["err"]))

    def __call__(self, *arguments: str, store: Path, folder: Path = ROOT, **environment: str) -> Finished:
        """Run a command to its end."""
        return self.start(*arguments, store=store, folder=folder, **environment).wait()

    def close(self) -> None:
        """End the forking process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRun:
    """A finished run: two iterations with a handful of questions. Look, but do not write into its store."""

    root: Path
    """The store, with one more run of the fixed-generator control."""
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
        """The run's artifacts."""
        return Store(self.root)


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """The worker's way to run commands, with a Prefect server behind it."""
    folder = tmp_path_factory.mktemp("launcher")
    port = server.free_port()
    environment = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
    }
    idle = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in server._IDLE_SERVICES}
    process = server.start(port, extra={**environment, **idle})
    url = server.address(port)
    launcher = Launcher(folder, {**environment, "PREFECT_API_URL": url})
    try:
        server.wait_until_up(url, process)
        yield launcher
    finally:
        launcher.close()
        server.stop(process)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of this test session."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def small_overlay(shared_folder: Path) -> Path:
    """An overlay that makes the nano run small: seconds instead of minutes, and several optimizer steps per update."""
    folder = shared_folder / "small"
    folder.mkdir(exist_ok=True)
    exam = folder / "exam.json"
    overlay = folder / "small.yaml"
    rows = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in world.questions("test", world.TARGET, 8, 0)
    ]
    values = {
        "data": {"dev": {"size": 8}, "validation": {"size": 16}},
        "cotrain": {
            "iterations": 2,
            "documents": 2,
            "group_size": 4,
            "validate_every": 1,
            "generator": {"minibatch": 1},
            "solver": {"minibatch": 2},
        },
        "evaluate": {"benchmarks": [{"name": "released", "label": "exam", "path": str(exam)}]},
    }
    for path, text in ((exam, json.dumps(rows)), (overlay, yaml.safe_dump(values))):
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.rename(path)
    return overlay


@pytest.fixture(scope="session")
def small_run(launch: Launcher, shared_folder: Path, small_overlay: Path) -> SmallRun:
    """The finished run, made by the first worker that asks."""
    root = shared_folder / "small" / "store"
    arguments = ["run", NANO, str(small_overlay), "--name", "small"]
    fixed_arguments = ["run", NANO, str(small_overlay), FIXED, "--name", "fixed"]
    with (shared_folder / "small" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for wanted in (arguments, fixed_arguments):
            if not (root / "runs" / wanted[-1] / "report" / "report.html").exists():
                done = launch(*wanted, store=root)
                assert done.code == 0, done.err
    return SmallRun(
        root=root,
        name=find_run(root, "small"),
        fixed=find_run(root, "fixed"),
        arguments=arguments,
        fixed_arguments=fixed_arguments,
    )


def copy_store(source: Path, target: Path) -> Path:
    """A store with the same artifacts (hard links: artifacts never change) and no runs."""
    for path in sorted((source / "artifacts").rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True)
        else:
            place.hardlink_to(path)
    return target
