"""The compose files: they merge, they name what exists, and nothing listens beyond loopback."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_tools import command_of, services
from places import ROOT

FILES = sorted((ROOT / "docker").glob("compose*.yaml"))
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())


def ports() -> list[str]:
    """Published ports of all files."""
    parts = [service for file in FILES for service in yaml.safe_load(file.read_text())["services"].values()]
    return [str(port) for service in parts for port in service.get("ports", [])]


def test_published_ports_are_this_machines_loopback():
    assert ports() and all(port.startswith("127.0.0.1:") for port in ports())
    assert not [name for name, service in COMPOSE["services"].items() if service.get("network_mode")]


def test_the_server_listens_on_its_containers_network_only():
    words = command_of(COMPOSE["services"]["server"])
    assert words[words.index("--host") + 1] == "0.0.0.0"
    assert len(COMPOSE["services"]["server"]["ports"]) == 1 and "ports" not in COMPOSE["services"]["database"]


def test_no_password_or_token_stands_in_a_file():
    for file in FILES:
        for service in yaml.safe_load(file.read_text())["services"].values():
            for name, value in service.get("environment", {}).items():
                if re.search("TOKEN|SECRET|KEY|PASSWORD|AUTH", name):
                    assert value is None or str(value).startswith("${"), f"{file.name}: {name}"


def test_the_worker_limits_the_pool_to_one_run():
    (script,) = COMPOSE["services"]["worker"]["command"]
    assert "set-concurrency-limit infuser 1" in script and "--pool infuser --limit 1" in script
    (deployment,) = yaml.safe_load((ROOT / "configs" / "prefect.yaml").read_text())["deployments"]
    assert deployment["work_pool"]["name"] == "infuser"


def test_the_gpu_overlay_reserves_gpus_and_builds_as_the_script_does():
    worker = services("compose.gpu.yaml")["worker"]
    (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    script = (ROOT / "docker" / "build.sh").read_text()
    for name, value in worker["build"]["args"].items():
        assert name in script and value in script, f"{name}={value}"


def test_the_team_server_speaks_to_postgres_and_deploys_from_the_checkout():
    services = COMPOSE["services"]
    assert "postgresql+asyncpg://" in services["server"]["environment"]["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert "--prefect-file configs/prefect.yaml" in " ".join(services["worker"]["command"])
    builds = [service["build"] for service in services.values() if "build" in service]
    assert builds and all((ROOT / "docker" / each["context"] / each["dockerfile"]).is_file() for each in builds)


def test_services_wait_for_what_they_need_and_volumes_exist():
    for service in COMPOSE["services"].values():
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"} and "healthcheck" in COMPOSE["services"][other]
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_follows_the_compose_specification(file: Path):
    compose_spec = pytest.importorskip("compose_spec", reason="needs the package compose-spec")
    compose_spec.PyCompose.from_yaml(file.read_text()).validate()


@pytest.mark.parametrize("overlay", [None, "compose.gpu.yaml", "compose.sandbox.yaml"])
def test_docker_compose_accepts_and_merges_the_files(tmp_path: Path, overlay: str | None):
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed: apt-get install docker-compose")
    for file in FILES:
        # Version 1 knows the specification as it was before `name`.
        (tmp_path / file.name).write_text(re.sub(r"^name: .*\n", "", file.read_text(), flags=re.MULTILINE))
    command = [program, "-p", "infuser", "-f", "compose.yaml", *(["-f", overlay] if overlay else []), "config"]
    environment = {**os.environ, "POSTGRES_PASSWORD": "fake0password", "PREFECT_API_AUTH_STRING": "fake0word"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    merged: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    assert set(merged) == {"database", "server", "worker"}
    assert ("deploy" in merged["worker"]) == (overlay == "compose.gpu.yaml")
    assert "fake0password@database" in merged["server"]["environment"]["PREFECT_API_DATABASE_CONNECTION_URL"]


@pytest.mark.parametrize("missing", ["POSTGRES_PASSWORD", "PREFECT_API_AUTH_STRING"])
def test_a_missing_password_is_refused(tmp_path: Path, missing: str):
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed: apt-get install docker-compose")
    text = (ROOT / "docker" / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE))
    environment = {**os.environ, "POSTGRES_PASSWORD": "fake0password", "PREFECT_API_AUTH_STRING": "fake0word"}
    del environment[missing]
    done = subprocess.run([program, "config"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "set a password" in done.stderr
