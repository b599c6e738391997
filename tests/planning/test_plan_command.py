"""The plan command: its page, its JSON, its mistakes, constants of one's own, and a light start."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from launcher import SmallRun
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.capacity.asked import Asked
from infuser_core.capacity.phases import phases_of
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.memory.hardware import Efficiency, as_yaml, calibrated, from_file
from infuser_core.planning.calibrate import Observed, fitted, observed, residuals
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
        "update_generator", "update_solver", "other",
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


def test_the_page_says_which_lengths_nobody_measured():
    page = plan("configs/qwen3-8b.yaml", "--gpus", "8xH100")
    assert "lengths not measured: " in page and "solver_response" in page
    assert "no GPU run of this program has been measured" in page


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
    assert names == ["generate_questions", "rollout_questions", "update_solver", "other"]
    words = ("configs/nano.yaml", "configs/ablation/dev_only.yaml", "--gpus", "1xRTX4090", "--json")
    names = [row["phase"] for row in json.loads(plan(*words))["phases"]]
    assert names == ["rollout_dev", "update_solver", "other"]


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
    found = run("plan", "configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json", "--scale")
    assert [row["phase"] for row in found["phases"]][:2] == ["rollout_dev", "generate_questions"]
    assert found["scaling"]["stops_at"] >= 8


TRUE = Efficiency(matmul=0.31, memory=0.42, link=0.35, decode_step=0.004, layer_pass=0.0006, stage=3.0)


def timed(name: str, gpus: str, efficiency: Efficiency) -> Observed:
    """A run whose timings are the model's own."""
    asked = Asked.of(load([Path(f"configs/{name}.yaml"), Path("configs/engine/eight-gpus.yaml")]), gpus)
    phases = phases_of(replace(asked, efficiency=efficiency))
    return Observed(run=name, asked=asked, seconds={phase.name: phase.seconds for phase in phases})


def test_constants_that_made_the_timings_are_found_again():
    runs = [timed("qwen3-4b", "8xH100", TRUE), timed("qwen3-8b", "8xH100", TRUE), timed("nano", "8xA100", TRUE)]
    found = fitted(runs, calibrated())
    for name in ("matmul", "memory", "decode_step", "layer_pass", "stage"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.1), name
    assert max(abs(row.error) for row in residuals(runs, found)) < 0.03


def test_what_no_timing_shows_stays_where_it_was():
    asked = Asked.of(load([Path("configs/nano.yaml")]), "1xRTX4090")
    seconds = {
        phase.name: phase.seconds for phase in phases_of(replace(asked, efficiency=TRUE)) if phase.name != "other"
    }
    found = fitted([Observed(run="r", asked=asked, seconds=seconds)], calibrated())
    assert found.stage == pytest.approx(calibrated().stage)


def test_the_file_is_read_back_and_moves_the_forecast(tmp_path: Path):
    path = tmp_path / "own.yaml"
    path.write_text(as_yaml(TRUE, origin="a test"))
    assert from_file(path) == TRUE
    words = ["plan", "configs/nano.yaml", "--gpus", "1xRTX4090", "--json"]
    seconds = [
        json.loads(CliRunner().invoke(app, [*words, *more], catch_exceptions=False).output)["totals"]
        for more in ([], ["--efficiency", str(path)])
    ]
    assert seconds[0] != seconds[1]


@pytest.mark.parametrize("change", [{"memory": 0}, {"memory": "fast"}, {"speed": 1.0}])
def test_a_file_that_is_none_is_refused(tmp_path: Path, change: dict[str, object]):
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps(asdict(TRUE) | change))
    with pytest.raises(ConfigError) as caught:
        from_file(path)
    assert caught.value.hint and str(path) in caught.value.message


def test_a_run_of_which_nothing_ran_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    config = load([Path("configs/nano.yaml")])
    create_run(tmp_path, "empty", config.model_dump(mode="json"))
    Journal(tmp_path, "empty").start_attempt()
    with pytest.raises(UsageError, match="no phase of it ran"):
        CliRunner().invoke(app, ["plan", "empty", "--calibrate", "--gpus", "1xH100"], catch_exceptions=False)


def test_a_real_run_tells_its_timings_and_lengths(small_run: SmallRun, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(small_run.root))
    found = observed(small_run.root, "small", "cpu")
    assert {"rollout_dev", "score_influence", "update_solver"} <= set(found.seconds)
    assert 0 < found.asked.lengths.valid <= 1 and found.asked.lengths.solver_response >= 1
    words = ["plan", "small", "--calibrate", "--gpus", "cpu"]
    page = CliRunner().invoke(app, words, catch_exceptions=False).output
    assert "these runs" in page and "score_influence" in page


def test_shares_stay_shares():
    runs = [replace(timed("nano", "8xA100", TRUE), seconds={"score_influence": 1e-9})]
    found = fitted(runs, calibrated())
    assert max(found.matmul, found.memory, found.link) <= 1.0
