"""What would stop a run later stops it before it starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, DataWarning, DocumentError, InfuserError
from infuser_core.planning.preflight import preflight

NANO = ROOT / "configs" / "nano.yaml"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(ROOT)
    return tmp_path / "store"


def refused(*overrides: str) -> InfuserError:
    with pytest.raises(InfuserError) as caught:
        preflight(load([NANO], overrides))
    assert caught.value.hint, "every message says what to do"
    return caught.value


def test_the_shipped_configuration_passes_and_no_store_is_made(store: Path):
    preflight(load([NANO]))
    assert not store.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.dev={type: file, path: no.json}"], "data.dev.path = 'no.json': no such file"),
        (["data.validation={type: file, path: no.json}"], "data.validation.path = 'no.json': no such file"),
        (["evaluate.benchmarks=[{name: gsm}]"], "no benchmark 'gsm'"),
        (["evaluate.benchmarks=[{name: released, label: exam}]"], "benchmark exam: no path"),
        (
            ["evaluate.benchmarks=[{name: nano_target}, {name: released, path: no.json}]"],
            "evaluate.benchmarks.1.path = 'no.json': no such file",
        ),
        (["evaluate.benchmarks=['nowhere.at.all:load']"], "evaluate.benchmarks.0"),
        (["evaluate.benchmarks=[{name: 'nowhere.at.all:load'}]"], "benchmark 'nowhere.at.all:load' cannot be imported"),
        (["cotrain.reward.name=fame"], "no reward 'fame'"),
        (["cotrain.reward.name=infuser_core.cotrain.rewards.influence:none"], "cannot be imported"),
        (["cotrain.question.labeller=nowhere:label"], "cotrain.question.labeller = 'nowhere:label'"),
        (["cotrain.question.labeller=infuser_core.nano.lab"], "cotrain.question.labeller"),
        (["prompts=none"], "prompts: no file none/generate_mcq.txt"),
        (["anchor={type: folder, path: /no/model}"], "anchor.path = '/no/model': no config.json there"),
        (
            ["cotrain.key_solver={type: folder, path: /no/model}"],
            "cotrain.key_solver.path = '/no/model': no config.json there",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_not_there_is_named_before_anything_runs(overrides: list[str], message: str):
    error = refused(*overrides)
    assert isinstance(error, ConfigError)
    assert message in error.message


def test_unknown_names_list_what_exists():
    assert "nano_target" in refused("evaluate.benchmarks=[{name: gsm}]").hint
    assert "influence" in refused("cotrain.reward.name=fame").hint
    assert "paper" in refused("prompts=none").hint


def test_a_damaged_benchmark_file_is_found_before_the_training(tmp_path: Path):
    row = {"question_id": "q1", "question_text": "1 + 1?", "choices": ["1", "2"], "ground_truth": "3"}
    (tmp_path / "exam.json").write_text(json.dumps([row]))
    error = refused(f"evaluate.benchmarks=[{{name: released, path: {tmp_path}/exam.json}}]")
    assert isinstance(error, DocumentError)
    assert error.message == f"{tmp_path}/exam.json, row 1: the answer '3' is none of the choices"


def test_a_validation_sample_without_questions_is_found_before_the_training(tmp_path: Path):
    row = {"question": "1 + 1?", "options": {"A": "1", "B": "2", "C": "3", "D": "4"}, "answer": "2", "answer_idx": "B"}
    (tmp_path / "medqa.jsonl").write_text(json.dumps(row))
    quota = "{benchmarks: [medqa], count: 1}"
    sample = f"{{type: benchmarks, quotas: [{quota}], paths: {{medqa: {tmp_path}/medqa.jsonl}}, leak_free: true}}"
    with pytest.warns(DataWarning, match="medqa: 1 questions, expected 1,273"):
        preflight(load([NANO], [f"data.validation={sample}"]))
    asked = f"evaluate.benchmarks=[{{name: medqa, path: {tmp_path}/medqa.jsonl}}]"
    assert "the validation set is empty" in refused(f"data.validation={sample}", asked).message


def test_the_prompts_that_questions_need_are_looked_for(tmp_path: Path):
    row = {"problem": "1 + 1?", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "a"}
    (tmp_path / "math.jsonl").write_text(json.dumps(row))
    asked = f"evaluate.benchmarks=[{{name: math500, path: {tmp_path}/math.jsonl}}]"
    with pytest.warns(DataWarning):
        assert "prompts: no file" in refused(asked).message
        preflight(load([NANO], [asked, "prompts=paper"]))


def test_the_check_costs_no_torch():
    code = """
import sys
from pathlib import Path
from infuser_core.config.overlays import load
from infuser_core.planning.preflight import preflight
preflight(load([Path("configs/nano.yaml")]))
print(*sorted({"torch", "transformers", "prefect", "pyarrow", "duckdb"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
