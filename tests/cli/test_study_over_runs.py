"""A study of one run is that run's; of several it is each, with means over them beside the paper's score."""

from typing import Any

import pytest

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
