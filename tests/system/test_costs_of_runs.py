"""A run's step costs and traces: a row per optimizer step also after a kill, and no trace of either in a digest."""

import gzip
import json
from contextlib import closing
from pathlib import Path

from launcher import Launcher, SmallRun, copy_store

from infuser_core.results.view.run import run_page
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

TRAINED = ("dev_gradient", "score_influence", "update_generator", "update_solver")


def digests(root: Path, name: str) -> dict[str, str]:
    return {entry.key: entry.digest for entry in Journal(root, name).latest()}


def test_costs_are_a_row_per_step_and_neither_they_nor_traces_change_a_digest(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = copy_store(small_run.root, tmp_path / "store", without=TRAINED)
    arguments = [*small_run.arguments, "--profile", "2"]
    killed = launch(*arguments, store=store, INFUSER_CRASH_AT="update_solver:before_commit")
    assert killed.code == -9
    folder = store / "runs" / small_run.name / "profile"
    assert {path.name for path in folder.iterdir()} >= {"scoring-1.json.gz", "step-1.json.gz", "step-2.json.gz"}
    for path in folder.iterdir():
        path.unlink()
    ended = launch("resume", small_run.name, "--profile", "1", store=store)
    assert ended.code == 0 and str(folder) in ended.err
    trace = json.loads(gzip.decompress((folder / "step-1.json.gz").read_bytes()))
    assert any("aten::" in str(event.get("name")) for event in trace["traceEvents"])
    assert digests(store, small_run.name) == digests(small_run.root, small_run.name)
    with closing(Lens(Store(store), runs=[small_run.name])) as lens:
        pairs = lens.query("""select u.num_tokens as trained, c.num_tokens, c.seconds, c.flops, c.idle_share
            from updates u full join (from step_costs where work = 'step') c
            on c.artifact_key = u.artifact_key and c.step = u.step""")
        scored = lens.query("select count(*) as passes from step_costs where work = 'scoring'")
        page = run_page(store, small_run.name, lens)
    works = {(row["role"], row["work"]) for row in page["passes"]}
    assert works >= {("generator", "step"), ("solver", "gradient"), ("solver", "scoring"), ("solver", "step")}
    assert pairs and all(row["trained"] == row["num_tokens"] for row in pairs)
    assert all(row["seconds"] > 0 and row["flops"] > 0 and 0 <= row["idle_share"] < 1 for row in pairs)
    assert scored[0]["passes"] in (1, 2)


def test_a_trace_of_other_processes_is_refused_before_anything_runs(launch: Launcher, small_run: SmallRun, tmp_path):
    words = [*small_run.arguments, "--profile", "1", "--set", "engine.trainer=deepspeed"]
    refused = launch(*words, store=tmp_path)
    assert refused.code == 2 and "--profile" in refused.err and not (tmp_path / "artifacts").exists()
