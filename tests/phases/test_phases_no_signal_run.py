"""A run whose dev set teaches nothing any more goes on: scores are 0, the generator rests, and the report says so."""

from pathlib import Path

from launcher import Launcher, SmallRun, copy_store

from infuser_core.store.store import Store
from infuser_core.store.views import Lens


def test_a_dev_set_without_variance_is_handled_and_reported(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store")
    # Next to no temperature: all answers of a group are the same.
    still = ["--set", "cotrain.sampling.temperature=1e-4", "--set", "cotrain.iterations=1", "--name", "still"]
    ended = launch(*small_run.arguments[:3], *still, store=store)
    assert ended.code == 0, ended.err

    lens = Lens(Store(store), runs=["still"])
    gradients = lens.query("select norm, num_varied, num_groups from gradients")
    scores = lens.query("select distinct status, score from scores")
    trained = lens.query("select distinct trained from generator_scores")
    (steps,) = lens.query("select count(*) as taken from updates where role = 'generator'")
    keys = {row["phase"]: row["artifact_key"] for row in lens.query("select phase, artifact_key from run_artifacts")}
    lens.close()
    assert gradients == [{"norm": 0.0, "num_varied": 0, "num_groups": 8}]
    assert scores == [{"status": "no_dev_signal", "score": 0.0}]
    assert trained == [{"trained": False}]
    assert steps["taken"] == 0

    weights = [
        (store / "artifacts" / phase / keys[phase] / "model.safetensors").read_bytes()
        for phase in ("anchor", "update_generator")
    ]
    assert weights[0] == weights[1], "the generator is the anchor still"
    page = launch("show", keys["update_generator"], store=store).out
    assert "skipped: no group with variance" in page
    report = (store / "runs" / "still" / "report" / "report.md").read_text()
    assert "Dev signal exhausted in 1 iterations, first in iteration 0" in report
