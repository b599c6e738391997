"""The wheel in an environment of its own, read-only: its contents, its pins, and a life cycle in any folder."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from places import ROOT

import infuser_core

Infuser = Callable[..., subprocess.CompletedProcess[str]]
SMALL = {
    "cotrain.iterations": 1,
    "cotrain.documents": 2,
    "cotrain.group_size": 4,
    "data.dev.size": 4,
    "data.validation.size": 8,
    "evaluate.benchmarks": [],
}
CLASSES = {"RunReader", "StartedRun", "StoreReader"}
"""Public names that functions return."""
# Root writes what it wants, but for these.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, read-only."""
    home = tmp_path_factory.mktemp("fresh") / "an environment"
    venv.create(home, symlinks=True)
    libraries = Path(sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})["purelib"])
    # The heavy libraries are this environment's own. Lines of such a file lead to no others: its checkout stays away.
    (libraries / "shared.pth").write_text(sysconfig.get_paths()["purelib"])
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    for path in (home, *home.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    assert subprocess.run([*ORDINARY, "touch", home / "written"], capture_output=True).returncode != 0
    return home


def run_in(home: Path, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment in a folder, without the user's settings."""
    environment = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    command = [*ORDINARY, str(home / "bin" / program), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def infuser(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Infuser:
    """Runs the installed command in a folder with an odd name, and with modules that nobody asked for."""
    folder = tmp_path_factory.mktemp("away") / "Bücher und 模型"
    folder.mkdir()
    for name in ("infuser_core", "flows", "corpus", "json"):
        (folder / f"{name}.py").write_text("raise SystemExit('code of the working folder')")
    return partial(run_in, home, folder, "infuser")


def test_everything_beside_the_code_is_in_it(wheel: Path):
    listed = ["git", "ls-files", "-z", "--", "flows", "tasks", "corpus", "infuser_core", "configs"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    packed = {name.removeprefix("infuser_core/shipped/") for name in zipfile.ZipFile(wheel).namelist()}
    assert {*filter(None, files), "docs/sql.md"} - packed == set()


def test_it_says_which_version_is_installed_where(infuser: Infuser):
    said = infuser("--version").stdout
    assert said.startswith("infuser ") and f"Python {sys.version.split()[0]}, " in said and "an environment" in said
    assert str(ROOT) not in said


def test_shipped_files_are_found(infuser: Infuser):
    listed = json.loads(infuser("configs", "--json").stdout)
    assert {"nano", "engine/one-gpu", "sweep/nano"} <= {one["name"] for one in listed}
    assert all(Path(one["path"]).is_file() for one in listed)
    refused = infuser("quickstart", "--iterations", "-1")
    assert (refused.returncode, refused.stderr.partition(":")[0]) == (2, "infuser"), refused.stderr
    assert refused.stderr.startswith("infuser: cotrain.iterations = -1: ")


def test_a_first_configuration_is_written_and_plans(infuser: Infuser):
    written = infuser("init", "neu & leer")
    command = "infuser run 'neu & leer/start.yaml'"
    steps = f"next: edit anchor, data.dev and corpus.pool in it, then: {command}"
    assert written.stdout.splitlines() == ["neu & leer/start.yaml", steps]
    planned = infuser("plan", "neu & leer/start.yaml", "--gpus", "cpu")
    assert planned.returncode == 0, planned.stderr


def test_a_run_by_its_name_has_a_result(infuser: Infuser):
    changes = [word for key, value in SMALL.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = infuser("run", "nano", *changes, "--name", "first")
    assert done.returncode == 0, done.stderr
    result = json.loads(infuser("result", "--json").stdout)
    assert result["run"] == "first"


SCRIPTS = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
"""Scripts of the page about the library, and what they print if the page shows it."""


def test_scripts_of_the_library_page_run_from_the_wheel_without_prefect_and_ray(home: Path, tmp_path: Path):
    for name in ("prefect", "ray"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not needed here')")
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    scripts = SCRIPTS.findall(page)
    assert {name for name in infuser_core.__all__ if f"infuser.{name}" in page} == {*infuser_core.__all__} - CLASSES
    for number, (script, shown) in enumerate(scripts):
        assert len(script.splitlines()) <= 10
        (tmp_path / f"script{number}.py").write_text(script, encoding="utf-8")
        done = run_in(home, tmp_path, "python", f"script{number}.py")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() and (not shown or done.stdout == shown)


def test_import_of_the_library_loads_no_other_package(home: Path, tmp_path: Path):
    line = "import sys, infuser_core; print(*sorted(name for name in sys.modules if '.' not in name))"
    names = set(run_in(home, tmp_path, "python", "-c", line).stdout.split())
    assert names - sys.stdlib_module_names - {"__main__"} == {"infuser_core"}


def test_names_of_the_library_exist_and_others_do_not():
    assert all(getattr(infuser_core, name).__doc__ for name in infuser_core.__all__)
    assert {*infuser_core.__all__} <= {*dir(infuser_core)}
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        infuser_core.scores  # noqa: B018


@pytest.mark.parametrize("python", ["3.11.2", "3.12.0", "3.13.0"])
def test_no_pinned_package_asks_for_a_newer_python(python: str):
    # 3.11.2 is that of Debian 12.
    asked = {found.name: SpecifierSet(found.metadata["Requires-Python"] or "") for found in distributions()}
    assert len(asked) > 100 and [name for name, versions in asked.items() if not versions.contains(python)] == []
