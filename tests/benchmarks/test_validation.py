"""The validation set: its sample, its strata, and what is excluded because it leaked."""

import json
import random
import warnings
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, Quota
from infuser_core.cotrain.phases.parts.health import leak_warning
from infuser_core.errors import ConfigError, DataWarning
from infuser_core.evaluation.benchmarks.parts import validation
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions
from infuser_core.evaluation.benchmarks.parts.validation import (
    apportion,
    content_digest,
    count_leaks,
    draw_stratified,
    question_key,
    spread_shortfall,
    stratum,
)
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading, as_text

DATA = ROOT / "tests" / "data" / "benchmarks"
SUBJECTS = {"Algebra": 120, "Geometry": 60, "Number Theory": 20}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_DATA", str(DATA))
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))


def problems(subjects: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "problem": f"{name} number {n}: find it.",
            "answer": str(n),
            "subject": name,
            "level": 1,
            "unique_id": f"{name}/{n}",
        }
        for name, count in subjects.items()
        for n in range(count)
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def source(**changed: Any) -> BenchmarkQuestions:
    return BenchmarkQuestions(type="benchmarks", **changed)


def sample(given: BenchmarkQuestions, evaluated: list[BenchmarkSettings] | None = None) -> list[Question]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return validation.sample_questions(given, evaluated or [])


def test_the_default_quotas_are_the_papers():
    quotas = source().quotas
    assert sum(quota.count for quota in quotas) == 2000
    assert {"+".join(quota.benchmarks) + quota.subdomain: quota.count for quota in quotas} == {
        "aime2024+aime2025": 60,
        "gpqa_diamond": 198,
        "hmmt": 93,
        "mmlu_pro": 275,
        "math500": 275,
        "medxpertqa": 275,
        "olympiadbench_math+olympiadbench_phys": 275,
        "bbehlettered": 70,
        "bbehopen": 205,
        "supergpqa": 274,
    }
    assert (source().seed, source().leak_free) == (42, False)


def test_a_quota_is_shared_out_over_the_domains_in_proportion(tmp_path: Path):
    path = write(tmp_path / "set.jsonl", problems(SUBJECTS))
    given = source(quotas=[Quota(benchmarks=["math500"], count=20)], paths={"math500": path})
    found = sample(given)
    assert Counter(question.domain for question in found) == {"Algebra": 12, "Geometry": 6, "Number Theory": 2}
    assert all(question.question_id.startswith("math500:") for question in found)


def test_the_order_of_rows_and_of_the_quotas_partners_changes_nothing(tmp_path: Path):
    rows = problems(SUBJECTS)
    quota = [Quota(benchmarks=["math500"], count=17)]
    found = sample(source(quotas=quota, paths={"math500": write(tmp_path / "one.jsonl", rows)}))
    random.Random(3).shuffle(rows)
    again = sample(source(quotas=quota, paths={"math500": write(tmp_path / "two.jsonl", rows)}))
    assert again == found
    assert validation.content_digest(again) == validation.content_digest(found)


def test_another_seed_draws_others_and_more_draws_the_same_and_more(tmp_path: Path):
    paths = {"math500": write(tmp_path / "set.jsonl", problems({"Algebra": 200}))}

    def names(count: int, seed: int = 42) -> set[str]:
        quotas = [Quota(benchmarks=["math500"], count=count)]
        return {question.question_id for question in sample(source(quotas=quotas, seed=seed, paths=paths))}

    assert names(20) != names(20, seed=43)
    assert names(20) < names(40)


def test_parts_of_a_benchmark_are_drawn_apart():
    quotas = [
        Quota(benchmarks=["bbeh"], subdomain="lettered", count=1),
        Quota(benchmarks=["bbeh"], subdomain="open", count=3),
    ]
    found = sample(source(quotas=quotas))
    assert [question.subdomain for question in found] == ["lettered", "open", "open", "open"]
    assert len({question.question_id for question in found}) == 4


