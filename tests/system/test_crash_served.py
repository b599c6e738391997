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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_what_died_with_its_runner_is_crashed_when_serving_starts_again_and_can_be_retried(tmp_path: Path):
    first = Served(tmp_path / "store")
    (rule,) = automations(first)
    assert rule["enabled"] and rule["trigger"]["posture"] == "Proactive"
    assert rule["trigger"]["after"] == ["prefect.flow-run.heartbeat"]
    started = first.prefect(
        "deployment", "run", "infuser/full-pipeline",
        "--param", f"configs={json.dumps([CONFIG])}", "--param", f"overrides={json.dumps(SMALL)}",
    )  # fmt: skip
    flow_run = re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]
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
        assert len(automations(again)) == 1, "installed once"
        retried = again.prefect("flow-run", "retry", flow_run)
        assert retried.returncode == 0, retried.stderr
        eventually(lambda: again.state(flow_run) == "Completed", 240)
        assert Journal(again.store, name).is_finished()
    finally:
        end(again)
