import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.errors import ConfigError, UsageError


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
    assert found["totals"]["gpu_hours"] == pytest.approx(614, rel=0.1)
    for role in ("trainer", "sampler"):
        held = found["memory"][role]
        assert sum(held["parts"].values()) == pytest.approx(held["total_bytes"], abs=20)
    assert found["files"]["per_iteration_bytes"] > found["files"]["checkpoint_bytes"] > 90e9
    assert found["other_schedule"]["schedule"] == "packed"


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
        (["configs/nano.yaml", "--gpus", "1xH100", "--schedule", "fast"], UsageError),
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
