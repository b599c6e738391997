"""A run whose sets of questions share some stops before it starts, unless its settings allow the pair."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import ROOT, Launcher, SmallRun

from infuser_core.config.overlays import load, validate, with_overrides
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.validation import question_identity
from infuser_core.planning.fork import make_fork
from infuser_core.planning.preflight import preflight
from infuser_core.planning.split import QuestionSet, load_sets, require_apart
from infuser_core.schemas import Question
from infuser_core.store import runs
from infuser_core.store.journal import Journal

NANO = ROOT / "configs" / "nano.yaml"
TEXTS = {
    "dev": ["What is 5 + 3?", "Name the largest planet."],
    "validation": ["What is 5 - 3?", "Name the smallest planet."],
    "problems": ["What is 7 * 8?"],
    "exam": ["What is 9 * 8?"],
}


def configured(folder: Path, *overrides: str, **texts: list[str]) -> RunConfig:
    """nano on four files of questions, some with other texts."""
    for name, lines in (TEXTS | texts).items():
        rows = [
            {"question_id": f"{name}{number}", "question_text": text, "ground_truth": "1"}
            for number, text in enumerate(lines)
        ]
        (folder / f"{name}.json").write_text(json.dumps(rows))
    problems = f"{{source: {{type: file, path: {folder}/problems.json}}, count: 4}}"
    files = [f"data.{part}={{type: file, path: {folder}/{part}.json}}" for part in ("dev", "validation")]
    exam = f"evaluate.benchmarks=[{{name: released, label: exam, path: {folder}/exam.json}}]"
    return load([NANO], ["prompts=paper", *files, f"data.problems=[{problems}]", exam, *overrides])


def asking(text: str) -> Question:
    """A free question."""
    return Question(question_id="q", text=text, choices=[], answer="1", verifier="math")


def refused(config: RunConfig) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        preflight(config)
    return caught.value


def test_sets_that_share_nothing_pass_though_their_formulas_have_the_same_numbers(tmp_path: Path):
    preflight(configured(tmp_path))


@pytest.mark.parametrize(
    ("pair", "texts", "message"),
    [
        ("dev-validation", {"validation": ["WHAT is  5+3"]}, "1 of the 1 questions of data.validation are in data.dev"),
        ("dev-benchmarks", {"exam": ["name the largest\nplanet"]}, "questions of benchmark exam are in data.dev"),
        ("validation-benchmarks", {"exam": ["What is 5 \u2212 3?"]}, "of benchmark exam are in data.validation"),
        ("problems-validation", {"validation": ["What is 7 * 8 ="]}, "of data.validation are in data.problems.0"),
        ("problems-benchmarks", {"exam": ["What is 7 * 8?", "x?"]}, "1 of the 2 questions of benchmark exam are in"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_each_pair_stops_the_run_with_counts_examples_and_the_setting_that_allows_it(
    tmp_path: Path, pair: str, texts: dict[str, list[str]], message: str
):
    error = refused(configured(tmp_path, **texts))
    assert (
        message in error.message and repr(texts[pair.split("-")[1].replace("benchmarks", "exam")][0]) in error.message
    )
    assert f"data.allow_overlap=[{pair}]" in error.hint
    preflight(configured(tmp_path, f"data.allow_overlap=[{pair}]", **texts))
    preflight(configured(tmp_path, "data.allow_overlap=true", **texts))


def test_one_allowed_pair_allows_no_other_and_the_hint_names_both(tmp_path: Path):
    texts = {"validation": TEXTS["dev"], "exam": TEXTS["dev"]}
    error = refused(configured(tmp_path, "data.allow_overlap=[validation-benchmarks]", **texts))
    assert "2 of the 2 questions of data.validation are in data.dev" in error.message
    assert "data.allow_overlap=[validation-benchmarks, dev-validation, dev-benchmarks]" in error.hint


def test_the_dev_set_of_the_micro_world_is_no_validation_set():
    config = load([NANO], ["data.validation={type: nano, split: dev, size: 12, world: hard}"])
    assert refused(config).message.startswith("12 of the 12 questions of data.validation are in data.dev; e.g. ")


@pytest.mark.parametrize("name", ["nano", "nano-basic", "nano-wide", "start", "smollm2"])
def test_shipped_sets_are_apart(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    config = load([Path(name)])
    assert config.data.allow_overlap == []
    require_apart(config, load_sets(config))


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-8b", "olmo3-7b-sft"])
def test_the_papers_configurations_allow_what_the_paper_does(name: str):
    sets = [
        QuestionSet(part=part, name=part, questions=[asking("What is 5 + 3?")])
        for part in ("dev", "validation", "problems", "benchmarks")
    ]
    with pytest.raises(ConfigError) as caught:
        require_apart(load([Path(name)]), sets)
    assert caught.value.message.count("are in problems") == 2 == caught.value.message.count(" are in ")


@given(st.text(), st.text(), st.sampled_from("+*/^<>"), st.sampled_from("+*/^<>"))
def test_questions_with_other_operators_are_others(before: str, after: str, one: str, other: str):
    first, second = (question_identity(asking(f"{before}{sign}{after}")) for sign in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A well-known law", "a well known law!", True),
        ("2 + 2 = ?", "2+2?", True),
        ("x \u2212 5", "x - 5", True),
        ("Solve -3x", "Solve 3x", False),
        ("Solve x^2-5x", "Solve x^2+5x", False),
    ],
)
def test_hyphens_and_equals_signs_are_no_operators(one: str, other: str, same: bool):
    assert (question_identity(asking(one)) == question_identity(asking(other))) == same


def recorded_of(config: dict[str, Any]) -> dict[str, Any]:
    return recorded(validate(config), naming=True)


def test_the_setting_is_no_part_of_a_run(tmp_path: Path):
    plain, allowed = load([NANO]), load([NANO], ["data.allow_overlap=true"])
    assert plain.run_name() == allowed.run_name()
    for config in (plain, allowed):
        runs.create_run(tmp_path, "run", config.model_dump(mode="json"), identity=recorded_of)
    with pytest.raises(ConfigError, match=r"data\.dev\.size is 12, asked 5"):
        other = load([NANO], ["data.dev.size=5"])
        runs.create_run(tmp_path, "run", other.model_dump(mode="json"), identity=recorded_of)
    fork = make_fork(tmp_path, "run", at=1, changes=["data.allow_overlap=true", "cotrain.reward.name=variance"])
    assert len(fork.history.latest.data.allow_overlap) == 5


def overlapping(run: SmallRun, folder: Path) -> RunConfig:
    """The run's settings with a benchmark that holds a question of its dev set."""
    config = validate(runs.read_config(run.root, run.name))
    question = load_sets(config)[0].questions[0]
    row = {"question_id": "q", "question_text": question.text, "ground_truth": question.answer}
    exam = folder / "leaked.json"
    exam.write_text(json.dumps([row | {"choices": list(question.choices)}]))
    return with_overrides(config, [f"evaluate.benchmarks=[{{name: released, path: {exam}}}]"])


