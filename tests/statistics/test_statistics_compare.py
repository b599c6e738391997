"""`infuser compare` puts intervals over questions and over seeds beside every difference."""

import json
from pathlib import Path

import numpy as np
import pytest

from infuser_core.schemas import BenchmarkScore, QuestionScore, Rollout, Selection
from infuser_core.statistics.bootstrap import detectable, difference
from infuser_core.statistics.tally import from_counts, shares
from infuser_core.store.recipe import Recipe
from infuser_core.store.runs import Journal, create_run
from infuser_core.store.store import Outcome, Store, Table
from tasks.inspection import compare

QUESTIONS, SAMPLES = 40, 4


def commit(store: Store, journal: Journal, phase: str, iteration: int, tables: dict[str, Table], of: str) -> None:
    """One artifact in the store and in the run's journal."""
    recipe = Recipe(
        phase=phase, version=1, config={"run": journal.path.parent.name, "of": of}, seed=0, iteration=iteration
    )
    with store.exclusive(recipe), store.workspace(recipe) as workspace:
        ref = store.commit(recipe, workspace, Outcome(tables=tables), seconds=0.0)
    journal.append(phase=phase, iteration=iteration, state="ran", seconds=0.0, key=ref.key, digest=ref.digest)


def score(label: str, correct: dict[str, int]) -> Table:
    row = BenchmarkScore(
        benchmark=label,
        checkpoint_id="c",
        num_questions=len(correct),
        num_samples=SAMPLES,
        accuracy=sum(correct.values()) / len(correct) / SAMPLES,
        low=0.0,
        high=1.0,
        answered=1.0,
        unverified=0,
        mean_response_tokens=1.0,
    )
    return Table(row_type=BenchmarkScore, rows=[row])


def question_rows(label: str, correct: dict[str, int]) -> Table:
    rows = [
        QuestionScore(
            benchmark=label,
            question_id=name,
            domain="",
            num_samples=SAMPLES,
            num_correct=count,
            num_no_answer=0,
            num_unverified=0,
            num_cut=0,
            too_long=False,
            mean_response_tokens=1.0,
        )
        for name, count in correct.items()
    ]
    return Table(row_type=QuestionScore, rows=rows)


def rollout_rows(correct: dict[str, int]) -> Table:
    rows = [
        Rollout(
            rollout_id=f"{name}/{at}",
            group_id=name,
            sample_index=at,
            role="solver",
            checkpoint_id="c",
            prompt_token_ids=[],
            token_ids=[],
            sampler_logprobs=[],
            text="",
            finish_reason="stop",
            verdict="correct" if at < count else "wrong",
            reward=float(at < count),
            malformed_reason="",
        )
        for name, count in correct.items()
        for at in range(SAMPLES)
    ]
    return Table(row_type=Rollout, rows=rows)


def evaluated(
    store: Store, run: str, variant: str, seed: int, correct: dict[str, int], *, rollouts: bool = False
) -> None:
    """A run that selected iteration 2 of the validated 0 and 2, with a benchmark at both."""
    create_run(store.root, run, {"name": "base", "variant": variant, "seed": seed})
    journal = Journal(store.root, run)
    journal.start_attempt()
    poor = dict.fromkeys(correct, 0)
    for iteration, counts in ((0, poor), (2, correct)):
        for phase, label in (("validate", "validation"), ("evaluate", "exam")):
            detail = (
                {"rollouts": rollout_rows(counts)} if rollouts else {"question_scores": question_rows(label, counts)}
            )
            commit(store, journal, phase, iteration, {"benchmark_scores": score(label, counts), **detail}, label)
    chosen = Selection(selected_iteration=2, checkpoint_id="c", accuracy=0.5)
    commit(store, journal, "select", -1, {"selections": Table(row_type=Selection, rows=[chosen])}, "validation")
    journal.append(phase="run", iteration=-1, state="done", seconds=0.0)


