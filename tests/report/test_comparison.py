"""`infuser report compare`: intervals over questions and seeds, and verdicts that need both noises exceeded."""

import json
from pathlib import Path

import numpy as np
import pytest
from report_runs import Maker, row

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.bootstrap import detectable, difference
from infuser_core.evaluation.statistics.tally import from_counts, shares
from infuser_core.results.report.comparison import compare
from infuser_core.schemas import BenchmarkScore, QuestionScore, Selection
from infuser_core.store.journal import Journal
from infuser_core.store.runs import create_run
from infuser_core.store.store import Store

QUESTIONS, SAMPLES = 40, 4


def question_rows(label: str, correct: dict[str, int], samples: int) -> list[QuestionScore]:
    return [
        row(QuestionScore, benchmark=label, question_id=name, num_samples=samples, num_correct=count)
        for name, count in correct.items()
    ]


def evaluated(
    root: Path, run: str, variant: str, seed: int, correct: dict[str, int], *, samples: int = SAMPLES
) -> None:  # fmt: skip
    """A run that selected iteration 2 of the validated 0 and 2, with a benchmark at both."""
    create_run(root, run, {"name": "base", "variant": variant, "seed": seed})
    maker = Maker(store=Store(root), journal=Journal(root, run), run=run)
    maker.journal.start_attempt()
    for iteration, counts in ((0, dict.fromkeys(correct, 0)), (2, correct)):
        for phase, label in (("validate", "validation"), ("evaluate", "exam")):
            accuracy = sum(counts.values()) / len(counts) / samples
            score = row(BenchmarkScore, benchmark=label, num_questions=len(counts), accuracy=accuracy)
            tables = {"benchmark_scores": [score], "question_scores": question_rows(label, counts, samples)}
            maker.commit(phase, iteration, tables, of=label)
    maker.commit("select", -1, {"selections": [Selection(selected_iteration=2, checkpoint_id="c", accuracy=0.5)]})
    maker.journal.append(phase="run", iteration=-1, state="done", seconds=0.0)


