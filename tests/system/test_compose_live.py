"""The compose file's services for real, without containers: Postgres, the server, the worker, and one whole run."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compose_tools import (
    PASSWORD,
    ROOT,
    Database,
    command_of,
    environment_of,
    eventually,
    free_port,
    outer,
    postgres,
    postgres_programs,
    services,
)

from infuser_core.store import runs
from infuser_core.store.journal import Journal

PROGRAMS = postgres_programs()
pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason="Postgres is not installed: apt-get install postgresql"),
]
SECRETS = {
    "HF_TOKEN": "hf_fake_token_of_the_test",
    "INFUSER_API_KEY": "fake-endpoint-key-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "fake-storage-secret-of-the-test",
}
SMALL = {
    "cotrain": {"iterations": 1, "documents": 2, "group_size": 4},
    "data": {"dev": {"size": 8}, "validation": {"size": 16}},
    "evaluate": {"benchmarks": [{"name": "nano_target"}]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The running services."""

    folder: Path
    """Logs, Prefect's homes and the store."""
    url: str
    """The server's API."""
    database: Database
    """Postgres."""
    health: list[str]
    """The server's health check."""
    environment: dict[str, str]
    """Of the worker's machine."""

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Answer of the REST API."""
        word = base64.b64encode(PASSWORD.encode()).decode()
        headers = {"content-type": "application/json", "authorization": f"Basic {word}"}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def log(self, name: str) -> str:
        """What a service wrote."""
        return (self.folder / f"{name}.log").read_text()


def start(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A service, in a group of its own."""
    with log.open("wb") as handle:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=handle, stderr=handle, start_new_session=True
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a service as `docker compose stop` does."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """The three services of compose.yaml with their own commands; only addresses and ports are ours."""
    folder = tmp_path_factory.mktemp("team")
    parts, port = services(), free_port()
    here = {
        "${POSTGRES_PASSWORD:?set a password}": PASSWORD, "${PREFECT_API_AUTH_STRING:?set a password}": PASSWORD,
        "server:4200": f"127.0.0.1:{port}", ":4200": f":{port}",
    }  # fmt: skip
    assert PROGRAMS is not None
    with postgres(environment_of(parts["database"], here), PROGRAMS) as database:
        here["database:5432"] = f"127.0.0.1:{database.port}"
        server_values = {**outer(), "PREFECT_HOME": str(folder / "server"), "PREFECT_SERVER_API_PORT": str(port)}
        words = [word.replace("0.0.0.0", "127.0.0.1") for word in command_of(parts["server"])]
        server = start(words, {**server_values, **environment_of(parts["server"], here)}, folder / "server.log")
        health = [word.replace(":4200", f":{port}") for word in parts["server"]["healthcheck"]["test"][1:]]
        worker_values = {
            **outer(), **SECRETS, "PREFECT_HOME": str(folder / "worker"), "INFUSER_STORE": str(folder / "store"),
            **environment_of(parts["worker"], here),
        }  # fmt: skip
        worker = None
        try:
            found = Team(
                folder=folder, url=f"http://127.0.0.1:{port}/api", database=database, health=health,
                environment=worker_values,
            )  # fmt: skip
            healthy = lambda: subprocess.run(health, env=outer(), capture_output=True).returncode == 0  # noqa: E731
            eventually(healthy, 240, "the server")
            worker = start(command_of(parts["worker"]), worker_values, folder / "worker.log")
            eventually(lambda: "Worker" in found.log("worker") and "started" in found.log("worker"), 180, "the worker")
            yield found
        finally:
            for process in (worker, server):
                if process is not None:
                    stop(process)


def test_one_run_goes_from_the_deployment_through_the_worker_to_its_end(team: Team):
    (pool,) = team.post("work_pools/filter", {})
    assert (pool["name"], pool["type"], pool["concurrency_limit"]) == ("infuser", "process", 1)
    assert any("heartbeat" in entry["name"] for entry in team.post("automations/filter", {}))
    started = subprocess.run(
        ["prefect", "deployment", "run", "infuser/full-pipeline", "--param", f"overrides={json.dumps(SMALL)}"],
        cwd=ROOT, env=team.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert started.returncode == 0, started.stdout + started.stderr
    number = re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]

    def state() -> str:
        return str(team.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [number]}}})[0]["state_name"])

    eventually(lambda: state() in ("Completed", "Failed", "Crashed"), 400, "the run")
    assert state() == "Completed", team.log("worker")[-4000:]
    (name,) = runs.list_runs(team.folder / "store")
    assert Journal(team.folder / "store", name).is_finished()


def test_no_key_of_the_worker_is_in_the_store_the_database_or_the_logs(team: Team):
    assert runs.list_runs(team.folder / "store"), "this looks at what the run above left"
    dump = team.database.dump()
    assert "full-pipeline" in dump and "evaluate" in dump
    for name, secret in SECRETS.items():
        assert secret not in dump, f"{name} is in Prefect's database"
        holding = [path for path in team.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert holding == [], f"{name} is in {holding}"
    assert PASSWORD not in team.log("worker") and PASSWORD not in team.log("server")


def test_everything_listens_on_loopback_alone(team: Team):
    if shutil.which("ss") is None:
        pytest.skip("ss is not installed: apt-get install iproute2")
    said = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=True).stdout
    mine = [line.split()[3] for line in said.splitlines()]
    ports = {team.url.split(":")[2].split("/")[0], str(team.database.port)}
    found = [address for address in mine if address.rpartition(":")[2] in ports]
    assert len(found) >= 2 and all(address.startswith(("127.0.0.1:", "[::1]:")) for address in found)
