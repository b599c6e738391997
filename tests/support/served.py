"""A running `infuser serve` and its API, and the small run that tests start on it."""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from browser import Page
from places import ROOT

from flows import deployment

T = TypeVar("T")
HERE = ROOT
CONFIG = str(HERE / "configs" / "nano.yaml")
SMALL = {
    "cotrain": {"iterations": 2, "documents": 2, "group_size": 4},
    "data": {"dev": {"size": 8}, "validation": {"size": 16}},
    "evaluate": {"benchmarks": [{"name": "nano_target"}]},
}


class Served:
    """A running `infuser serve` and its API."""

    def __init__(self, store: Path, **environment: str) -> None:
        self.store = store
        # Prefect's own variables of this process must not leak in.
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        own = {"INFUSER_STORE": str(store), "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}
        self.environment = {**outer, **own, **environment}
        command = [sys.executable, "-m", "flows.cli.main", "serve", "--port", str(deployment.free_port())]
        self.log = store.parent / "serve.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=HERE, env=self.environment, stdout=log, stderr=log)
        self.announcement = deployment.announcement(store)
        found = eventually(lambda: deployment.running_server(store), 150)
        self.url, self.password = found.url, found.password
        self.headers = {"authorization": "Basic " + base64.b64encode(self.password.encode()).decode()}
        eventually(lambda: self.post("deployments/filter", {}), 150)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Answer of the REST API."""
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """The same for any method; None for an empty answer."""
        headers = {"content-type": "application/json", **self.headers}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def state(self, flow_run: str) -> str:
        """State name of a flow run."""
        return str(self.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})[0]["state_name"])

    def roots(self) -> list[dict[str, Any]]:
        """Flow runs that are no sub-flows, the newest first."""
        found: list[dict[str, Any]] = self.post("flow_runs/filter", {"sort": "START_TIME_DESC"})
        return [run for run in found if run["parent_task_run_id"] is None]

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Prefect's command line, told of the server as `infuser serve` says."""
        return self.command("prefect", *arguments, PREFECT_PROFILES_PATH=str(self.announcement))

    def show(self, page: Page, host: str = "127.0.0.1") -> None:
        """Log in by the link that the owner gets, which opens Prefect's UI."""
        link = self.command("flows.cli.main", "serve", "--login")
        assert link.returncode == 0, link.stderr
        page.open(link.stdout.strip().replace("127.0.0.1", host))
        page.until("location.pathname.startsWith('/v2/') && document.body.innerText.includes('Logout')")

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A Python module's command line in another terminal."""
        env = {**self.environment, **environment}
        return subprocess.run(
            [sys.executable, "-m", *arguments], cwd=HERE, env=env, capture_output=True, text=True, timeout=150
        )


def eventually(probe: Callable[[], T], seconds: float) -> T:
    """The first true value of the probe."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return value
