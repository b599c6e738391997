"""`infuser plan --calibrate`: constants that made the timings are found again, and the command writes a usable file."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from launcher import SmallRun
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.capacity.calibrate import Observed, fitted, residuals
from infuser_core.capacity.forecast import Asked, packed
from infuser_core.capacity.hardware import Efficiency, as_yaml, calibrated, from_file
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.planning.timings import observed
from infuser_core.store.runs import Journal, create_run

TRUE = Efficiency(matmul=0.31, memory=0.42, link=0.35, decode_step=0.004, layer_pass=0.0006, stage=3.0)


def timed(name: str, gpus: str, efficiency: Efficiency) -> Observed:
    """A run whose timings are the model's own."""
    asked = Asked.of(load([Path(f"configs/{name}.yaml"), Path("configs/engine/eight-gpus.yaml")]), gpus)
    return Observed(run=name, asked=asked, seconds={phase.name: phase.seconds for phase in packed(asked, efficiency)})


def test_constants_that_made_the_timings_are_found_again():
    runs = [timed("qwen3-4b", "8xH100", TRUE), timed("qwen3-8b", "8xH100", TRUE), timed("nano", "8xA100", TRUE)]
    found = fitted(runs, calibrated())
    for name in ("matmul", "memory", "decode_step", "layer_pass", "stage"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.1), name
    assert max(abs(row.error) for row in residuals(runs, found)) < 0.03


def test_what_no_timing_shows_stays_where_it_was():
    asked = Asked.of(load([Path("configs/nano.yaml")]), "1xRTX4090")
    seconds = {phase.name: phase.seconds for phase in packed(asked, TRUE) if phase.name != "other"}
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
