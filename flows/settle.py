"""Prefect's records follow the truth: what no living process executes any more is marked Crashed.

The runner does this for its own flow runs. Nobody does it for an `infuser run` that was killed, nor for the sub-flows
and tasks inside a killed run.
"""

import threading
from pathlib import Path
from typing import Any

from infuser_core import runs

_EVERY = 4.0


def store_tag(root: Path) -> str:
    """Tag of the flow runs of this store."""
    return f"store:{root}"


def keep_settling(root: Path, ended: threading.Event) -> None:
    """Settle every few seconds. A run counts as dead when it is so twice in a row: starting takes a moment."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    suspects: set[str] = set()
    while not ended.wait(_EVERY):
        try:
            with get_client(sync_client=True) as client:
                suspects = settle(client, root, suspects)
        except (httpx.HTTPError, PrefectHTTPStatusError):
            continue  # the server is busy or ending; the next turn comes


def settle(client: Any, root: Path, suspects: set[str]) -> set[str]:
    """Mark what died as Crashed. Returns the runs that look dead for the first time."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    running = {"state": {"type": {"any_": [StateType.RUNNING]}}}
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(running))
    gone = {str(run.id) for run in found if _is_orphan(root, run)}
    for run in sorted(found, key=lambda run: run.created):
        parent = _parent(client, run)
        if str(run.id) in gone & suspects or (parent and parent.state.is_final()):
            client.set_flow_run_state(run.id, Crashed(message="the process that ran this is gone"), force=True)
    for task in client.read_task_runs(task_run_filter=TaskRunFilter.model_validate(running)):
        if task.flow_run_id and client.read_flow_run(task.flow_run_id).state.is_final():
            client.set_task_run_state(task.id, Crashed(message="the process that ran this is gone"), force=True)
    return gone


def _is_orphan(root: Path, run: Any) -> bool:
    """A root flow run of this store that no runner watches, and whose lock nobody holds."""
    mine = store_tag(root) in run.tags and run.deployment_id is None and run.parent_task_run_id is None
    return mine and not runs.is_held(root, run.name)


def _parent(client: Any, run: Any) -> Any:
    if run.parent_task_run_id is None:
        return None
    flow_run = client.read_task_run(run.parent_task_run_id).flow_run_id
    return client.read_flow_run(flow_run) if flow_run else None