def test_the_whole_of_the_small_benchmarks_enters_in_small_as_in_the_paper():
    quotas = [
        Quota(benchmarks=["aime2024", "aime2025"], count=6),
        Quota(benchmarks=["gpqa_diamond"], count=4),
        Quota(benchmarks=["mmlu_pro"], count=2),
    ]
    found = sample(source(quotas=quotas))
    assert Counter(question.question_id.partition(":")[0] for question in found) == {
        "aime2024": 3,
        "aime2025": 3,
        "gpqa_diamond": 4,
        "mmlu_pro": 2,
    }
    names = ["gpqa_diamond", "mmlu_pro", "medqa"]
    rows = count_leaks(found, {name: sample(source(quotas=[Quota(benchmarks=[name], count=9)])) for name in names})
    assert [(row.num_seen, row.num_questions) for row in rows] == [(4, 4), (2, 5), (0, 3)]
    assert leak_warning(rows).startswith("6 of 12 benchmark questions are in the validation set")
    assert leak_warning(rows).endswith("it contains gpqa_diamond whole")


def test_without_leakage_nothing_that_is_evaluated_is_drawn(tmp_path: Path):
    larger = problems(SUBJECTS)
    evaluated = BenchmarkSettings(name="math500", path=write(tmp_path / "asked.jsonl", larger[::3]))
    paths = {"math500": write(tmp_path / "larger.jsonl", larger)}
    found = sample(source(quotas=[Quota(benchmarks=["math500"], count=60)], paths=paths, leak_free=True), [evaluated])
    assert len(found) == 60
    asked = sample(source(quotas=[Quota(benchmarks=["math500"], count=999)], paths={"math500": evaluated.path}))
    assert [leak.num_seen for leak in count_leaks(found, {"math500": asked})] == [0]


def test_what_a_quota_lacks_is_announced_and_drawn_from_the_others(tmp_path: Path):
    paths = {"math500": write(tmp_path / "set.jsonl", problems(SUBJECTS))}
    quotas = [Quota(benchmarks=["gpqa_diamond"], count=4), Quota(benchmarks=["math500"], count=10)]
    evaluated = [BenchmarkSettings(name="gpqa_diamond")]
    given = source(quotas=quotas, paths=paths, leak_free=True)
    with pytest.warns(DataWarning, match="validation set") as seen:
        found = validation.sample_questions(given, evaluated)
    assert len(found) == 14
    (said,) = [str(warning.message) for warning in seen if "validation set" in str(warning.message)]
    assert said == (
        "validation set: 14 of 14 questions; quotas that lack questions outside the evaluated benchmarks: "
        "gpqa_diamond 0 of 4; drawn instead: math500 14 instead of 10"
    )
    assert len(sample(given.model_copy(update={"shortfall": "leave"}), evaluated)) == 10


def test_when_everything_is_evaluated_nothing_is_left_and_the_way_out_is_shown():
    given = source(quotas=[Quota(benchmarks=["gpqa_diamond"], count=4)], leak_free=True)
    with pytest.raises(ConfigError, match="the validation set is empty") as caught:
        sample(given, [BenchmarkSettings(name="gpqa_diamond")])
    assert "data.validation.paths" in caught.value.hint


def test_a_part_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="bbeh/closed has no questions"):
        sample(source(quotas=[Quota(benchmarks=["bbeh"], subdomain="closed", count=4)]))


@pytest.mark.parametrize(
    "quotas",
    [
        [{"benchmarks": ["bbeh"], "count": 1}, {"benchmarks": ["bbeh"], "subdomain": "open", "count": 1}],
        [{"benchmarks": ["hmmt", "hmmt"], "count": 1}],
        [{"benchmarks": ["hmmt"], "count": 1}, {"benchmarks": ["aime2024", "hmmt"], "count": 1}],
    ],
)
def test_a_question_belongs_to_one_quota(quotas: list[dict[str, Any]]):
    with pytest.raises(ValueError, match="two quotas draw from"):
        source(quotas=[Quota(**quota) for quota in quotas])


