"""The image: files that exist, versions that fit, two environments, no root, no secrets."""

import fnmatch
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from places import ROOT

TEXT = (ROOT / "docker" / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def copied() -> list[str]:
    """Paths that the image takes from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
    return [path for line in lines for path in line.split()[:-1]]


def is_sent(path: str) -> bool:
    """Whether a path goes to Docker's daemon: the last pattern that fits it, or a folder above it, decides."""
    sent = True
    above = [path, *(parent.as_posix() for parent in Path(path).parents if parent != Path())]
    for line in IGNORED:
        pattern = line.lstrip("!")
        if line and not line.startswith("#"):
            plain = pattern.removeprefix("**/")
            names = [*above, *(Path(name).name for name in above)] if plain != pattern else above
            if any(fnmatch.fnmatchcase(name, plain) and (plain != "*" or "/" not in name) for name in names):
                sent = line.startswith("!")
    return sent


def pins(name: str) -> dict[str, str]:
    """Package to version."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if "==" in line and not line.startswith("#")]
    return {line.partition("==")[0].lower().replace("_", "-"): line.partition("==")[2] for line in lines}


def test_everything_that_is_copied_exists_and_is_sent_to_the_daemon():
    assert len(copied()) >= 10
    assert [path for path in copied() if not (ROOT / path).exists()] == []
    assert [path for path in copied() if not is_sent(path)] == []


@pytest.mark.parametrize(
    "path",
    [".git/config", ".venv/bin/python", ".infuser/runs/a/run.json", "tests/conftest.py", ".env", "configs/.env.local",
     "configs/key.pem", "flows/__pycache__/cli.pyc", "data/x.json", "flows/cli.pyc", "docker/compose.yaml"],
)  # fmt: skip
def test_stores_secrets_and_rubbish_never_reach_the_daemon(path: str):
    assert not is_sent(path)


def test_nothing_secret_is_baked_in():
    names = re.findall(r"\b(?:ARG|ENV)\s+(\w+)|^\s+(\w+)=", TEXT, re.MULTILINE)
    assert not [name for pair in names for name in pair if re.search("TOKEN|SECRET|PASSWORD|KEY", name)]


def test_the_image_runs_as_an_ordinary_user_with_a_sandbox_for_programs():
    user = re.findall(r"^USER (\d+):(\d+)$", TEXT, re.MULTILINE)
    assert user and user[-1][0] != "0"
    assert TEXT.rindex("\nUSER ") > TEXT.rindex("\nRUN "), "nothing is installed by the user"
    assert "bubblewrap" in TEXT
    assert re.search(r"install -d -o infuser -g infuser /store", TEXT)


def test_the_base_is_an_argument_and_marker_has_an_environment_of_its_own():
    assert re.search(r"^ARG BASE=\S+$", TEXT, re.MULTILINE) and "FROM ${BASE}" in TEXT
    marker = re.search(r"INFUSER_MARKER=(\S+)/bin/marker_single", TEXT)
    assert marker and f"-m venv {marker.group(1)}" in TEXT
    assert "marker-pdf" not in pins("docker/constraints-gpu.txt")


@pytest.mark.parametrize(
    ("file", "extras"),
    [("constraints.txt", []), ("docker/constraints-gpu.txt", ["rollout-vllm", "deepspeed"])],
)
def test_the_pins_of_an_image_satisfy_the_project(file: str, extras: list[str]):
    found = pins(file)
    more = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(line for name in extras for line in more.get(name, []))]
    for requirement in map(Requirement, asked):
        name = requirement.name.lower().replace("_", "-")
        assert name in found, f"{file} does not pin {name}"
        assert requirement.specifier.contains(found[name]), f"{file}: {name} {found[name]} is not {requirement}"


FORCED = {
    "transformers", "fastapi", "numpy", "prefect", "packaging", "python-slugify", "py-key-value-aio", "virtualenv",
}  # fmt: skip
"""Packages that vllm holds back, itself or through others; the head of the file says why."""


def test_the_image_has_the_tested_versions_but_for_those_that_vllm_forces():
    tested, image = pins("constraints.txt"), pins("docker/constraints-gpu.txt")
    differing = {name for name in tested.keys() & image.keys() if tested[name] != image[name]}
    assert differing == FORCED
    head = (ROOT / "docker/constraints-gpu.txt").read_text().partition("\n\n")[0]
    assert all(name in head for name in FORCED)


def test_a_gpu_image_computes_with_several_threads_and_a_cpu_image_with_one():
    assert re.search(r"^ARG OMP_THREADS=1$", TEXT, re.MULTILINE) and "OMP_NUM_THREADS=${OMP_THREADS}" in TEXT
    assert "--build-arg OMP_THREADS=8" in (ROOT / "docker" / "build.sh").read_text()


def test_marker_is_pinned_apart_from_the_project():
    found = pins("docker/constraints-marker.txt")
    assert found["marker-pdf"].startswith("2.") and int(found["pillow"].split(".")[0]) < 11


@pytest.mark.parametrize("variant", ["cpu", "gpu"])
def test_the_build_script_asks_docker_for_the_image(tmp_path: Path, variant: str):
    fake = tmp_path / "docker"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [ROOT / "docker" / "build.sh", variant, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "DOCKER": str(fake)},
    )  # fmt: skip
    words = done.stdout.splitlines()
    assert words[0] == "build" and words[-1] == str(ROOT) and "--no-cache" in words
    assert words[words.index("--tag") + 1] == f"infuser:{variant}"
    declared = set(re.findall(r"^ARG (\w+)", TEXT, re.MULTILINE))
    given = {words[n + 1].partition("=")[0] for n, word in enumerate(words) if word == "--build-arg"}
    assert given <= declared and bool(given) == (variant == "gpu")


def test_the_build_script_explains_itself():
    done = subprocess.run([ROOT / "docker" / "build.sh"], capture_output=True, text=True)
    assert done.returncode == 2 and "usage:" in done.stderr


def test_the_image_files_pass_their_linters():
    tools = next((path for path in (ROOT / ".venv-images" / "bin",) if (path / "hadolint").exists()), None)
    if tools is None and not all(shutil.which(name) for name in ("hadolint", "shellcheck")):
        pytest.skip("hadolint and shellcheck are not here: `make images-check` installs them")
    command = [str(ROOT / "docker" / "check.sh"), *([str(tools)] if tools else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
