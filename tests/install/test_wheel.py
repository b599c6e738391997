"""The release: wheel and source distribution, and the wheel in a read-only environment: its contents, its types, its
pins, and a life cycle in any folder."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
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


def build(folder: Path, *options: str) -> list[Path]:
    """Build this checkout into a folder, and list the files."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution that it was built from."""
    wheel, source = build(tmp_path_factory.mktemp("release"))
    return wheel, source


@pytest.fixture(scope="module")
def wheel(release: tuple[Path, Path]) -> Path:
    """The wheel."""
    return release[0]


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


def tracked(*folders: str) -> set[str]:
    """Files of the checkout that git knows."""
    listed = ["git", "ls-files", "-z", "--", *folders]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return {*filter(None, files)}


def test_everything_beside_the_code_is_in_it(wheel: Path):
    packed = {name.removeprefix("infuser_core/shipped/") for name in zipfile.ZipFile(wheel).namelist()}
    assert {*tracked("flows", "tasks", "corpus", "infuser_core", "configs"), "docs/sql.md"} - packed == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)


def test_the_source_distribution_holds_the_checkout_and_builds_the_same_wheel(
    release: tuple[Path, Path], tmp_path: Path
):
    wheel, source = release
    with tarfile.open(source) as archive:
        assert tracked() - {name.partition("/")[2] for name in archive.getnames()} == set()
    (direct,) = build(tmp_path, "--wheel")
    assert direct.name == wheel.name and direct.read_bytes() == wheel.read_bytes()


def test_their_metadata_are_valid(release: tuple[Path, Path]):
    command = [sys.executable, "-m", "twine", "check", "--strict", *release]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_version_is_the_same_everywhere(infuser: Infuser):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert infuser("--version").stdout.startswith(f"infuser {version}, ")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == f"{version} ({citation['date-released']})"
    assert citation["version"] == version


@pytest.mark.long
def test_strict_type_checkers_know_every_name_of_the_library(home: Path, tmp_path: Path):
    names = [f"infuser.{name}" for name in infuser_core.__all__]
    lines = ["import infuser_core as infuser", *(f"reveal_type({name})" for name in names)]
    (tmp_path / "script.py").write_text("\n".join(lines) + "\n")
    python = str(home / "bin" / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "script.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    types = re.findall(r'Revealed type is "(.*)"', checked.stdout)
    assert len(types) == len(names) and "Any" not in types


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
    # A distribution's Python may load modules of its own at the start.
    line = "import sys; own = {*sys.modules}; import infuser_core; print(*sorted({*sys.modules} - own))"
    names = {name.split(".")[0] for name in run_in(home, tmp_path, "python", "-c", line).stdout.split()}
    assert names - sys.stdlib_module_names == {"infuser_core"}


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