def test_questions_of_the_sample_reach_the_run_and_its_recipe(tmp_path: Path):
    given = source(quotas=[Quota(benchmarks=["medqa"], count=2)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert load_questions(given, seed=1) == load_questions(given, seed=2) == sample(given)
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes((DATA / "medqa" / "phrases_no_exclude_test.jsonl").read_bytes())
        assert content_of(source(quotas=given.quotas, paths={"medqa": str(copy)})) == content_of(given)
        assert content_of(source(quotas=given.quotas, seed=1)) != content_of(given)


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-8b", "olmo3-7b-sft"])
def test_the_papers_configurations_use_the_papers_set_and_benchmarks(name: str):
    config = load([ROOT / "configs" / f"{name}.yaml"])
    assert config.data.validation == source()
    assert len(config.evaluate.benchmarks) == 14


# Shares are whole, proportional and complete; samples depend on what is drawn from and on nothing else


WEIGHTS = st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.integers(1, 50), min_size=1, max_size=6)


def made(name: str, domain: str) -> Question:
    return Question(
        question_id=f"set:{name}", text=f"Text {name}", choices=[], answer="1", verifier="math", domain=domain
    )


POOLS = st.lists(
    st.tuples(st.integers(0, 999), st.sampled_from("xyz")), unique_by=lambda item: item[0], max_size=60
).map(lambda items: [made(str(number), domain) for number, domain in items])


@given(WEIGHTS, st.integers(0, 300), st.integers(0, 9))
def test_shares_sum_up_and_stay_within_one_of_the_exact_share(weights: dict[str, int], total: int, seed: int):
    shares = apportion(total, weights, seed=seed)
    assert sum(shares.values()) == total
    for name, weight in weights.items():
        assert abs(Fraction(total * weight, sum(weights.values())) - shares[name]) < 1


@given(POOLS, st.integers(0, 80), st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_sample_is_complete_without_repeats_and_blind_to_order(pool: list[Question], count: int, seed: int, chance):
    found = draw_stratified(pool, count, seed=seed)
    assert len(found) == min(count, len(pool))
    assert len({each.question_id for each in found}) == len(found)
    shuffled = list(pool)
    chance.shuffle(shuffled)
    assert draw_stratified(shuffled, count, seed=seed) == found


@given(POOLS, st.integers(1, 60), st.integers(0, 9))
def test_every_stratum_gives_its_share(pool: list[Question], count: int, seed: int):
    found = [stratum(each) for each in draw_stratified(pool, count, seed=seed)]
    for name in {stratum(each) for each in pool}:
        size = sum(stratum(each) == name for each in pool)
        assert abs(Fraction(min(count, len(pool)) * size, len(pool)) - found.count(name)) < 1


def test_a_scope_draws_others_and_strata_can_be_chosen():
    pool = [made(str(number), "xyz"[number % 3]) for number in range(60)]
    ten = draw_stratified(pool, 10, seed=1, scope=("limit", "a"))
    assert (
        draw_stratified(pool, 10, seed=1, scope=("limit", "b"))
        != ten
        != draw_stratified(pool, 10, seed=2, scope=("limit", "a"))
    )
    assert len(draw_stratified(pool, 10, seed=1, by=lambda question: "")) == 10


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1))
def test_a_lack_is_made_up_for_as_far_as_there_are_questions(sizes: dict[str, tuple[int, int]]):
    wanted = {name: want for name, (want, _) in sizes.items()}
    there = {name: have for name, (_, have) in sizes.items()}
    given_ = spread_shortfall(wanted, there, seed=1)
    assert sum(given_.values()) == min(sum(wanted.values()), sum(there.values()))
    for name in sizes:
        assert min(wanted[name], there[name]) <= given_[name] <= there[name]


