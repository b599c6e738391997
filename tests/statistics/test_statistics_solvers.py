"""Strong solvers against the base on generated questions, for any set of solvers."""

import numpy as np
import pytest

from infuser_core.evaluation.generated import agreements
from infuser_core.evaluation.statistics.tally import Tally, accuracy, from_counts


def solvers() -> dict[str, Tally]:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.2, 0.6, 300)
    return {
        name: from_counts({f"q{n}": int(rng.binomial(4, min(1.0, p + more))) for n, p in enumerate(chance)}, 4)
        for name, more in (("base", 0.0), ("strong", 0.2), ("same", 0.0))
    }


def test_every_solver_stands_beside_the_first():
    found = solvers()
    base, *others = agreements(found, 3)
    assert base["solver"] == "base" and base["gap"] is None and [row["solver"] for row in others] == ["strong", "same"]
    for row in others:
        assert row["iteration"] == 3 and row["agreement"] == accuracy(found[row["solver"]])
        assert row["gap"] == pytest.approx(row["agreement"] - base["agreement"])
    assert others[0]["low"] > 0.1 and others[1]["low"] < 0 < others[1]["high"]


def test_only_common_questions_are_compared():
    short, base = from_counts({"a": 1, "b": 0}, 1), from_counts({"a": 0, "b": 0, "c": 1}, 1)
    row = agreements({"base": base, "strong": short}, 0)[1]
    assert (row["questions"], row["gap"]) == (2, 0.5)
