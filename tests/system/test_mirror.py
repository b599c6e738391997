"""A run needs no Prefect server: it is a view of the work, and the next one shows what none has seen."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from care_tools import copy_run
from launcher import Launcher, SmallRun, copy_store
from served import Served, eventually

from flows import deployment
from infuser_core.results.lineage.markdown import page_key
from infuser_core.store.journal import Journal

SCORED = ("score_influence", "update_generator", "update_solver")
"""Phases that a run still computes, from the first scores on."""


def test_a_run_goes_on_without_a_server_that_never_answers(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store, nobody = copy_store(small_run.root, tmp_path / "store"), f"http://127.0.0.1:{deployment.free_port()}/api"
    ended = launch(*small_run.arguments, store=store, PREFECT_API_URL=nobody)
    assert ended.code == 0 and not (store / "prefect").exists()
    (said,) = [line for line in ended.err.splitlines() if "warning" in line]
    assert f"the Prefect server at {nobody} does not answer; the run continues without it" in said
    assert digest(launch, store) == digest(launch, small_run.root)


@pytest.fixture(scope="module")
def served(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a store with a run that was finished without one."""
    running = Served(copy_run(small_run, tmp_path_factory.mktemp("mirror") / "store"))
    yield running
    running.process.terminate()
    assert running.process.wait(60) in (0, 130, -15)
    assert "never awaited" not in running.log.read_text()


@pytest.mark.slow
def test_a_run_that_no_server_saw_is_shown_with_its_times_states_and_pages(served: Served):
    entries = Journal(served.store, "small").last_attempt()
    (whole,) = eventually(lambda: served.roots(), 30)
    assert (whole["name"], whole["state_name"]) == ("small", "Completed")
    ended = Journal(served.store, "small").entries()[-1].at
    assert whole["total_run_time"] == pytest.approx(ended - min(each.at - each.seconds for each in entries), abs=0.1)

    ran = [entry for entry in entries if entry.state == "ran"]
    eventually(lambda: len(served.post("artifacts/filter", {})) > len(ran), 30)
    tasks = served.post("task_runs/filter", {})
    stages = Counter(task["state_name"] for task in tasks if task["task_key"] != "iteration")
    assert stages == Counter("Completed" if entry.state == "ran" else "Cached" for entry in entries)
    inside = {run["id"]: run["name"] for run in served.post("flow_runs/filter", {}) if run["parent_task_run_id"]}
    assert sorted(inside.values()) == ["iteration-0", "iteration-1"]
    (update,) = [task for task in tasks if task["name"] == "update_solver, iteration 1"]
    assert inside[update["flow_run_id"]] == "iteration-1"

    pages = {page["key"]: page for page in served.post("artifacts/filter", {})}
    (key,) = [entry.key for entry in ran if (entry.phase, entry.iteration) == ("update_solver", 1)]
    name = page_key("update_solver", 1, key)
    page = pages[name]
    assert (page["flow_run_id"], page["task_run_id"]) == (update["flow_run_id"], update["id"])
    assert (
        "| step |" in page["data"] and "](/v2/artifacts/key/answers-to-generated-questions-iteration-1-" in page["data"]
    )
    assert page["description"].startswith("step ") and page["description"].endswith("; run small")
    assert f"](/v2/artifacts/key/{name})" in pages["run-small"]["data"]
    assert pages["run-small"]["data"].count("](data:image/svg+xml;base64,") == 2


@pytest.mark.slow
def test_a_run_beside_the_server_is_a_flow_run_of_its_own_and_not_shown_twice(
    launch: Launcher, small_run: SmallRun, served: Served
):
    eventually(lambda: served.roots(), 30)
    assert launch(*small_run.arguments, store=served.store).code == 0
    time.sleep(5)
    assert [run["state_name"] for run in served.roots()] == ["Completed", "Completed"]
    assert not (served.store / "prefect" / "mirror.log").exists()


@pytest.mark.long
def test_a_server_that_comes_late_shows_the_run_at_work_and_then_its_end(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    points, store = tmp_path / "points", copy_store(small_run.root, tmp_path / "store", without=SCORED)
    running = launch.start(*small_run.arguments, store=store, INFUSER_POINTS=str(points))
    eventually(lambda: points.exists() and "score_influence:start" in points.read_text(), 150)
    running.kill(signal.SIGSTOP)
    late = Served(store)
    try:
        assert eventually(lambda: [run["state_name"] for run in late.roots()], 30) == ["Running"]
        running.kill(signal.SIGCONT)
        ended = running.wait()
        assert ended.code == 0, ended.err
        eventually(lambda: [run["state_name"] for run in late.roots()] == ["Completed"], 30)
        assert {run["state_name"] for run in late.post("flow_runs/filter", {})} == {"Completed"}
    finally:
        late.process.terminate()
        late.process.wait(60)
    assert digest(launch, store) == digest(launch, small_run.root)


@pytest.mark.long
def test_a_run_whose_server_is_killed_ends_with_the_same_bits_and_the_next_server_shows_it(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    points, store = tmp_path / "points", copy_store(small_run.root, tmp_path / "store", without=SCORED)
    first = Served(store)
    running = launch.start(*small_run.arguments, store=store, INFUSER_POINTS=str(points))
    eventually(lambda: points.exists() and "score_influence:start" in points.read_text(), 150)
    os.kill(first.process.pid, signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 0, ended.err
    assert digest(launch, store) == digest(launch, small_run.root)
    second = Served(store)
    try:
        eventually(lambda: any(run["state_name"] == "Completed" for run in second.roots()), 30)
    finally:
        second.process.terminate()
        second.process.wait(60)


def digest(launch: Launcher, store: Path) -> str:
    ended = launch("status", "--digest", "small", store=store)
    assert ended.code == 0, ended.err
    return ended.out
