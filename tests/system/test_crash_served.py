"""Flow runs of a deployment whose runner died with them: Crashed at the next start, or by the missing heartbeat."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from served import CONFIG, SMALL, Served, eventually

from infuser_core.store import runs
from infuser_core.store.journal import Journal

pytestmark = pytest.mark.long


def automations(served: Served) -> list[dict]:
    return [each for each in served.post("automations/filter", {}) if each["name"].startswith("infuser:")]


def end(served: Served) -> None:
    served.process.send_signal(signal.SIGINT)
    served.process.wait(timeout=30)


def start(served: Served) -> str:
    """A small flow run of the deployment; its id."""
    started = served.prefect(
        "deployment", "run", "infuser/full-pipeline",
        "--param", f"configs={json.dumps([CONFIG])}", "--param", f"overrides={json.dumps(SMALL)}",
    )  # fmt: skip
    return re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_what_died_with_its_runner_is_crashed_when_serving_starts_again_and_can_be_retried(tmp_path: Path):
    first = Served(tmp_path / "store")
    rules = automations(first)
    assert all(rule["enabled"] and rule["trigger"]["posture"] == "Proactive" for rule in rules)
    assert {"prefect.flow-run.heartbeat"} in [set(rule["trigger"]["after"]) for rule in rules]
    flow_run = start(first)
    name = eventually(lambda: runs.list_runs(first.store), 120)[0]
    eventually(lambda: Journal(first.store, name).entries(), 120)
    holder = json.loads((runs.runs_folder(first.store) / name / "lease.json").read_text())["pid"]
    # The runner first: it would notice.
    first.process.kill()
    os.kill(holder, signal.SIGKILL)
    first.process.wait()
    eventually(lambda: not runs.is_held(first.store, name), 20)

    again = Served(tmp_path / "store")
    try:
        eventually(lambda: again.state(flow_run) == "Crashed", 150)
        assert len(automations(again)) == 2, "each is installed once"
        retried = again.prefect("flow-run", "retry", flow_run)
        assert retried.returncode == 0, retried.stderr
        eventually(lambda: again.state(flow_run) == "Completed", 240)
        assert Journal(again.store, name).is_finished()
    finally:
        end(again)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_what_was_pending_when_its_runner_died_is_crashed_when_serving_starts_again(tmp_path: Path):
    first = Served(tmp_path / "store")
    flow_run = start(first)
    eventually(lambda: first.state(flow_run) in ("Pending", "Submitting"), 60)
    first.process.kill()
    first.process.wait()
    again = Served(tmp_path / "store")
    try:
        assert again.state(flow_run) in ("Pending", "Submitting", "Crashed"), "it had not started"
        eventually(lambda: again.state(flow_run) == "Crashed", 60)
        assert again.prefect("flow-run", "retry", flow_run).returncode == 0
        eventually(lambda: again.state(flow_run) == "Completed", 240)
    finally:
        end(again)


@pytest.mark.slow
def test_the_automation_ends_what_no_runner_starts(tmp_path: Path):
    served = Served(tmp_path / "store")
    try:
        (rule,) = [each for each in automations(served) if "prefect.flow-run.Pending" in each["trigger"]["after"]]
        assert rule["trigger"]["within"] == 600
        # The shortest that Prefect allows; what else it says stays.
        fields = {name: value for name, value in rule.items() if name not in ("id", "created", "updated", "account")}
        served.send("PUT", f"automations/{rule['id']}", {**fields, "trigger": {**rule["trigger"], "within": 10}})
        flow = served.post("flows/filter", {})[0]["id"]
        orphan, waiting, alive = (served.post("flow_runs/", {"flow_id": flow})["id"] for _ in range(3))
        for flow_run in (orphan, waiting, alive):
            served.post(f"flow_runs/{flow_run}/set_state", {"state": {"type": "PENDING", "name": "Submitting"}})
        served.post(f"flow_runs/{waiting}/set_state", {"state": {"type": "SCHEDULED"}, "force": True})
        served.post(f"flow_runs/{alive}/set_state", {"state": {"type": "RUNNING"}})
        eventually(lambda: served.state(orphan) == "Crashed", 60)
        assert (served.state(waiting), served.state(alive)) == ("Scheduled", "Running")
    finally:
        end(served)