def test_a_fork_is_refused_and_not_recorded(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    exam = overlapping(small_run, tmp_path).evaluate.benchmarks[0].path
    change = f"evaluate.benchmarks=[{{name: released, path: {exam}}}]"
    ended = launch("run", "--fork", f"{small_run.name}@1", "--set", change, "--name", "leaked", store=small_run.root)
    assert ended.code == 2 and "1 of the 1 questions of benchmark released are in data.dev" in ended.err
    assert "leaked" not in runs.list_runs(small_run.root)


def test_a_recorded_run_and_a_run_without_something_are_refused_too(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    root = tmp_path / "store"
    shutil.copytree(small_run.root, root)
    settings = overlapping(small_run, tmp_path).model_dump(mode="json")
    runs.create_run(root, "recorded", settings)
    runs.change_run(root, small_run.name, config=settings)
    known = runs.list_runs(root)
    found = launch("sql", "select min(source_id) as source from documents", "--json", store=root)
    source = json.loads(found.out)[0]["source"]
    for command in (["resume", "recorded"], ["run", "--without", source, "--fork", small_run.name]):
        ended = launch(*command, store=root)
        assert ended.code == 2, ended.err
        assert "1 of the 1 questions of benchmark released are in data.dev" in ended.err
    assert runs.list_runs(root) == known and not Journal(root, "recorded").entries()
    # A complete run computes nothing.
    assert launch("resume", small_run.name, "--until", "pool", store=root).code == 0


def test_a_batch_larger_than_the_pool_is_reported(launch: Launcher, small_overlay: Path, tmp_path: Path):
    problems = "data.problems=[{source: {type: nano, split: train, size: 3}, count: 3}]"
    ended = launch(
        *("run", str(NANO), str(small_overlay), "--set", problems, "--set", "cotrain.route=direct"),
        *("--set", "cotrain.generator.update=false", "--until", "generate_questions@0"),
        *("--set", "cotrain.documents=5"),
        store=tmp_path,
    )
    assert ended.code == 0, ended.err
    assert "warning: cotrain.documents = 5 and the pool has 3: every iteration draws all 3" in ended.err + ended.out
