"""Mirror runs that ran without a Prefect server into Prefect's database, from their journals.

The server of `infuser serve` checks the store when it starts and every few seconds after that,
and adds missing attempts, finished and running ones, as flow runs, task runs and pages.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from prefect.server import models
from prefect.server.database import PrefectDBInterface, provide_database_interface
from prefect.server.schemas.core import Artifact, Flow
from prefect.server.schemas.states import StateType
from sqlalchemy.exc import SQLAlchemyError

from flows.server.crashed_runs import store_tag
from infuser_core.config.phase_table import MEASUREMENTS, Phase
from infuser_core.errors import InfuserError
from infuser_core.results.lineage.attempts import Attempt, attempts_of, span_of
from infuser_core.results.lineage.markdown import artifact_key, artifact_page, described, heading, page_key
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import FINISHED, Entry, Journal
from infuser_core.store.recipe import ArtifactRef, stage_title
from infuser_core.store.store import Store
from tasks.display import RUN_PAGE, page_of_run

_EVERY = 2.0
_SPACE = UUID("5f0c8f0e-3c63-4b1c-9d6e-2f1f0f6f9a51")
_STATES = {
    "ran": (StateType.COMPLETED, "Completed"),
    "cached": (StateType.COMPLETED, "Cached"),
    "failed": (StateType.FAILED, "Failed"),
    "killed": (StateType.CRASHED, "Crashed"),
    "stopped": (StateType.COMPLETED, "Stopped"),
    "done": (StateType.COMPLETED, "Completed"),
    "running": (StateType.RUNNING, "Running"),
}


PrefectRow = tuple[str, dict[str, Any], dict[str, Any]]
"""A row of Prefect's database: kind (FlowRun, TaskRun), its columns without the state's id, and the state's columns."""


def _prefect_row(
    kind: str, id: UUID, name: str, of: Attempt | Entry, entries: Sequence[Entry], extra: dict[str, Any]
) -> PrefectRow:
    """Database row of an attempt or a stage that lasts from its first to its last entry; `extra` are more columns."""
    state_type, state_name = _STATES[of.state]
    *times, seconds = span_of(entries)
    started, end = (datetime.fromtimestamp(moment, UTC) for moment in times)
    final = of.state != "running"
    columns = {
        "id": id,
        "name": name,
        "state_type": state_type,
        "state_name": state_name,
        "state_timestamp": end if final else started,
        "run_count": 1,
        "expected_start_time": started,
        "start_time": started,
        "end_time": end if final else None,
        "total_run_time": timedelta(seconds=seconds if final else 0.0),
        **extra,
    }
    when, message = columns["state_timestamp"], of.message or None
    state = {"id": uuid5(id, of.state), "type": state_type, "name": state_name, "message": message, "timestamp": when}
    return kind, columns, state


async def mirror(root: Path) -> None:
    """Add missing attempts of the store's runs, now and every few seconds, until cancelled."""
    former: dict[str, tuple[int, int, bool]] = {}
    counts: dict[UUID, int] = {}
    while True:
        for name in await asyncio.to_thread(runs.list_runs, root):
            fingerprint = await asyncio.to_thread(_fingerprint, root, name)
            if former.get(name) == fingerprint:
                continue
            try:
                await show(root, name, counts)
                former[name] = fingerprint
            except (SQLAlchemyError, InfuserError, OSError, ValueError) as error:
                _log_failure(root, name, error)
        await asyncio.sleep(_EVERY)


async def show(root: Path, run: str, counts: dict[UUID, int]) -> None:
    """Add a run's missing attempts and stages to this server's database. Raises InfuserError.

    `counts` is the number of each attempt's stages that were added before.
    """
    db = provide_database_interface()
    flow_runs = runs.read_run(root, run).get("shown", {})
    for attempt in await asyncio.to_thread(attempts_of, root, run):
        # Skip attempts that ran as flow runs of Prefect.
        if str(attempt.number) in flow_runs or await _is_complete(db, attempt):
            continue
        present = counts.get(_flow_run_id(attempt), 0)
        async with db.session_context(begin_transaction=True, with_for_update=True) as session:
            flows = {name: await _flow_id(session, name) for name in ("infuser", "iteration")}
            await _write_rows(session, db, list(_rows(root, attempt, flows, present)))
        await _show_pages(root, db, attempt, present)
        counts[_flow_run_id(attempt)] = len(attempt.entries)


def _flow_run_id(attempt: Attempt) -> UUID:
    """Prefect id of an attempt's flow run."""
    return _id(attempt.run, attempt.number)


async def _flow_id(session: Any, name: str) -> UUID:
    create: Any = models.flows.create_flow
    identity: UUID = (await create(session=session, flow=Flow(name=name))).id
    return identity


def _fingerprint(root: Path, name: str) -> tuple[int, int, bool]:
    """Values that change when the run proceeds: its journal's time and size, and whether it is held."""
    path = Journal(root, name).path
    facts = path.stat() if path.exists() else None
    return (facts.st_mtime_ns, facts.st_size, runs.is_held(root, name)) if facts else (0, 0, False)


async def _is_complete(db: PrefectDBInterface, attempt: Attempt) -> bool:
    async with db.session_context() as session:
        flow_run = await session.get(db.FlowRun, _flow_run_id(attempt))
        return (
            flow_run is not None
            and flow_run.state_id == uuid5(_flow_run_id(attempt), attempt.state)
            and attempt.state != "running"
        )


