"""`infuser serve` for real: server, UI, deployment, kill -9, retry, and `infuser run` beside it."""

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import CONFIG, SMALL, Served, eventually

from infuser_core import runs

pytestmark = pytest.mark.xdist_group("served")


def test_a_killed_flow_run_is_crashed_and_retry_goes_on_from_its_last_stage(served: Served) -> None:
    started = served.command(
        "prefect", "deployment", "run", "infuser/full-pipeline",
        "--param", f"configs={json.dumps([CONFIG])}", "--param", f"overrides={json.dumps(SMALL)}",
        PREFECT_API_URL=served.url,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    flow_run = re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]
    name = eventually(lambda: runs.list_runs(served.store), 120)[0]
    journal = runs.Journal(served.store, name)
    eventually(lambda: [e for e in journal.entries() if e.iteration == 0 and e.phase == "update_solver"], 120)
    holder = (runs.runs_folder(served.store) / name / "lock").read_text()
    os.kill(int(holder.split()[1]), signal.SIGKILL)
    eventually(lambda: served.state(flow_run) == "Crashed", 60)
    before = {entry.key for entry in journal.entries()}

    retried = served.command("prefect", "flow-run", "retry", flow_run, PREFECT_API_URL=served.url)
    assert retried.returncode == 0, retried.stderr
    eventually(lambda: served.state(flow_run) == "Completed", 150)

    assert runs.list_runs(served.store) == [name]
    second = journal.last_attempt()
    assert {entry.key for entry in second if entry.state == "cached"} == before
    assert {entry.phase for entry in second if entry.state == "ran"} >= {"update_solver", "select", "evaluate"}
    states = [task["state_name"] for task in served.post("task_runs/filter", {})]
    assert states.count("Cached") >= 5


def test_many_writers_at_once_are_all_served(served: Served) -> None:
    flow = served.post("flows/", {"name": "many-writers"})["id"]
    with ThreadPoolExecutor(12) as pool:
        bodies = [{"flow_id": flow, "state": {"type": "RUNNING"}} for _ in range(60)]
        made = list(pool.map(lambda body: served.post("flow_runs/", body)["id"], bodies))
        ends = [{"state": {"type": "COMPLETED"}, "force": True} for _ in made]
        list(pool.map(lambda run, end: served.post(f"flow_runs/{run}/set_state", end), made, ends))
    assert len(set(made)) == 60


def test_artifact_pages_tell_rows_recipe_origin_and_sql(served: Served) -> None:
    artifacts = served.post("artifacts/filter", {"sort": "CREATED_DESC"})
    page = next(a["data"] for a in artifacts if a["key"].startswith("update-solver-"))
    for part in ("| step |", "## Recipe", "## Made from", "- solver: `", 'infuser sql "select * from updates where'):
        assert part in page, page
    bars = [a for a in artifacts if a["type"] == "progress"]
    assert bars and all(0 <= bar["data"] <= 100 for bar in bars)


def test_a_killed_infuser_run_under_serve_is_settled_and_resumed(served: Served) -> None:
    overlay = served.store.parent / "overlay.yaml"
    overlay.write_text(json.dumps(SMALL))
    # Another learning rate than above: the corpus and the first solver's rollouts are in the store already.
    arguments = ["run", CONFIG, str(overlay), "--set", "cotrain.solver.learning_rate=1e-4"]
    killed = served.command("flows.cli", *arguments, INFUSER_CRASH_AT="update_solver:start:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    root = served.roots()[0]
    assert root["state_name"] == "Running"
    eventually(lambda: served.state(root["id"]) == "Crashed", 90)
    running = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    eventually(lambda: not served.post("flow_runs/filter", running), 60)

    resumed = served.command("flows.cli", "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert served.roots()[0]["state_name"] == "Completed"
    assert served.roots()[0]["name"] == root["name"]