def counts(seed: int, chance: float) -> dict[str, int]:
    drawn = np.random.default_rng(seed).binomial(SAMPLES, chance, QUESTIONS)
    return {f"q{n}": int(count) for n, count in enumerate(drawn)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    for seed in (1, 2, 3):
        evaluated(store, f"plain{seed}", "", seed, counts(seed, 0.6))
        evaluated(store, f"fixed{seed}", "fixed", seed, counts(10 + seed, 0.4), rollouts=seed == 3)
    return tmp_path


def names(*kinds: str) -> list[str]:
    return [f"{kind}{seed}" for kind in kinds for seed in (1, 2, 3)]


def test_differences_stand_in_the_later_variant(root: Path):
    first, second = json.loads(compare(root, names("plain", "fixed"), as_json=True))
    assert (first["variant"], second["variant"]) == ("base", "base-fixed") and first["differences"] == []
    assert [(row["phase"], row["benchmark"]) for row in second["differences"]] == [
        ("evaluate", "exam"),
        ("validate", "validation"),
    ]
    exam = second["differences"][0]
    assert exam["difference"] == pytest.approx(second["test"] - first["test"], abs=1e-12)
    assert exam["low"] < exam["difference"] < exam["high"] < 0 and exam["sign_share"] < 0.001
    assert 0 < exam["detectable"] < 0.15 and (exam["questions"], exam["left_out"]) == (QUESTIONS, 0)


def test_seeds_are_paired_by_their_number(root: Path):
    exam = json.loads(compare(root, names("plain", "fixed"), as_json=True))[1]["differences"][0]
    gaps = [
        (sum(counts(10 + seed, 0.4).values()) - sum(counts(seed, 0.6).values())) / QUESTIONS / SAMPLES
        for seed in (1, 2, 3)
    ]
    half = 4.302653 * np.std(gaps, ddof=1) / 3**0.5
    assert exam["seeds"] == 3 and exam["seed_sd"] == pytest.approx(np.std(gaps, ddof=1))
    assert (exam["seed_low"], exam["seed_high"]) == pytest.approx((np.mean(gaps) - half, np.mean(gaps) + half))


def test_different_seeds_are_not_paired(root: Path):
    exam = json.loads(compare(root, ["plain1", "plain2", "fixed1"], as_json=True))[1]["differences"][0]
    assert (exam["seeds"], exam["seed_sd"], exam["seed_low"]) == (0, None, None)


def test_two_single_runs_are_the_paired_bootstrap_itself(root: Path):
    exam = json.loads(compare(root, ["plain3", "fixed3"], as_json=True))[1]["differences"][0]
    tallies = [from_counts(counts(3, 0.6), SAMPLES), from_counts(counts(13, 0.4), SAMPLES)]
    plain = difference(*tallies)
    # fixed3 saved rollouts, plain3 the scores of questions: both are read alike.
    assert (exam["low"], exam["high"]) == pytest.approx((plain.low, plain.high), abs=0.01)
    assert exam["difference"] == pytest.approx(plain.value) and exam["detectable"] == detectable(
        shares(tallies[1]) - shares(tallies[0])
    )


def test_runs_of_one_variant_are_compared_with_each_other(root: Path):
    (row,) = json.loads(compare(root, names("plain"), as_json=True))
    pairs = [(gap["against"], gap["variant"]) for gap in row["differences"] if gap["phase"] == "evaluate"]
    assert pairs == [("plain1", "plain2"), ("plain1", "plain3"), ("plain2", "plain3")]


def test_the_terminal_shows_both_tables(root: Path):
    shown = compare(root, names("plain", "fixed"), as_json=False)
    head, _, below = shown.partition("\n\n")
    assert "base-fixed" in head and "differences" not in head
    assert "base-fixed - base" in below and "detectable" in below and "selection saw it" in below


def test_a_run_without_validation_has_no_area(tmp_path: Path):
    create_run(tmp_path, "bare", {"name": "base", "variant": "", "seed": 1})
    (row,) = json.loads(compare(tmp_path, ["bare"], as_json=True))
    assert (row["auc"], row["test"], row["runs"], row["differences"]) == (None, None, 1, [])


def test_questions_that_not_every_run_answered_are_counted(tmp_path: Path):
    store = Store(tmp_path)
    evaluated(store, "a", "", 1, counts(1, 0.5))
    evaluated(store, "b", "other", 1, {f"q{n}": 2 for n in range(10, 50)})
    evaluated(store, "c", "apart", 1, {f"z{n}": 2 for n in range(5)})
    rows = json.loads(compare(tmp_path, ["a", "b", "c"], as_json=True))
    exam = rows[1]["differences"][0]
    assert (exam["questions"], exam["left_out"]) == (30, 20)
    apart = rows[2]["differences"][0]
    assert (apart["questions"], apart["difference"], apart["low"], apart["detectable"]) == (0, None, None, None)
