"""docs/deploy.md: every command and option in it and in the files that it names exists, and these are well-formed."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from places import ROOT

from flows.cli import main

TEXT = (ROOT / "docs" / "deploy.md").read_text()
BIN = Path(sys.executable).parent
PROGRAMS = ("infuser", "prefect", "ray")


SCRIPT = (ROOT / "docker" / "slurm.sh").read_text()
SKYPILOT: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "skypilot.yaml").read_text())
UNIT = (ROOT / "docker" / "infuser.service").read_text()
MANIFESTS: list[Any] = list(yaml.safe_load_all((ROOT / "docker" / "kubernetes.yaml").read_text()))


def commands() -> list[list[str]]:
    """Every call of infuser, prefect and ray: in scripts, in the manifests, and in the text."""
    text = "\n".join([*re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL), SCRIPT, SKYPILOT["run"]]).replace("\\\n", " ")
    quoted = re.findall(r"`((?:infuser|prefect|ray) [^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    found = [*map(words, text.splitlines()), *map(words, quoted)]
    for document in MANIFESTS:
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", []):
            found.append([*container.get("command", ["infuser"])[-99:], *container.get("args", [])])
    found += [words(line.removeprefix("ExecStart=/opt/infuser/.venv/bin/")) for line in UNIT.splitlines()]
    return [call for call in map(from_program, found) if call]


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True) if line.count("'") % 2 == 0 else []


def from_program(call: list[str]) -> list[str]:
    """The part from the program on: after `srun --overlap`, `tini --` and such."""
    start = next((n for n, word in enumerate(call) if word in PROGRAMS), None)
    if start is None or call[0] in ("export", "pip", "pg_dump", "pg_restore"):
        return []
    ends = [n for n, word in enumerate(call) if n > start and word in ("&", "&&", "|", ";")]
    return call[start : min(ends, default=len(call))]


@cache
def infuser_commands() -> dict[str, Any]:
    """The commands of `infuser` by name."""
    return dict(typer.main.get_command(main.app).commands)  # type: ignore[attr-defined]


def infuser_options(call: list[str]) -> set[str]:
    """Options of the command that is called."""
    ahead, command = infuser_commands(), None
    for word in call[1:]:
        if word not in ahead:
            break
        command = ahead[word]
        ahead = getattr(command, "commands", {})
    assert command is not None and not ahead, f"{shlex.join(call)}: no such command"
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def command_of(call: list[str]) -> tuple[str, ...]:
    """The command of prefect or ray that is called."""
    depth = {"deploy": 1, "start": 1}.get(call[1], 2)
    return tuple(call[: 4 if call[1:3] == ["server", "database"] else depth + 1])


# One process for all of them: each would import Prefect for seconds.
SAY_HELP = """
import contextlib, io, json, sys
from prefect.cli import app as prefect
from ray.scripts.scripts import main as ray
told = {}
for call in json.loads(sys.argv[1]):
    sys.argv = [*call, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        {"prefect": prefect, "ray": ray}[call[0]]()
    told[" ".join(call)] = said.getvalue()
print(json.dumps(told))
"""


@cache
def helps() -> dict[str, str]:
    """What prefect and ray themselves say of the commands that are named."""
    calls = sorted({command_of(call) for call in commands() if call[0] != "infuser"})
    words = [sys.executable, "-c", SAY_HELP, json.dumps(calls)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True).stdout)


def foreign_options(call: list[str]) -> set[str]:
    """The same for prefect and ray, from their help."""
    return set(re.findall(r"--[a-z][a-z-]+|(?<=\s)-[a-z]\b", helps()[" ".join(command_of(call))]))


def test_the_document_has_commands_of_every_kind():
    named = {" ".join(call[:3]) for call in commands()}
    assert {
        "infuser doctor",
        "infuser doctor --file-system",
        "prefect work-pool set-concurrency-limit",
    } <= named
    assert {call[0] for call in commands()} == set(PROGRAMS) and len(commands()) > 30


def test_the_skypilot_task_has_a_shared_store_and_counts_its_accelerators():
    cards, number = SKYPILOT["resources"]["accelerators"].split(":")
    ranks = SKYPILOT["num_nodes"] * int(number)
    settings = SKYPILOT["envs"]
    assert settings["RANKS"] == str(ranks) and settings["GPUS"] == f"{ranks}x{cards}"
    assert any(settings["INFUSER_STORE"].startswith(f"{place}/") for place in SKYPILOT["volumes"])
    used = set(re.findall(r"\$\{?([A-Z_]+)", SKYPILOT["run"]))
    assert {name for name in used if not name.startswith("SKYPILOT_")} <= {*settings, *SKYPILOT["secrets"]}


@pytest.mark.parametrize("call", commands(), ids=lambda call: shlex.join(call)[:70])
def test_every_command_and_option_exists(call: list[str]):
    known = infuser_options(call) if call[0] == "infuser" else foreign_options(call)
    used = {word.partition("=")[0] for word in call[1:] if word.startswith("--")}
    assert used <= known, f"{shlex.join(call)}: {sorted(used - known)} do not exist"


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"\b(?:configs|docker)/[\w./-]+\w", TEXT))
    assert named and [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("script", [SCRIPT, SKYPILOT["setup"], SKYPILOT["run"]], ids=["slurm", "setup", "run"])
def test_the_scripts_are_bash(script: str):
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "--exclude", "SC1091", "--shell", "bash", "-"], input=script, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


def test_the_unit_is_what_systemd_expects(tmp_path: Path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    # It looks for the program, the folder and the user of the unit, which are the reader's.
    own = UNIT.replace("/opt/infuser/.venv/bin/infuser", str(BIN / "infuser")).replace("User=infuser\n", "")
    path = tmp_path / "infuser.service"
    path.write_text(own.replace("WorkingDirectory=/opt/infuser", "WorkingDirectory=/"))
    done = subprocess.run([program, "verify", "--man=no", path], capture_output=True, text=True)
    mine = [line for line in done.stderr.splitlines() if "infuser.service" in line]
    assert mine == [], done.stderr


def test_the_manifests_share_one_volume_and_never_run_as_root():
    claim, *workloads = MANIFESTS
    assert (claim["kind"], claim["spec"]["accessModes"]) == ("PersistentVolumeClaim", ["ReadWriteMany"])
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        assert claim["metadata"]["name"] in {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        }
        names = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]} == names


def test_every_manifest_follows_the_published_schemas(tmp_path: Path):
    own = ROOT / ".venv-images" / "bin" / "kubernetes-validate"
    program = str(own) if own.exists() else shutil.which("kubernetes-validate")
    if program is None:
        pytest.skip("kubernetes-validate is not here: `make images-check` installs it")
    for number, manifest in enumerate(MANIFESTS):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(manifest))
    done = subprocess.run([program, "--strict", *tmp_path.glob("*.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
