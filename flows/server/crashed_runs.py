"""Mark flow runs in Prefect as Crashed if their process or runner has died.

Prefect's runner does this only for its running flow runs: not for a killed `infuser run`, for the sub-flows and
tasks inside a killed run, or for a flow run that was Pending when its runner died and keeps its pool's slot.
"""

import os
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from infuser_core.store import runs

_EVERY = 4.0
_STARTING = timedelta(seconds=30)
_GONE = "the process that ran this is gone"
_BEAT = "heartbeat"
_SILENT = timedelta(seconds=90)
_SUBMITTED = timedelta(minutes=10)
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed", "Paused")
_SUBMISSIONS = ("Pending", "Submitting", "InfrastructurePending")
_WAITING = ("Scheduled", "Late", "AwaitingRetry", "AwaitingConcurrencySlot")


def store_tag(root: Path) -> str:
    """Prefect tag of flow runs of this store."""
    return f"store:{root}"


def keep_settling(root: Path, finished: threading.Event, *, since: datetime) -> None:
    """Mark dead runs as Crashed every few seconds; a run must look dead twice in a row, because starting takes time.

    `since` is the start of this runner, which does not watch older flow runs of deployments.
    """
    suspects: set[str] = set()
    while not finished.wait(_EVERY):
        suspects = _settle_now(root, suspects, since=since)


def settle_at_start(root: Path, *, since: datetime | None = None) -> None:
    """Before a new run starts, mark runs as Crashed that a killed process left in the state Running.

    Runs that have just begun may not hold their lock yet and are skipped. `since` as for `keep_settling`; None if this
    process serves no deployment.
    """
    _settle_now(root, None, since=since)


def _settle_now(root: Path, suspects: set[str] | None, *, since: datetime | None) -> set[str]:
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    # Skip certificates: loading them takes longer than everything else here, and loopback needs none.
    secure = os.environ.get("PREFECT_API_URL", "").startswith("https")
    try:
        with get_client(sync_client=True, httpx_settings={} if secure else {"verify": False}) as client:
            return _settle(client, root, suspects, since=since)
    except (httpx.HTTPError, PrefectHTTPStatusError):
        return suspects or set()  # the server is busy or ending; the next turn comes


def _settle(client: Any, root: Path, suspects: set[str] | None, *, since: datetime | None) -> set[str]:
    """Mark dead runs as Crashed: those in `suspects` or, if None, all that are not new. Returns all dead runs."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    alive = {"state": {"type": {"any_": [StateType.RUNNING, StateType.PENDING]}}}
    flow_runs = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(alive))
    # Consider root flow runs of this store that no runner watches and whose lock is free.
    own = [run for run in flow_runs if store_tag(root) in run.tags and run.parent_task_run_id is None]
    # A Pending run has no lock yet: its starter has ended if the run is older than this runner.
    unwatched = [
        run
        for run in own
        if (run.deployment_id is None and run.state.is_running()) or (since and run.state.timestamp < since)
    ]
    dead_now = {str(run.id) for run in unwatched if not runs.is_held(root, run.name)}
    dead = (
        dead_now & suspects
        if suspects is not None
        else {str(run.id) for run in flow_runs if run.estimated_run_time > _STARTING} & dead_now
    )
    for run in sorted(flow_runs, key=lambda run: run.created):
        parent = _parent_of(client, run)
        if str(run.id) in dead or (parent and parent.state.is_final()):
            client.set_flow_run_state(run.id, Crashed(message=_GONE), force=True)
    for task in client.read_task_runs(task_run_filter=TaskRunFilter.model_validate(alive)):
        if task.flow_run_id and client.read_flow_run(task.flow_run_id).state.is_final():
            client.set_task_run_state(task.id, Crashed(message=_GONE), force=True)
    return dead_now


def install_automations() -> None:
    """Install Prefect automations that end flow runs whose process or runner has died, unless they exist.

    Runner and flow run may die together while the server lives; Prefect has no such automations itself.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for automation in _automations():
            if not client.read_automations_by_name(automation.name):
                client.create_automation(automation)


def _automations() -> Iterator[Any]:
    """Yield an automation for flow runs whose heartbeat stops, and one for runs that are received but never start."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

    for name, after, expect, within, message in (
        (
            "infuser: flow runs without a heartbeat are Crashed",
            (_BEAT,),
            (_BEAT, *_ENDS),
            _SILENT,
            f"no heartbeat for {_SILENT.seconds} s",
        ),
        (
            "infuser: flow runs that never start are Crashed",
            _SUBMISSIONS,
            ("Running", "Retrying", *_ENDS, *_WAITING),
            _SUBMITTED,
            f"did not start within {_SUBMITTED.seconds} s: its runner is gone",
        ),
    ):
        yield AutomationCore(
            name=name,
            description="Installed by `infuser serve`; it may be changed or switched off in the UI.",
            trigger=EventTrigger(
                match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
                for_each={"prefect.resource.id"},
                after={f"prefect.flow-run.{event}" for event in after},
                expect={f"prefect.flow-run.{event}" for event in expect},
                posture=Posture.Proactive,
                threshold=1,
                within=within,
            ),
            actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message, force=True)],
        )


def _parent_of(client: Any, run: Any) -> Any:
    if run.parent_task_run_id is None:
        return None
    flow_run = client.read_task_run(run.parent_task_run_id).flow_run_id
    return client.read_flow_run(flow_run) if flow_run else None
