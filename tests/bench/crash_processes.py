"""One attempt of the crash bench: a command, or a deployment's flow run, that is killed at a point or after a time."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import ROOT, Launcher

from flows import deployment
from infuser_core.store import lease
from infuser_core.store.runs import is_held, list_runs, runs_folder
from infuser_core.store.store import MANIFEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt ended."""

    killed: bool
    """By us."""
    complete: bool
    """The run is finished."""
    said: str = ""
    """What it said on standard error, or its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a killed process left."""

    doing: str
    """Stage at work; empty between stages."""
    began: float
    """When that stage began, seconds since the epoch."""
    seconds: float
    """From there to the kill."""


class Attempts:
    """Attempts at one run in one store."""

    store: Path
    name: str

    def __init__(self) -> None:
        self._killed_at = 0.0

    def __enter__(self) -> "Attempts":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def once(self, at: str | float | None) -> Ended:
        """Go on with the run; kill it at a named point or after some seconds, or let it end."""
        raise NotImplementedError

    def left(self) -> Left:
        """What the last kill hit."""
        path = runs_folder(self.store) / self.name / lease.FILE
        if not path.is_file():
            return Left(doing="", began=0.0, seconds=0.0)
        found = json.loads(path.read_text())
        return Left(doing=found["doing"], began=found["doing_since"], seconds=self._killed_at - found["doing_since"])

    def committed_since(self, left: Left) -> bool:
        """Whether the stage had its artifact in place, but no time to write so into the journal."""
        phase = left.doing.partition(",")[0]
        records = (self.store / "artifacts" / phase).glob(f"*/{MANIFEST}")
        return any(path.stat().st_mtime >= left.began for path in records)


class Commands(Attempts):
    """`infuser run`, then `infuser resume`."""

    def __init__(self, launch: Launcher, arguments: list[str], store: Path, name: str) -> None:
        super().__init__()
        self.store, self.name, self._launch, self._first = store, name, launch, arguments

    def once(self, at: str | float | None) -> Ended:
        known = (runs_folder(self.store) / self.name / "run.json").is_file()
        arguments = ["resume", self.name] if known else self._first
        environment = {"INFUSER_CRASH_AT": at} if isinstance(at, str) else {}
        process = self._launch.start(*arguments, store=self.store, **environment)
        if isinstance(at, float):
            time.sleep(at)
            process.kill()  # who ended by himself is not reaped before `wait`
        ended = process.wait()
        self._killed_at = time.time()
        killed = ended.code == -signal.SIGKILL
        return Ended(killed=killed, complete=ended.code == 0, said=ended.err)


class Deployed(Attempts):
    """`prefect deployment run` against `infuser serve`, then `prefect flow-run retry`."""

    def __init__(self, store: Path, overlay: Path) -> None:
        super().__init__()
        self.store, self.name = store, ""
        self._overlay, self._flow_run = overlay, ""
        self._port = deployment.free_port()
        self._url = deployment.address(self._port)
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self._environment = {**outer, "INFUSER_STORE": str(store), "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}

    def __enter__(self) -> "Attempts":
        self.store.mkdir(parents=True)
        command = [sys.executable, "-m", "flows.cli.main", "serve", "--port", str(self._port)]
        with (self.store / "serve.log").open("wb") as log:
            self._served = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        _eventually(lambda: (self.store / "server.json").is_file(), 120)
        _eventually(lambda: self._post("deployments/filter", {}), 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._served.send_signal(signal.SIGINT)
        self._served.wait(timeout=60)

    def once(self, at: str | float | None) -> Ended:
        if self._flow_run:
            self._prefect("flow-run", "retry", self._flow_run)
        else:
            parameters = ["--param", f"configs={json.dumps([str(ROOT / 'configs' / 'nano.yaml'), str(self._overlay)])}"]
            said = self._prefect("deployment", "run", "infuser/full-pipeline", *parameters)
            self._flow_run = re.search(r"UUID: (\S+)", said).group(1)  # type: ignore[union-attr]
        holder = _eventually(self._holder, 120)
        if isinstance(at, float):
            time.sleep(at)
        killed = False
        if at is not None and self._holder() == holder:
            os.kill(holder, signal.SIGKILL)
            self._killed_at = time.time()
            killed = True
        _eventually(lambda: self._state() in ("Crashed", "Completed", "Failed"), 600)
        state = self._state()
        return Ended(killed=killed and state == "Crashed", complete=state == "Completed", said=state)

    def _holder(self) -> int:
        """Process that executes the run, or 0."""
        names = list_runs(self.store)
        if not names or not is_held(self.store, names[0]):
            return 0
        self.name = names[0]
        path = runs_folder(self.store) / self.name / lease.FILE
        return int(json.loads(path.read_text())["pid"]) if path.is_file() else 0

    def _state(self) -> str:
        body = {"flow_runs": {"id": {"any_": [self._flow_run]}}}
        return str(self._post("flow_runs/filter", body)[0]["state_name"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def _prefect(self, *arguments: str) -> str:
        environment = {**self._environment, "PREFECT_API_URL": self._url}
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _eventually(probe: Any, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = probe()
        except OSError:
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
