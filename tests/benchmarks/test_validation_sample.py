"""The validation set: the paper's quotas, stratified, the same for any order of rows, with or without leakage."""

import json
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, Quota
from infuser_core.cotrain.phases.parts.health import leak_warning
from infuser_core.errors import ConfigError, DataWarning
from infuser_core.evaluation.benchmarks.parts import validation
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions
from infuser_core.evaluation.benchmarks.parts.validation import count_leaks
from infuser_core.schemas import Question

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
