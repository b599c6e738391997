"""Strong solvers against the base on generated questions, for any set of solvers."""

import numpy as np
import pytest

from infuser_core.errors import UsageError
from infuser_core.statistics.question_quality import strong_weak_gaps
from infuser_core.statistics.tally import Tally, accuracy, from_counts


def solvers() -> dict[str, Tally]:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.2, 0.6, 300)
    return {
        name: from_counts({f"q{n}": int(rng.binomial(4, min(1.0, p + more))) for n, p in enumerate(chance)}, 4)
        for name, more in (("strong", 0.2), ("base", 0.0), ("same", 0.0))
    }


def test_every_other_solver_is_compared_with_the_base():
    found = solvers()
    gaps = strong_weak_gaps(found, "base", draws=2000)
    assert list(gaps) == ["strong", "same"]
    for solver, gap in gaps.items():
        assert gap.value == pytest.approx(accuracy(found[solver]) - accuracy(found["base"]))
    assert gaps["strong"].low > 0.1 and gaps["same"].low < 0 < gaps["same"].high


def test_questions_that_one_solver_did_not_answer_are_counted():
    short = from_counts({"a": 1, "b": 0}, 1)
    base = from_counts({"a": 0, "b": 0, "c": 1}, 1)
    found = strong_weak_gaps({"base": base, "strong": short}, "base", draws=50)["strong"]
    assert (found.questions, found.left_out, found.value) == (2, 1, 0.5)


def test_unknown_solvers_are_named():
    with pytest.raises(UsageError, match="no answers of other"):
        strong_weak_gaps(solvers(), "other")