def counts(seed: int, chance: float) -> dict[str, int]:
    drawn = np.random.default_rng(seed).binomial(SAMPLES, chance, QUESTIONS)
    return {f"q{n}": int(count) for n, count in enumerate(drawn)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compared")
    for seed in (1, 2, 3):
        evaluated(root, f"plain{seed}", "", seed, counts(seed, 0.6))
        evaluated(root, f"fixed{seed}", "fixed", seed, counts(10 + seed, 0.4))
    return root


def names(*kinds: str) -> list[str]:
    return [f"{kind}{seed}" for kind in kinds for seed in (1, 2, 3)]


def test_differences_are_the_method_minus_its_control(root: Path):
    first, second = json.loads(compare(root, names("plain", "fixed"), as_json=True))
    assert (first["variant"], second["variant"]) == ("base", "base-fixed") and second["differences"] == []
    assert json.loads(compare(root, names("fixed", "plain"), as_json=True)) == [second, first]
    exam, validation, area = first["differences"]
    assert area["benchmark"] == "validation AUC"
    assert (exam["phase"], exam["benchmark"]) == ("evaluate", "exam") and validation["benchmark"] == "validation"
    assert exam["difference"] == pytest.approx(first["test"] - second["test"], abs=1e-12)
    assert 0 < exam["low"] < exam["difference"] < exam["high"] and exam["sign_share"] < 0.001
    assert 0 < exam["detectable"] < 0.15 and (exam["questions"], exam["left_out"]) == (QUESTIONS, 0)


def test_seeds_are_paired_by_their_number(root: Path):
    exam = json.loads(compare(root, names("plain", "fixed"), as_json=True))[0]["differences"][0]
    gaps = [
        (sum(counts(seed, 0.6).values()) - sum(counts(10 + seed, 0.4).values())) / QUESTIONS / SAMPLES
        for seed in (1, 2, 3)
    ]
    half = 4.302653 * np.std(gaps, ddof=1) / 3**0.5
    assert exam["seeds"] == 3 and exam["seed_sd"] == pytest.approx(np.std(gaps, ddof=1))
    assert (exam["seed_low"], exam["seed_high"]) == pytest.approx((np.mean(gaps) - half, np.mean(gaps) + half))
    other = json.loads(compare(root, ["plain1", "plain2", "fixed1"], as_json=True))[0]["differences"][0]
    assert (other["seeds"], other["seed_sd"], other["seed_low"]) == (0, None, None), "seeds that differ"


def test_two_single_runs_are_the_paired_bootstrap_itself(root: Path):
    exam = json.loads(compare(root, ["plain3", "fixed3"], as_json=True))[0]["differences"][0]
    tallies = [from_counts(counts(13, 0.4), SAMPLES), from_counts(counts(3, 0.6), SAMPLES)]
    plain = difference(*tallies)
    assert (exam["low"], exam["high"]) == pytest.approx((plain.low, plain.high), abs=0.01)
    assert exam["difference"] == pytest.approx(plain.value)
    assert exam["detectable"] == detectable(shares(tallies[1]) - shares(tallies[0]))


def test_runs_of_one_variant_are_compared_with_each_other(root: Path):
    (only,) = json.loads(compare(root, names("plain"), as_json=True))
    pairs = [(gap["against"], gap["variant"]) for gap in only["differences"] if gap["phase"] == "evaluate"]
    assert pairs == [("plain1", "plain2"), ("plain1", "plain3"), ("plain2", "plain3")]


def test_the_terminal_shows_both_tables(root: Path):
    head, _, below = compare(root, names("plain", "fixed"), as_json=False).partition("\n\n")
    assert "base-fixed" in head and "differences" not in head
    assert "base minus base-fixed, points" in below and "chose the checkpoints" in below
    assert max(map(len, [*head.splitlines(), *below.splitlines()])) <= 100


def test_a_run_without_validation_has_no_area(tmp_path: Path):
    create_run(tmp_path, "bare", {"name": "base", "variant": "", "seed": 1})
    (only,) = json.loads(compare(tmp_path, ["bare"], as_json=True))
    assert (only["auc"], only["test"], only["runs"], only["differences"]) == (None, None, 1, [])


def test_questions_that_not_every_run_answered_are_counted(tmp_path: Path):
    evaluated(tmp_path, "a", "", 1, counts(1, 0.5))
    evaluated(tmp_path, "b", "other", 1, {f"q{n}": 2 for n in range(10, 50)})
    evaluated(tmp_path, "c", "apart", 1, {f"z{n}": 2 for n in range(5)})
    rows = json.loads(compare(tmp_path, ["a", "b", "c"], as_json=True))
    exam, apart = (gap for gap in rows[0]["differences"] if gap["benchmark"] == "exam")
    assert (exam["questions"], exam["left_out"]) == (30, 20)
    assert (apart["questions"], apart["difference"], apart["low"], apart["detectable"]) == (0, None, None, None)


def beside(root: Path, base: list[int], other: list[int]) -> dict[str, dict]:
    """The differences of `other` from `base`, whose runs answered this many of 40 questions rightly, seed by seed."""
    for variant, right in (("", base), ("b", other)):
        for seed, count in enumerate(right):
            correct = {f"q{n}": int(n < count) for n in range(QUESTIONS)}
            evaluated(root, f"r{variant}{seed}", variant, seed, correct, samples=1)
    reference, row = json.loads(compare(root, [], as_json=True, against="base"))
    assert (reference["variant"], reference["differences"]) == ("base", [])
    return {gap["benchmark"]: gap for gap in row["differences"]}


def test_gains_are_those_of_the_seeds(tmp_path: Path):
    rows = beside(tmp_path, [10, 12, 14], [20, 22, 24])
    assert rows["exam"]["difference"] == pytest.approx(10 / 40)
    assert (rows["exam"]["seed_low"], rows["exam"]["seed_high"]) == pytest.approx((10 / 40, 10 / 40))
    area = rows["validation AUC"]
    assert area["difference"] == pytest.approx(5 / 40), "half of the end point: the curve starts at nothing"
    assert area["verdict"] == "above" and area["low"] is None
    assert "above" in compare(tmp_path, [], as_json=False, against="base")


@pytest.mark.parametrize(
    ("base", "other", "verdict"),
    [
        ([10, 12, 14], [20, 22, 24], "above"),
        ([20, 22, 24], [10, 12, 14], "below"),
        ([10, 12, 14], [30, 11, 18], "within noise"),
        ([10, 12, 14], [11, 13, 15], "within noise"),
        ([10], [20], "unknown"),
    ],
    ids=["above", "below", "seeds disagree", "few questions", "one seed"],
)
def test_a_verdict_needs_seeds_and_questions_to_agree(tmp_path: Path, base: list[int], other: list[int], verdict: str):
    assert beside(tmp_path, base, other)["exam"]["verdict"] == verdict


def test_other_seeds_give_no_paired_gain_and_the_reference_has_to_exist(tmp_path: Path):
    for run, variant, seed in (("a", "", 0), ("b", "b", 1)):
        evaluated(tmp_path, run, variant, seed, {"q": 1}, samples=1)
    first, _ = json.loads(compare(tmp_path, [], as_json=True, against="base-"))
    assert {(gap["against"], gap["seeds"]) for gap in first["differences"]} == {("base-b", 0)}
    with pytest.raises(UsageError, match="no variant named c"):
        compare(tmp_path, [], as_json=True, against="c")