def test_four_equal_fields_share_alike_and_a_small_one_gives_all_it_has():
    quotas = dict.fromkeys("abcd", 32)
    assert spread_shortfall(quotas, dict.fromkeys("abcd", 99), seed=0) == quotas
    given_ = spread_shortfall(dict.fromkeys("abcd", 32), {"a": 10, "b": 99, "c": 99, "d": 99}, seed=0)
    assert given_["a"] == 10 and sorted(given_.values()) == [10, 39, 39, 40]


# Whether a benchmark's question stands in the validation set is decided by what it says, not by how it is written


LONG = "How many ways are there to seat five people around one table so that two of them are neighbours?"


def leaked(name: str, text: str, *choices: str, domain: str = "", grading: Grading = Grading()) -> Question:
    kind, answer = ("choice", "A") if choices else ("math", "1")
    return Question(
        question_id=name,
        text=text,
        choices=list(choices),
        answer=answer,
        verifier=kind,
        domain=domain,
        grading=as_text(grading),
    )


@pytest.mark.parametrize(
    "copy",
    [
        LONG.upper(),
        f"  {LONG}\n",
        LONG.replace(" ", "\n"),
        LONG.replace("?", ""),
        LONG.replace("table", "\uff54\uff41\uff42\uff4c\uff45"),
    ],
)
def test_case_blanks_signs_and_compatibility_forms_do_not_hide_a_copy(copy: str):
    assert question_key(leaked("a", copy)) == question_key(leaked("b", LONG))


def test_a_long_text_is_the_same_question_whatever_becomes_of_its_choices():
    assert (
        question_key(leaked("a", LONG, "1", "2"))
        == question_key(leaked("b", LONG, "2", "1", "N/A"))
        == question_key(leaked("c", LONG))
    )


def test_a_short_text_needs_its_choices_in_any_order():
    one = leaked("a", "Which is true?", "ice is cold", "fire is cold")
    assert question_key(one) == question_key(leaked("b", "which is TRUE", "fire is cold", "Ice is cold."))
    assert question_key(one) != question_key(leaked("c", "Which is true?", "ice is warm", "fire is cold"))


def test_texts_of_signs_alone_are_told_apart():
    assert question_key(leaked("a", "+ - ?")) != question_key(leaked("b", "- + ?"))
    assert question_key(leaked("a", "?", "<", ">")) != question_key(leaked("b", "?", "=", ">"))


def test_numbers_count():
    assert question_key(leaked("a", "Find 12 + 3.")) != question_key(leaked("b", "Find 1 + 23."))


def test_leaks_are_counted_per_benchmark_in_its_order():
    validation = [leaked("v1", LONG), leaked("v2", "Find 7."), leaked("v3", "Find 8.")]
    found = count_leaks(
        validation,
        {
            "two": [leaked("x", LONG), leaked("y", "Find 9.")],
            "none": [leaked("z", "Find 6.")],
            "empty": [],
            "all": validation[1:],
        },
    )
    assert [(leak.benchmark, leak.num_questions, leak.num_seen, leak.share) for leak in found] == [
        ("two", 2, 1, 0.5),
        ("none", 1, 0, 0.0),
        ("empty", 0, 0, 0.0),
        ("all", 2, 2, 1.0),
    ]
    assert "3 of 5 benchmark questions" in leak_warning(found) and leak_warning(found).endswith("it contains all whole")
    assert leak_warning(found[:1]).endswith("chooses the checkpoint")
    assert leak_warning(found[1:3]) == ""


def test_the_content_of_a_set_is_what_it_says_and_not_where_its_tests_lie():
    def coded(path: str, digest: str) -> Question:
        return leaked("a", "Write it.", grading=Grading(route="x", tests=path, tests_sha256=digest))

    assert content_digest([coded("/one/t.json", "11")]) == content_digest([coded("/two/t.json", "11")])
    assert content_digest([coded("/one/t.json", "11")]) != content_digest([coded("/one/t.json", "22")])
    assert content_digest([leaked("a", "Find 1.")]) != content_digest([leaked("a", "Find 2.")])