def _rows(root: Path, attempt: Attempt, flows: dict[str, UUID], present: int) -> Iterator[PrefectRow]:
    """Database rows of an attempt: its flow run, its iterations, and its new stages, parents first."""
    stages = [entry for entry in attempt.entries if entry.phase != FINISHED]
    flow_columns = {"flow_id": flows["infuser"], "parameters": {"name": attempt.run}, "tags": [store_tag(root)]}
    yield _prefect_row("FlowRun", _flow_run_id(attempt), attempt.run, attempt, attempt.entries, flow_columns)
    # Include the last iteration that was added before: it may have ended since.
    changed = [*stages[:present][-1:], *stages[present:]]
    for number in sorted({entry.iteration for entry in changed if _is_inside(entry)}):
        yield from _iteration_rows(attempt, number, stages, flows["iteration"])
    for count, entry in list(enumerate(stages))[present:]:
        columns = {"flow_run_id": _parent(attempt, entry), "task_key": entry.phase, "dynamic_key": str(count)}
        record = Catalogue(root).find(entry.key) if entry.key else None
        name = stage_title(f"{entry.phase} {record.label if record else ''}".rstrip(), entry.iteration)
        yield _prefect_row("TaskRun", _id(attempt.run, attempt.number, "stage", count), name, entry, [entry], columns)


def _iteration_rows(attempt: Attempt, number: int, stages: Sequence[Entry], flow: UUID) -> Iterator[PrefectRow]:
    """Database rows of an iteration as a sub-flow: its task run in the parent, and its flow run."""
    inside = [entry for entry in stages if _is_inside(entry) and entry.iteration == number]
    is_last = number == max(entry.iteration for entry in stages)
    part = attempt if is_last else replace(attempt, state="done", message="")
    task, label = _id(attempt.run, attempt.number, number, "task"), f"iteration-{number}"
    columns = {"flow_run_id": _flow_run_id(attempt), "task_key": "iteration", "dynamic_key": label}
    yield _prefect_row("TaskRun", task, label, part, inside, columns)
    columns = {"flow_id": flow, "parent_task_run_id": task, "parameters": {"run": attempt.run, "number": number}}
    yield _prefect_row("FlowRun", _id(attempt.run, attempt.number, number), label, part, inside, columns)


def _is_inside(entry: Entry) -> bool:
    """Whether the stage is one of an iteration's phases and not an evaluation of its checkpoint."""
    return entry.iteration >= 0 and entry.phase not in MEASUREMENTS


def _parent(attempt: Attempt, entry: Entry) -> UUID:
    """Id of the flow run that a stage belongs to: its iteration's or the attempt's."""
    return _id(attempt.run, attempt.number, entry.iteration) if _is_inside(entry) else _flow_run_id(attempt)


async def _write_rows(session: Any, db: PrefectDBInterface, rows: Sequence[PrefectRow]) -> None:
    """Write flow runs and task runs, then their states, then the references from runs to states."""
    models_of_rows = []
    for kind, columns, _ in rows:
        models_of_rows.append(await session.merge(getattr(db, kind)(**columns)))
        await session.flush()
    for kind, columns, state in rows:
        owner = {"flow_run_id" if kind == "FlowRun" else "task_run_id": columns["id"]}
        await session.merge(getattr(db, f"{kind}State")(**state, **owner))
    await session.flush()
    for model, (_, _, state) in zip(models_of_rows, rows, strict=True):
        model.state_id = state["id"]
    await session.flush()


async def _show_pages(root: Path, db: PrefectDBInterface, attempt: Attempt, present: int) -> None:
    """Publish a page in Prefect for each new artifact of the attempt, and after validations one for the run."""
    new = list(enumerate(attempt.entries))[present:]
    for count, entry in new:
        if entry.state == "ran":
            page = await asyncio.to_thread(_page_of, root, attempt.run, entry)
            task = _id(attempt.run, attempt.number, "stage", count)
            parent = _parent(attempt, entry)
            await _publish(db, page.model_copy(update={"flow_run_id": parent, "task_run_id": task}))
    is_due = attempt.state == "done" or any(entry.phase == Phase.VALIDATE for _, entry in new)
    if is_due and any(entry.state == "ran" for entry in attempt.entries):
        text = await asyncio.to_thread(page_of_run, root, attempt.run)
        identity = f"run {_flow_run_id(attempt)} {len(attempt.entries)}"
        page = _artifact(artifact_key("run", attempt.run), text, RUN_PAGE, identity)
        await _publish(db, page.model_copy(update={"flow_run_id": _flow_run_id(attempt)}))


async def _publish(db: PrefectDBInterface, page: Artifact) -> None:
    async with db.session_context(begin_transaction=True, with_for_update=True) as session:
        if await session.get(db.Artifact, page.id) is None:
            await models.artifacts.create_artifact(session=session, artifact=page)


def _page_of(root: Path, run: str, entry: Entry) -> Artifact:
    ref, store = ArtifactRef(kind=entry.phase, key=entry.key, digest=entry.digest), Store(root)
    try:
        record = store.manifest(ref)
        text, description = artifact_page(store, record, run=run), described(record, run)
    except InfuserError as error:  # removed by gc, or damaged
        description = f"run {run}: cannot be shown"
        text = f"# {heading(entry.phase, entry.iteration)}\n\n`{ref.id}` cannot be shown: {error.message}"
    return _artifact(page_key(entry.phase, entry.iteration, entry.key), text, description, ref.id)


def _artifact(key: str, text: str, description: str, identity: str) -> Artifact:
    return Artifact(id=_id("page", identity), key=key, type="markdown", data=text, description=description)


def _id(*parts: object) -> UUID:
    return uuid5(_SPACE, "/".join(map(str, parts)))


def _log_failure(root: Path, name: str, error: Exception) -> None:
    """Log a failure in a file next to the database, because this process has no visible output."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with (root / "prefect" / "mirror.log").open("a", encoding="utf-8") as log:
        log.write(f"{now} {name}: {type(error).__name__}: {' '.join(str(error).split())[:500]}\n")
