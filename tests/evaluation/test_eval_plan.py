"""What an evaluation asks: benchmarks by name, label, file or all; the paper's sampling unless somebody says other."""

import json
from pathlib import Path
from typing import Any

import pytest

from infuser_core.errors import ConfigError, UsageError
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.evaluation.models import EvaluatedModel, find_model
from infuser_core.evaluation.plan import ExamPlan, identity_of, make_plan, name_of
from infuser_core.evaluation.settings import EvaluationSettings, engine_name, settings_for
from infuser_core.nano.lab import anchor_path
from infuser_core.store.runs import differing

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
        assert where in [key for key, _, _ in differing(plain, other)]
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
