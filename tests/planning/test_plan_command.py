"""The plan command: its page, its JSON, its mistakes, measured utilisations, and a light start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import SmallRun
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.store.journal import Journal
from infuser_core.store.runs import create_run


def plan(*words: str) -> str:
    done = CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_json_holds_phases_memory_files_and_totals():
    found = json.loads(plan("configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json"))
    names = [row["phase"] for row in found["phases"]]
    assert names == [
        "rollout_dev", "generate_questions", "rollout_questions", "dev_gradient", "score_influence",
        "update_generator", "update_solver",
    ]  # fmt: skip
    assert sum(row["seconds"] for row in found["phases"]) == pytest.approx(
        found["totals"]["seconds_per_iteration"], abs=0.1
    )
    for role in ("trainer", "sampler"):
        held = found["memory"][role]
        assert sum(held["parts"].values()) == pytest.approx(held["total_bytes"], abs=20)
    assert found["files"]["per_iteration_bytes"] > found["files"]["checkpoint_bytes"] > 90e9


def test_the_page_says_what_does_not_fit_and_what_helps():
    page = plan("configs/qwen3-8b.yaml", "--gpus", "8xH100")
    assert "it does not fit: trainer" in page
    assert "engine.trainer=deepspeed engine.ranks=8" in page
    fitting = plan(
        "configs/qwen3-8b.yaml", "--gpus", "8xH100", "--set", "engine.trainer=deepspeed", "--set", "engine.ranks=8",
        "--set", "engine.placement=colocated",
    )  # fmt: skip
    assert "it fits" in fitting


def test_the_page_says_what_is_formula_what_assumption_and_what_measured(tmp_path: Path):
    words = ("configs/qwen3-8b.yaml", "--gpus", "8xH100")
    basis = plan(*words).split("\nbasis: ")[1]
    assert basis.startswith("memory, store, disk: formula\n")
    assert "assumptions among them" in basis and "solver_response" in basis and "generator_prompt" not in basis
    assert all(f"{kind} 0." in basis for kind in ("sampling", "scoring", "training"))
    assert basis.count("assumption: ") == 3 and "measured: " not in basis
    path = tmp_path / "rehearsed.yaml"
    path.write_text("training: 0.5\n")
    half = plan(*words, "--measured", str(path)).split("\nbasis: ")[1]
    assert f"training 0.5, measured: {path}" in half and half.count("assumption: ") == 2


def test_a_measured_utilisation_divides_the_seconds_of_its_kind(tmp_path: Path):
    words = ("configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json")
    before = json.loads(plan(*words))
    path = tmp_path / "rehearsed.yaml"
    path.write_text(f"training: {before['utilisations']['training']['value'] / 2}\n")
    after = json.loads(plan(*words, "--measured", str(path)))
    pairs = {
        old["phase"]: new["seconds"] / old["seconds"]
        for old, new in zip(before["phases"], after["phases"], strict=True)
    }
    assert pairs["dev_gradient"] == pytest.approx(2, rel=1e-4)
    assert pairs["update_solver"] == pytest.approx(2, rel=1e-4), "scoring has its log-probabilities"
    assert 1 < pairs["update_generator"] < 2, "old log-probabilities are forward passes"
    assert pairs["rollout_dev"] == pairs["score_influence"] == 1


@pytest.mark.parametrize("text", ["training: 0\n", "training: fast\n", "training: -1.0\n", "speed: 0.5\n"])
def test_a_file_that_holds_no_utilisations_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "rehearsed.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        plan("configs/nano.yaml", "--gpus", "1xH100", "--measured", str(path))
    assert caught.value.hint and str(path) in caught.value.message


def test_stages_of_a_run_give_its_utilisations(small_run: SmallRun, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(small_run.root))
    found = json.loads(plan("configs/nano.yaml", "--gpus", "1xH100", "--measured", small_run.name, "--json"))
    assert {one["source"] for one in found["utilisations"].values()} == {f"measured: run {small_run.name}"}
    assert all(0 < one["value"] < 0.01 for one in found["utilisations"].values()), "a CPU is no H100"


def test_a_run_of_which_nothing_ran_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    create_run(tmp_path, "empty", load([Path("configs/nano.yaml")]).model_dump(mode="json"))
    Journal(tmp_path, "empty").start_attempt()
    with pytest.raises(UsageError, match="no phase of it ran"):
        plan("configs/nano.yaml", "--gpus", "1xH100", "--measured", "empty")


def test_longer_answers_take_longer():
    short, long = (
        json.loads(plan("configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json", "--tokens", f"solver_response={mean}"))
        for mean in (500, 1500)
    )
    before, after = ({row["phase"]: row["seconds"] for row in found["phases"]} for found in (short, long))
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"rollout_questions", "score_influence", "update_solver"}
    assert all(after[name] > before[name] for name in changed)


def test_phases_that_a_variant_leaves_out_are_left_out():
    words = ("configs/nano.yaml", "configs/ablation/fixed_generator.yaml", "--gpus", "1xRTX4090", "--json")
    names = [row["phase"] for row in json.loads(plan(*words))["phases"]]
    assert names == ["generate_questions", "rollout_questions", "update_solver"]
    words = ("configs/nano.yaml", "configs/ablation/dev_only.yaml", "--gpus", "1xRTX4090", "--json")
    names = [row["phase"] for row in json.loads(plan(*words))["phases"]]
    assert names == ["rollout_dev", "update_solver"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["configs/nano.yaml", "--gpus", "8xV100"], UsageError),
        (["configs/nano.yaml", "--gpus", "1xH100", "--tokens", "answer=3"], UsageError),
        (["configs/nano.yaml", "--gpus", "1xH100", "--tokens", "valid=1.5"], UsageError),
        (["configs/none.yaml", "--gpus", "1xH100"], ConfigError),
        (["configs/nano.yaml", "--gpus", "1xH100", "--set", "data.dev={type: file, path: none.json}"], ConfigError),
    ],
)
def test_mistakes_name_the_value_and_the_remedy(words: list[str], kind: type):
    with pytest.raises(kind) as caught:
        CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)
    assert caught.value.hint


def test_a_mistake_is_one_line_and_a_hint_on_the_terminal():
    words = ["plan", "configs/nano.yaml", "--gpus", "8xV100"]
    done = subprocess.run([sys.executable, "-m", "flows.cli.main", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "infuser: --gpus 8xV100: unknown GPU 'V100'"
    assert len(done.stderr.splitlines()) == 2


HEAVY = ["torch", "transformers", "scipy", "numpy", "pyarrow", "duckdb", "prefect", "ray"]


def run(*words: str) -> dict:
    code = (
        "import json, sys, typer\nfrom flows.cli import main as cli\nsys.argv = ['infuser', *sys.argv[1:]]\n"
        "try:\n    cli.main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"sys.stderr.write(json.dumps(sorted(set({HEAVY}) & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == []
    return json.loads(done.stdout)


def test_a_plan_imports_nothing_heavy():
    found = run("plan", "configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json")
    assert [row["phase"] for row in found["phases"]][:2] == ["rollout_dev", "generate_questions"]
