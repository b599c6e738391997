"""Several solvers answer the generated questions of an iteration; the gap to the base has its paired interval."""

import json
import shutil
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

SOLVERS = ("--solver", "small@0", "--solver", "small@2")


@pytest.fixture(scope="module")
def store(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of our own: examinations are written into it."""
    return Path(shutil.copytree(small_run.root, tmp_path_factory.mktemp("solvers") / "store"))


@pytest.fixture(scope="module")
def found(launch: Launcher, store: Path) -> dict:
    ended = launch("report", "quality", "small", "--iterations", "1", *SOLVERS, "--json", store=store)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_the_base_comes_first_and_the_others_beside_it(found: dict, launch: Launcher, store: Path):
    base, other = found["solvers"]
    said = launch("sql", "select count(*) as n from questions where iteration = 1 and run = 'small'", "--json",
                  store=store)  # fmt: skip
    assert base["solver"] == found["base"] == "small@0" and other["solver"] == "small@2"
    assert base["questions"] == other["questions"] == json.loads(said.out)[0]["n"] > 0
    assert other["gap"] == pytest.approx(other["agreement"] - base["agreement"])
    assert other["low"] <= other["gap"] <= other["high"]


def test_asked_again_it_says_the_same(found: dict, launch: Launcher, store: Path):
    ended = launch("report", "quality", "small", "--iterations", "1", *SOLVERS, "--json", store=store)
    assert json.loads(ended.out)["solvers"] == found["solvers"]


def test_a_missing_iteration_is_named(launch: Launcher, store: Path):
    ended = launch("report", "quality", "small", "--iterations", "99", *SOLVERS, store=store)
    assert ended.code == 2 and "--iterations 99" in ended.err
