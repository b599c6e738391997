"""Variants beside a reference: numbers by hand, and a verdict that needs both kinds of noise to be exceeded."""

from typing import Any

import duckdb
import pytest

from infuser_core.errors import UsageError
from infuser_core.report.against import AUC, Standing, markdown, standings

QUESTIONS = 40


def store_of(right: dict[str, int]) -> Any:
    """A query over a store in which every run answered the same questions once, the first `right[run]` rightly."""
    base = duckdb.connect()
    base.execute(
        "create table rollouts (run text, iteration int, phase text, artifact_key text, group_id text, verdict text)"
    )
    base.execute("create table selections (run text, selected_iteration int)")
    base.execute(
        "create table question_scores (run text, iteration int, phase text, artifact_key text, benchmark text,"
        " question_id text, num_samples int, num_correct int)"
    )
    base.execute(
        "create table benchmark_scores (run text, iteration int, phase text, artifact_key text, benchmark text,"
        " accuracy double)"
    )
    for run, count in right.items():
        base.execute("insert into selections values (?, 2)", [run])
        for number in range(QUESTIONS):
            row = [run, 2, "evaluate", f"{run}-e", "exam", f"q{number}", 1, int(number < count)]
            base.execute("insert into question_scores values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for iteration, accuracy in ((0, 0.0), (2, count / QUESTIONS)):
            row = [run, iteration, "validate", f"{run}-v", "validation", accuracy]
            base.execute("insert into benchmark_scores values (?, ?, ?, ?, ?, ?)", row)

    def query(sql: str) -> list[dict[str, Any]]:
        found = base.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return query


def rows_of(base: list[int], other: list[int]) -> dict[tuple[str, str], Standing]:
    runs = {f"{name}{seed}": right for name, counts in (("a", base), ("b", other)) for seed, right in enumerate(counts)}
    variants = {run: run[0] for run in runs}
    seeds = {run: int(run[1:]) for run in runs}
    return {(row.variant, row.measure): row for row in standings(store_of(runs), variants, seeds, "a")}


def test_means_deviations_and_gains_are_those_of_the_seeds() -> None:
    rows = rows_of([10, 12, 14], [20, 22, 24])
    other = rows["b", "exam"]
    assert other.mean == pytest.approx(22 / 40)
    assert other.sd == pytest.approx(2 / 40)
    assert other.gain == pytest.approx(10 / 40)
    assert other.seed_low == pytest.approx(10 / 40) and other.seed_high == pytest.approx(10 / 40)
    assert rows["b", AUC].gain == pytest.approx(5 / 40), "half of the end point: the curve starts at nothing"
    assert rows["a", "exam"].verdict == "reference" and rows["a", "exam"].gain is None


def test_a_difference_is_above_where_seeds_and_questions_agree() -> None:
    assert rows_of([10, 12, 14], [20, 22, 24])["b", "exam"].verdict == "above"
    assert rows_of([20, 22, 24], [10, 12, 14])["b", "exam"].verdict == "below"


def test_a_difference_that_seeds_disagree_about_is_noise() -> None:
    row = rows_of([10, 12, 14], [30, 11, 18])["b", "exam"]
    assert row.question_low is not None and row.question_low > 0
    assert row.seed_low is not None and row.seed_low < 0
    assert (row.verdict, row.one_sign) == ("within noise", False)


def test_a_difference_of_few_questions_is_noise_however_steady_over_seeds() -> None:
    row = rows_of([10, 12, 14], [11, 13, 15])["b", "exam"]
    assert row.seed_low is not None and row.seed_low > 0
    assert (row.verdict, row.one_sign) == ("within noise", True)


def test_one_seed_says_nothing_about_seeds() -> None:
    assert rows_of([10], [20])["b", "exam"].verdict == "unknown"


def test_other_seeds_give_no_paired_gain() -> None:
    variants = {"a0": "a", "b1": "b"}
    rows = standings(store_of({"a0": 3, "b1": 5}), variants, {"a0": 0, "b1": 1}, "a")
    assert [row.gain for row in rows if row.variant == "b"] == [None, None]


def test_the_reference_comes_first_and_has_to_exist() -> None:
    query, variants, seeds = store_of({"a0": 3, "b0": 5}), {"a0": "a", "b0": "b"}, {"a0": 0, "b0": 0}
    assert next(row.variant for row in standings(query, variants, seeds, "b")) == "b"
    with pytest.raises(UsageError, match="no run of variant 'c'"):
        standings(query, variants, seeds, "c")


def test_the_table_has_a_line_per_variant_and_shows_clear_differences_bold() -> None:
    runs = {f"{name}{seed}": right + seed for name, right in (("a", 10), ("b", 20)) for seed in range(3)}
    variants, seeds = {run: run[0] for run in runs}, {run: int(run[1:]) for run in runs}
    lines = markdown(standings(store_of(runs), variants, seeds, "a")).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| a | 3 | ") and "reference" not in lines[2]
    assert "**above**" in lines[3]
