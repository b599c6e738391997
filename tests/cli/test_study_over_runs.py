"""A study of one run is that run's; of several it is each, with means over them beside the paper's score."""

from pathlib import Path
from typing import Any

import pytest
from care_tools import copy_run
from launcher import Launcher, SmallRun

from flows.studies import of_each
from infuser_core.cotrain.studies.candidates import PAPER


def study(run: str | None, *, iteration: int) -> dict[str, Any]:
    value = {"one": 0.5, "two": 0.7}.get(run or "", 0.1)
    rows = [{"arm": PAPER, "accuracy": value}, {"arm": "random", "accuracy": value - 0.2}]
    return {"run": run, "variant": "plain", "iteration": iteration, "arms": rows}


@pytest.mark.parametrize(("given", "run"), [([], None), (["one"], "one")])
def test_one_run_or_the_latest_is_studied_alone(given: list[str], run: str | None):
    assert of_each(study, given, iteration=3) == study(run, iteration=3)


def test_several_runs_have_means_and_are_all_there():
    found = of_each(study, ["one", "two"], iteration=3)
    assert [each["run"] for each in found["runs"]] == ["one", "two"]
    paper, other = found["pooled"]
    assert (paper["name"], paper["mean"]) == (PAPER, pytest.approx(0.6))
    assert (other["name"], other["mean"]) == ("random", pytest.approx(0.4))


def test_a_gradient_that_retention_removed_is_computed_again(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    assert launch("gc", "--apply", "--keep-full", "1", store=store).code == 0
    ended = launch("study", "prediction", "small", "--questions", "2", "--answers", "2", store=store)
    assert ended.code == 0, ended.err
    assert "was pruned by gc" in ended.err and "dev_gradient" in ended.told and "preconditioned_cosine" in ended.out
