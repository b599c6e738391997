"""Studies of several runs: means, differences to the first score paired by run, and what some run lacks."""

import statistics

import pytest
from scipy.stats import t as student

from infuser_core.statistics.averages import over_runs


def rows(**values: float) -> list[dict[str, object]]:
    return [{"predictor": name, "target": "held_out", "spearman": value} for name, value in values.items()]


def test_differences_are_paired_by_run_and_variants_stay_apart() -> None:
    first, other = [0.9, 0.7, 0.8], [0.6, 0.5, 0.7]
    tables = [("lab", rows(own=a, other=b)) for a, b in zip(first, other, strict=True)]
    found = over_runs([*tables, ("far", rows(own=0.1, other=0.2))], name="predictor", value="spearman", first="own")
    own, second, *far = found
    gaps = [a - b for a, b in zip(first, other, strict=True)]
    half = student.ppf(0.975, 2) * statistics.stdev(gaps) / 3**0.5
    assert (own["mean"], own["behind"], own["lower_in"]) == (0.8, 0, 0)
    assert (second["behind_low"], second["behind_high"]) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-4)
    assert (second["lower_in"], second["runs"], second["measure"]) == (3, 3, "held_out")
    assert [(row["variant"], row["runs"], row["low"], row["lower_in"]) for row in far] == [("far", 1, None, 0)] * 2


def test_a_score_that_one_run_lacks_is_left_out() -> None:
    tables = [("lab", rows(own=0.9, oracle=0.5)), ("lab", rows(own=0.8))]
    assert [row["name"] for row in over_runs(tables, name="predictor", value="spearman", first="own")] == ["own"]
