"""Which model, benchmarks and settings an evaluation has, before a model is loaded."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from launcher import Launcher, SmallRun

from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.evaluation.models import EvaluatedModel, find_model, is_nano
from infuser_core.evaluation.plan import ExamPlan, identity_of, make_plan, name_of
from infuser_core.evaluation.settings import EvaluationSettings, engine_name, settings_for
from infuser_core.nano.lab import anchor_path
from infuser_core.results.lineage.outcome import describe_result
from infuser_core.schemas import BenchmarkResponse, Selection
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.runs import list_differences
from infuser_core.store.tables import read_rows

PAPER = {"aime2024": 32, "hmmt": 32, "math500": 4, "gpqa_diamond": 5, "mmlu_pro": 1}


def stranger(tmp_path: Path) -> EvaluatedModel:
    return find_model(tmp_path, "openai:m@http://h/v1")


def planned(
    tmp_path: Path, wanted: str, *, settings: EvaluationSettings | None = None, nano: bool = False, **options: Any
) -> tuple[ExamPlan, list[str]]:
    said: list[str] = []
    model = find_model(tmp_path, "nano") if nano else stranger(tmp_path)
    chosen = settings or settings_for(model, None, {})
    defaults = {"data": None, "samples": None, "limit": None}
    return make_plan(model, chosen, wanted, warn=said.append, **{**defaults, **options}), said


def math500(folder: Path, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    values = [
        {
            "problem": f"What is 1 + {n}?",
            "solution": "Add.",
            "answer": str(1 + n),
            "subject": "Algebra",
            "level": 1,
            "unique_id": f"test/{n}",
        }
        for n in range(rows)
    ]
    (folder / "math500.jsonl").write_text("\n".join(map(json.dumps, values)))


def test_parts_of_a_benchmark_are_asked_by_their_domains(tmp_path: Path):
    math500(tmp_path, 6)
    rows = [json.loads(line) for line in (tmp_path / "math500.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["subject"] = ["Algebra", "Geometry", "Number Theory"][number % 3]
    (tmp_path / "math500.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plan, _ = planned(tmp_path, "math500:geometry+Number Theory", data=tmp_path)
    assert [sheet.label for sheet in plan.sheets] == ["math500-geometry-Number Theory"]
    assert {question.domain for question in plan.by_key().values()} == {"Geometry", "Number Theory"}
    assert len(plan.by_key()) == plan.sheets[0].num_available == 4 and plan.sheets[0].expected is None
    both, _ = planned(tmp_path, "math500, math500:Algebra", data=tmp_path)
    assert [sheet.num_available for sheet in both.sheets] == [6, 2]
    with pytest.raises(ConfigError, match="math500 has no domain or subdomain 'Geometri'") as caught:
        planned(tmp_path, "math500:Geometri", data=tmp_path)
    assert caught.value.hint.startswith("did you mean Geometry? there are Algebra, Geometry, Number Theory")


def test_the_nano_lab_asks_as_its_runs_do(tmp_path: Path):
    settings = settings_for(find_model(tmp_path, "nano"), None, {})
    assert (settings.prompts, settings.prompt_tokens, settings.max_tokens) == ("nano", 160, 24)
    for wanted in ("", "all", "nano_target, nano_transfer"):
        plan, said = planned(tmp_path, wanted, nano=True)
        assert [sheet.label for sheet in plan.sheets] == ["nano_target", "nano_transfer"]
        assert len(plan.by_key()) == 800
        assert len(said) == (wanted == "all") and all("nano_target and nano_transfer" in line for line in said)
    for name, world in (("nano", "hard"), ("nano-basic", "basic")):
        assert {each.world for each in settings_for(find_model(tmp_path, name), None, {}).benchmarks} == {world}


def test_other_models_are_asked_as_the_paper_asks(tmp_path: Path):
    settings = settings_for(stranger(tmp_path), None, {"seed": None})
    assert settings == EvaluationSettings()
    assert settings.sampling.model_dump() == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert (settings.prompt_tokens, settings.max_tokens, settings.preset) == (4096, 8192, "paper")
    for name, samples in PAPER.items():
        known = describe_benchmark(name)
        assert known is not None and known.samples == samples


def test_a_missing_prompt_is_found_before_a_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    math500(tmp_path / "data", rows=3)
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path / "data"))
    with pytest.raises(ConfigError, match="solve_free_form"):
        planned(tmp_path, "math500", nano=True)


def test_all_is_what_can_be_had_here_and_says_what_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    math500(tmp_path / "data", rows=3)
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path / "data"))
    plan, said = planned(tmp_path, "all", data=tmp_path / "data")
    assert [sheet.label for sheet in plan.sheets] == ["math500"]
    left_out = {line.split(" ")[1] for line in said if "is left out: " in line}
    assert {"medqa", "mmlu_pro", "livecodebench"} <= left_out and "math500" not in left_out


def test_a_data_folder_is_searched_and_other_counts_are_said(tmp_path: Path):
    math500(tmp_path / "data", 5)
    plan, said = planned(tmp_path, "math500", data=tmp_path / "data", limit=3)
    (sheet,) = plan.sheets
    assert (sheet.samples, sheet.category, sheet.num_available, sheet.expected) == (4, "math", 5, 500)
    names = [name for _, name in plan.by_key()]
    assert len(names) == len(plan.asks()) == 3 and names == sorted(names) and plan.asks()[0].samples == 4
    assert len(said) == 1 and "math500: 5 questions, expected 500" in said[0]
    with pytest.raises(ConfigError, match="nothing there for aime2024"):
        planned(tmp_path, "aime2024", data=tmp_path / "data")


def test_a_file_of_ones_own_is_a_benchmark(tmp_path: Path):
    rows = [{"question_id": "1", "question_text": "?", "choices": ["x", "y"], "ground_truth": "y"}]
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    plan, _ = planned(tmp_path, f"mine={tmp_path / 'mine.json'}", samples=7)
    assert [(s.label, s.name, s.samples, s.max_tokens) for s in plan.sheets] == [("mine", "released", 7, 8192)]
    assert plan.questions["mine"][0].answer == "B"


def test_what_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match="no benchmarks named") as caught:
        planned(tmp_path, "")
    assert "math500" in caught.value.hint
    with pytest.raises(ConfigError, match="no benchmark 'gsm'"):
        planned(tmp_path, "gsm")


def test_settings_come_from_a_run_or_from_a_few_keys(tmp_path: Path):
    model = stranger(tmp_path)
    of_run = settings_for(model, Path("configs/nano.yaml"), {"max_tokens": 30})
    assert (of_run.prompts, of_run.max_tokens, of_run.prompt_tokens) == ("nano", 30, 160)
    (tmp_path / "few.yaml").write_text("sampling: {temperature: 0.0}\nengine: {dtype: bfloat16}\n")
    few = settings_for(model, tmp_path / "few.yaml", {})
    assert (few.sampling.temperature, few.sampling.top_k, few.engine.dtype) == (0.0, 20, "bfloat16")
    assert engine_name(model, few) == "endpoint"
    assert engine_name(find_model(tmp_path, "nano"), few) == "hf bfloat16"
    (tmp_path / "typo.yaml").write_text("smapling: {temperature: 0.0}\n")
    with pytest.raises(ConfigError, match="smapling"):
        settings_for(model, tmp_path / "typo.yaml", {})
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        settings_for(model, tmp_path / "broken.yaml", {})


def test_whatever_changes_answers_changes_the_identity(tmp_path: Path):
    base = settings_for(find_model(tmp_path, "nano"), None, {})

    def identity(
        settings: EvaluationSettings = base, model: str = "m", engine: str = "e", **options: Any
    ) -> dict[str, Any]:
        plan, _ = planned(tmp_path, "nano_target", settings=settings, nano=True, **options)
        return identity_of(model, settings, plan, engine=engine, limit=options.get("limit"))

    plain = identity()
    others = {
        "seed": identity(base.model_copy(update={"seed": 1})),
        "prompts": identity(base.model_copy(update={"prompts": "paper"})),
        "prompt_tokens": identity(base.model_copy(update={"prompt_tokens": 100})),
        "sampling.top_k": identity(base.model_copy(update={"sampling": base.sampling.model_copy(update={"top_k": 5})})),
        "model": identity(model="n"),
        "engine": identity(engine="f"),
        "benchmarks.nano_target.samples": identity(samples=3),
        "benchmarks.nano_target.content": identity(limit=9),
    }
    for where, other in others.items():
        assert where in [key for key, _, _ in list_differences(plain, other)]
    assert identity(base.model_copy(update={"preset": "official", "too_long": "drop"})) == plain == identity()
    plan, _ = planned(tmp_path, "nano_target", nano=True)
    names = [name_of("nano", plan, each) for each in (plain, *others.values())]
    assert len(set(names)) == len(names) and names[0].startswith("nano-nano_target-")


def test_the_model_enters_by_content(tmp_path: Path):
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in anchor_path().iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert find_model(tmp_path, str(copied)).digest == find_model(tmp_path, "nano-basic").digest
    (copied / "config.json").write_text((copied / "config.json").read_text() + "\n")
    assert find_model(tmp_path, str(copied)).digest != find_model(tmp_path, "nano-basic").digest


# Every way to name a model finds it, and asking a run's checkpoint gives what the run itself got


def key_of(run: SmallRun, phase: str, iteration: int) -> str:
    (key,) = {e.key for e in Journal(run.root, run.name).latest() if (e.phase, e.iteration) == (phase, iteration)}
    return key


def test_the_nano_anchor_and_its_folder_are_the_same_model(tmp_path: Path):
    folder = anchor_path("hard")
    named, placed = find_model(tmp_path, "nano"), find_model(tmp_path, str(folder))
    assert named.digest == placed.digest and named.folder == placed.folder == folder
    assert is_nano(named) and is_nano(placed)


@pytest.mark.parametrize("name", ["nano", "nano-basic", "nano-wide"])
def test_a_nano_model_is_the_anchor_of_the_configuration_of_its_name(name: str, tmp_path: Path):
    anchor = load([shipped.path_of(name)]).anchor
    assert find_model(tmp_path, name).folder == anchor_folder(anchor)


def test_an_address_needs_no_files(tmp_path: Path):
    found = find_model(tmp_path, "openai:org/m@http://127.0.0.1:1/v1/")
    assert found.folder is None and not is_nano(found)
    assert (found.name, found.digest) == ("org/m", "openai:org/m@http://127.0.0.1:1/v1")


def test_a_name_of_nothing_lists_the_forms(tmp_path: Path):
    with pytest.raises(UsageError, match="--model gone: there is no such model") as caught:
        find_model(tmp_path, "gone")
    for form in ("nano", "RUN@selected", "owner/name", "openai:"):
        assert form in caught.value.hint


@pytest.mark.slow
def test_a_damaged_record_of_another_run_hides_neither_model_nor_result(small_run: SmallRun, tmp_path: Path):
    root, name = tmp_path / "store", small_run.name
    shutil.copytree(small_run.root, root, copy_function=os.link)
    foreign = root / "artifacts" / "update_solver" / "update_solver-0123456789abcdef"
    foreign.mkdir()
    (foreign / "artifact.json").write_text("{}")
    assert find_model(root, f"{name}@selected").digest == find_model(small_run.root, f"{name}@selected").digest
    here, there = (describe_result(each, name).replace(str(each), "") for each in (root, small_run.root))
    assert here == there


@pytest.mark.slow
def test_checkpoints_of_a_run_are_found_by_iteration_selection_and_key(small_run: SmallRun):
    root, name = small_run.root, small_run.name
    by_number = [find_model(root, f"{name}@{number}") for number in (0, 1, 2)]
    assert len({found.digest for found in by_number}) == 3
    key = key_of(small_run, "update_solver", 0)
    by_key = find_model(root, key)
    assert by_key.digest == by_number[1].digest and by_key.digest.startswith(key)
    assert by_key.config == by_number[1].config and by_key.config is not None
    store = small_run.store
    (selection,) = [ref for ref in store.refs() if ref.key == key_of(small_run, "select", -1)]
    chosen = store.rows(selection, "selections", Selection)[0].selected_iteration
    assert find_model(root, f"{name}@selected").digest == by_number[chosen].digest

    for wrong, message in {
        f"{name}@9": f"--model {name}@9: no such checkpoint",
        "update_solver-": "artifacts start with update_solver-",
        key_of(small_run, "rollout_dev", 0): "is no checkpoint",
    }.items():
        with pytest.raises(UsageError, match=message):
            find_model(root, wrong)


@pytest.mark.slow
def test_a_runs_checkpoint_answers_as_it_did_in_the_run(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    ended = launch(
        "eval", "--model", f"{small_run.name}@0", "--out", str(tmp_path / "out"), "--json", store=small_run.root
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    run = json.loads(launch("result", small_run.name, "--json", store=small_run.root).out)
    assert found["benchmarks"]["exam"]["accuracy"] == pytest.approx(run["benchmarks"]["exam"]["anchor"])
    (entry,) = [
        e for e in Journal(small_run.root, small_run.name).latest() if (e.phase, e.iteration) == ("evaluate", 0)
    ]
    answered = Catalogue(small_run.root).input_ref(entry.key, "responses")
    of_run = small_run.store.rows(answered, "responses", BenchmarkResponse)
    rows = read_rows(tmp_path / "out" / "responses.parquet", BenchmarkResponse)
    by_key = {(row.question_id, row.sample_index): row for row in rows}
    assert by_key == {(row.question_id, row.sample_index): row for row in of_run}


# Answers under different settings never mix, and whoever tries is told both values


BASE = ["eval", "--model", "nano", "--benchmarks", "nano_target", "--limit", "4"]


def complaint(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 2 and lines[0].startswith("infuser: ") and lines[1].startswith("  hint: "), text
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--seed", "43"], "seed is 42, asked 43"),
        (["--samples", "2"], "benchmarks.nano_target.samples is 1, asked 2"),
        (["--max-tokens", "20"], "benchmarks.nano_target.max_tokens is 24, asked 20"),
        (["--model", "nano-basic"], "model is '"),
    ],
)
def test_a_folder_refuses_other_settings(launch: Launcher, tmp_path: Path, changed: list[str], message: str):
    out = tmp_path / "out"
    first = launch(*BASE, "--out", str(out), store=tmp_path / "store")
    assert first.code == 0, first.err
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert before
    refused = launch(*BASE, *changed, "--out", str(out), store=tmp_path / "store")
    assert refused.code == 2
    assert message in complaint(refused.err)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_every_combination_has_a_record_of_its_own(launch: Launcher, tmp_path: Path):
    for arguments in (BASE, [*BASE, "--seed", "43"], [*BASE, "--preset", "strict-last"]):
        ended = launch(*arguments, store=tmp_path)
        assert ended.code == 0, ended.err
    # A preset says how answers are scored, not how they are made.
    assert len(list((tmp_path / "evaluations").iterdir())) == 2


@pytest.mark.slow
def test_the_limit_and_the_seed_stand_in_the_results(launch: Launcher, tmp_path: Path):
    ended = launch(*BASE, "--json", store=tmp_path)
    found = json.loads(ended.out)
    assert ended.err == ""
    assert found["limit"] == 4 and found["seed"] == 42
    assert found["notes"] == ["nano_target: limited to 4 of 400 questions, stratified by domain, seed 42"]
    assert found["sampling"] == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    (folder,) = (tmp_path / "evaluations").iterdir()
    assert json.loads((folder / "results.json").read_text()) == found
    names = {"results.md", "results.csv", "results.parquet", "results.json", "leaderboard.json", "questions.parquet"}
    assert names <= {path.name for path in folder.iterdir()}


WRONG_USE = {
    "no model of that name": (["--model", "nobody"], "--model nobody: there is no such model"),
    "unknown benchmark": (["--model", "nano", "--benchmarks", "gsm"], "no benchmark 'gsm'"),
    "unknown preset": (["--model", "nano", "--preset", "loose"], "options: preset = 'loose'"),
    "missing file": (["--model", "nano", "--benchmarks", "exam=none.json"], "cannot read none.json"),
    "twice": (["--model", "nano", "--benchmarks", "nano_target,nano_target"], "--benchmarks names nano_target twice"),
    "missing settings": (["--model", "nano", "--config", "none.yaml"], "cannot read none.yaml"),
    "no endpoint": (["--model", "openai:m"], "openai:m: no endpoint"),
    "a password in the address": (["--model", "openai:m@http://me:secret@h/v1"], "openai:m@http://...@h/v1: no end"),
    "no checkpoint of the run": (["--model", "walk@3"], "--model walk@3: there is no such model"),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_exit_2_with_a_message_and_a_hint(launch: Launcher, tmp_path: Path, case: str):
    arguments, message = WRONG_USE[case]
    ended = launch("eval", *arguments, store=tmp_path)
    found = complaint(ended.err)
    assert message in found and "secret" not in ended.err
    assert ended.code == (3 if case == "missing file" else 2), ended
    assert not list(tmp_path.glob("evaluations/*"))


def test_a_folder_of_something_else_is_left_alone(launch: Launcher, tmp_path: Path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.tex").write_text("mine")
    ended = launch(*BASE, "--out", str(out), store=tmp_path / "store")
    assert ended.code == 2 and "holds something else: chapter.tex" in complaint(ended.err)
    assert sorted(path.name for path in out.iterdir()) == ["chapter.tex"]


# `--benchmarks all` asks a nano model what its prompts can put: numbers only where a template asks for them


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("nano", {"nano_target", "nano_transfer"}),
        ("nano-wide", {"nano_target", "nano_transfer", "nano_problems", "nano_programs"}),
    ],
)
def test_all_means_what_the_prompts_can_ask(tmp_path, model, asked):
    model = find_model(tmp_path, model)
    settings = settings_for(model, None, {})
    plan = make_plan(model, settings, "all", data=None, samples=None, limit=4, warn=lambda line: None)
    assert {sheet.name for sheet in plan.sheets} == asked
    assert {question.verifier for question in plan.by_key().values()} <= {
        "choice",
        "integer",
        "literal",
        "arguments",
        "code",
    }
