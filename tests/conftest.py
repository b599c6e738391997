"""What the system tests share: a way to run commands, and one small finished run that all of them may look at."""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fault_tools import Faults
from hypothesis import settings
from launcher import Launcher, SmallRun, launcher

from infuser_core.nano import world

NANO = "configs/nano.yaml"
FIXED = "configs/ablation/fixed_generator.yaml"

# The same examples every time: a test that fails, fails for everybody.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, and so every process they start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Kills and faults that take minutes are asked for by name, as are several ranks: `make test-long`, -m long."""
    if config.getoption("markexpr"):
        return
    later = [item for item in items if item.get_closest_marker("long") or item.get_closest_marker("distributed")]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in later]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of this test session."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def launch(shared_folder: Path) -> Iterator[Launcher]:
    """Runs `infuser` commands as processes."""
    with launcher(shared_folder / "launcher") as client:
        yield client


@pytest.fixture(scope="session")
def small_overlay(shared_folder: Path) -> Path:
    """An overlay that makes the nano run small: seconds instead of minutes, and several optimizer steps per update."""
    folder = shared_folder / "small"
    folder.mkdir(exist_ok=True)
    exam = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in world.draw_questions("test", world.TARGET, 8, 0)
    ]
    values = {
        "data": {"dev": {"size": 8}, "validation": {"size": 16}},
        "cotrain": {
            "iterations": 2,
            "documents": 2,
            "group_size": 4,
            "validate_every": 1,
            "generator": {"minibatch": 1},
            "solver": {"minibatch": 2},
        },
        "evaluate": {"benchmarks": [{"name": "released", "label": "exam", "path": str(folder / "exam.json")}]},
    }
    for name, text in (("exam.json", json.dumps(exam)), ("small.yaml", yaml.safe_dump(values))):
        draft = folder / f"{name}.{os.getpid()}"
        draft.write_text(text)
        draft.rename(folder / name)
    return folder / "small.yaml"


@pytest.fixture
def faults(launch: Launcher, small_run: SmallRun, tmp_path: Path) -> Faults:
    """The small run in a store of its own, to be disturbed."""
    return Faults(launch=launch, run=small_run, store=tmp_path / "store")


@pytest.fixture(scope="session")
def small_run(launch: Launcher, small_overlay: Path) -> SmallRun:
    """The finished run, made by the first worker that asks."""
    folder = small_overlay.parent
    run = SmallRun(
        root=folder / "store",
        name="small",
        fixed="fixed",
        arguments=["run", NANO, str(small_overlay), "--name", "small"],
        fixed_arguments=["run", NANO, str(small_overlay), FIXED, "--name", "fixed"],
    )
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            for arguments in (run.arguments, run.fixed_arguments):
                ended = launch(*arguments, store=run.root)
                assert ended.code == 0, ended.err
            (folder / "done").touch()
    return run


@pytest.fixture(scope="module", name="world")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with files that settings can point to; the store lies in it."""
    # Imported here: few tests need the whole pipeline.
    from everything_stored import files_in

    with files_in(tmp_path_factory.mktemp("world")) as root:
        yield root
