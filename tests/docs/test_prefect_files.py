"""The files for teams: they parse, and what they name exists."""

import importlib
from typing import Any

import yaml
from places import ROOT


def _yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_deployment_names_the_flow_and_known_parameters() -> None:
    (deployment,) = _yaml("configs/prefect.yaml")["deployments"]
    module, _, name = deployment["entrypoint"].partition(":")
    flow = getattr(importlib.import_module(module), name)
    assert f"{flow.name}/{deployment['name']}" == "infuser/full-pipeline"
    assert set(deployment["parameters"]) <= set(flow.parameters.properties)
    assert all((ROOT / path).is_file() for path in deployment["parameters"]["configs"])


def test_the_compose_file_names_what_exists() -> None:
    compose = _yaml("docker/compose.yaml")
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        build = service.get("build")
        if build:
            context = ROOT / "docker" / build["context"]
            assert (context / build["dockerfile"]).is_file()
    mounted = [str(volume).partition(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    assert set(mounted) == set(compose["volumes"])
    assert all(str(port).startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", []))


def test_the_team_server_speaks_to_postgres_and_deploys_our_pool() -> None:
    services = _yaml("docker/compose.yaml")["services"]
    assert "postgresql+asyncpg://" in services["server"]["environment"]["PREFECT_API_DATABASE_CONNECTION_URL"]
    (deployment,) = _yaml("configs/prefect.yaml")["deployments"]
    command = " ".join(services["worker"]["command"])
    assert f"--pool {deployment['work_pool']['name']}" in command
    assert "--prefect-file configs/prefect.yaml" in command
