"""`infuser serve` for real: server, UI, deployment, kill -9, retry, and `infuser run` beside it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flows import server
from infuser_core import runs

T = TypeVar("T")
HERE = Path(__file__).parent.parent
CONFIG = str(HERE / "configs" / "nano.yaml")
SMALL = {
    "cotrain": {"iterations": 2, "documents": 2, "group_size": 4},
    "data": {"dev": {"size": 8}, "validation": {"size": 16}},
    "evaluate": {"benchmarks": [{"name": "nano_target"}]},
}


class Served:
    """A running `infuser serve` and its API."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.port = server.free_port()
        self.url = server.address(self.port)
        # Prefect's own variables of this process must not leak in.
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.environment = {**outer, "INFUSER_STORE": str(store), "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}
        command = [sys.executable, "-m", "flows.cli", "serve", "--port", str(self.port)]
        self.log = store.parent / "serve.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=HERE, env=self.environment, stdout=log, stderr=log)
        eventually(lambda: (store / "server.json").exists(), 150)
        eventually(lambda: self.post("deployments/filter", {}), 30)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Answer of the REST API."""
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def state(self, flow_run: str) -> str:
        """State name of a flow run."""
        return str(self.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})[0]["state_name"])

    def roots(self) -> list[dict[str, Any]]:
        """Flow runs that are no sub-flows, the newest first."""
        found: list[dict[str, Any]] = self.post("flow_runs/filter", {"sort": "START_TIME_DESC"})
        return [run for run in found if run["parent_task_run_id"] is None]

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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests of this file."""
    running = Served(tmp_path_factory.mktemp("served") / "store")
    yield running
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=20) in (0, 130), running.log.read_text()
    assert not server.is_up(running.url)
    assert not (running.store / "server.json").exists()


def test_a_killed_flow_run_is_crashed_and_retry_goes_on_from_its_last_stage(served: Served) -> None:
    started = served.command(
        "prefect", "deployment", "run", "infuser/full-pipeline",
        "--param", f"configs={json.dumps([CONFIG])}", "--param", f"overrides={json.dumps(SMALL)}",
        PREFECT_API_URL=served.url,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    flow_run = re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]
    name = eventually(lambda: runs.list_runs(served.store), 120)[0]
    journal = runs.Journal(served.store, name)
    eventually(lambda: [e for e in journal.entries() if e.iteration == 0 and e.phase == "update_solver"], 120)
    holder = (runs.runs_folder(served.store) / name / "lock").read_text()
    os.kill(int(holder.split()[1]), signal.SIGKILL)
    eventually(lambda: served.state(flow_run) == "Crashed", 60)
    before = {entry.key for entry in journal.entries()}

    retried = served.command("prefect", "flow-run", "retry", flow_run, PREFECT_API_URL=served.url)
    assert retried.returncode == 0, retried.stderr
    eventually(lambda: served.state(flow_run) == "Completed", 150)

    assert runs.list_runs(served.store) == [name]
    second = journal.last_attempt()
    assert {entry.key for entry in second if entry.state == "cached"} == before
    assert {entry.phase for entry in second if entry.state == "ran"} >= {"update_solver", "select", "evaluate"}
    states = [task["state_name"] for task in served.post("task_runs/filter", {})]
    assert states.count("Cached") >= 5


def test_many_writers_at_once_are_all_served(served: Served) -> None:
    flow = served.post("flows/", {"name": "many-writers"})["id"]
    with ThreadPoolExecutor(12) as pool:
        bodies = [{"flow_id": flow, "state": {"type": "RUNNING"}} for _ in range(60)]
        made = list(pool.map(lambda body: served.post("flow_runs/", body)["id"], bodies))
        ends = [{"state": {"type": "COMPLETED"}, "force": True} for _ in made]
        list(pool.map(lambda run, end: served.post(f"flow_runs/{run}/set_state", end), made, ends))
    assert len(set(made)) == 60


def test_artifact_pages_tell_rows_recipe_origin_and_sql(served: Served) -> None:
    artifacts = served.post("artifacts/filter", {"sort": "CREATED_DESC"})
    page = next(a["data"] for a in artifacts if a["key"].startswith("update-solver-"))
    for part in ("| step |", "## Recipe", "## Made from", "- solver: `", 'infuser sql "select * from updates where'):
        assert part in page, page
    bars = [a for a in artifacts if a["type"] == "progress"]
    assert bars and all(0 <= bar["data"] <= 100 for bar in bars)


def test_a_killed_infuser_run_under_serve_is_settled_and_resumed(served: Served) -> None:
    overlay = served.store.parent / "overlay.yaml"
    overlay.write_text(json.dumps(SMALL))
    # Another learning rate than above: the corpus and the first solver's rollouts are in the store already.
    arguments = ["run", CONFIG, str(overlay), "--set", "cotrain.solver.learning_rate=1e-4"]
    killed = served.command("flows.cli", *arguments, INFUSER_CRASH_AT="update_solver:start:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    root = served.roots()[0]
    assert root["state_name"] == "Running"
    eventually(lambda: served.state(root["id"]) == "Crashed", 90)
    running = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    eventually(lambda: not served.post("flow_runs/filter", running), 60)

    resumed = served.command("flows.cli", "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert served.roots()[0]["state_name"] == "Completed"
    assert served.roots()[0]["name"] == root["name"]
