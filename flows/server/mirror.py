"""Shows runs in Prefect that no Prefect server has seen: flow runs, task runs and pages, made from their journals.

A run needs no server. The server of `infuser serve` looks through the store when it starts and every few seconds after
that, and writes what it lacks into its own database: whole attempts that happened without it, and those at work now.
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
from infuser_core.config.phase_table import MEASUREMENTS
from infuser_core.errors import InfuserError
from infuser_core.results.lineage.attempts import Attempt, attempts_of, span_of
from infuser_core.results.lineage.markdown import artifact_key, artifact_page, described, heading, page_key
from infuser_core.store import runs
from infuser_core.store.journal import FINISHED, Entry, Journal
from infuser_core.store.recipe import ArtifactRef, title
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


Shown = tuple[str, dict[str, Any], dict[str, Any]]
"""A flow run or task run of Prefect: the kind of its row, its columns but the reference to its state, the state's."""


def _shown(kind: str, id: UUID, name: str, of: Attempt | Entry, entries: Sequence[Entry], own: dict[str, Any]) -> Shown:
    """An attempt or stage as Prefect shows it, from the first of these entries to the last, with its own columns."""
    state_type, state_name = _STATES[of.state]
    *ends, seconds = span_of(entries)
    started, seen = (datetime.fromtimestamp(end, UTC) for end in ends)
    final = of.state != "running"
    columns = {
        "id": id,
        "name": name,
        "state_type": state_type,
        "state_name": state_name,
        "state_timestamp": seen if final else started,
        "run_count": 1,
        "expected_start_time": started,
        "start_time": started,
        "end_time": seen if final else None,
        "total_run_time": timedelta(seconds=seconds if final else 0.0),
        **own,
    }
    when, said = columns["state_timestamp"], of.message or None
    state = {"id": uuid5(id, of.state), "type": state_type, "name": state_name, "message": said, "timestamp": when}
    return kind, columns, state


async def mirror(root: Path) -> None:
    """Show what the server lacks, now and every few seconds, until cancelled."""
    seen: dict[str, tuple[int, int, bool]] = {}
    shown: dict[UUID, int] = {}
    while True:
        for name in await asyncio.to_thread(runs.list_runs, root):
            looked = await asyncio.to_thread(_look, root, name)
            if seen.get(name) == looked:
                continue
            try:
                await show(root, name, shown)
                seen[name] = looked
            except (SQLAlchemyError, InfuserError, OSError, ValueError) as error:
                _complain(root, name, error)
        await asyncio.sleep(_EVERY)


async def show(root: Path, run: str, shown: dict[UUID, int]) -> None:
    """Write a run's attempts into the database of this server, as far as it lacks them. Raises InfuserError.

    `shown` remembers how many stages of an attempt are there already.
    """
    db = provide_database_interface()
    own = runs.read_run(root, run).get("shown", {})
    for attempt in await asyncio.to_thread(attempts_of, root, run):
        # Some are flow runs of Prefect themselves.
        if str(attempt.number) in own or await _is_complete(db, attempt):
            continue
        there = shown.get(_whole(attempt), 0)
        async with db.session_context(begin_transaction=True, with_for_update=True) as session:
            flows = {name: await _flow(session, name) for name in ("infuser", "iteration")}
            await _put(session, db, list(_rows(root, attempt, flows, there)))
        await _show_pages(root, db, attempt, there)
        shown[_whole(attempt)] = len(attempt.entries)


def _whole(attempt: Attempt) -> UUID:
    """The flow run of an attempt."""
    return _id(attempt.run, attempt.number)


async def _flow(session: Any, name: str) -> UUID:
    create: Any = models.flows.create_flow
    found: UUID = (await create(session=session, flow=Flow(name=name))).id
    return found


def _look(root: Path, name: str) -> tuple[int, int, bool]:
    """Facts that change when the run moves."""
    path = Journal(root, name).path
    found = path.stat() if path.exists() else None
    return (found.st_mtime_ns, found.st_size, runs.is_held(root, name)) if found else (0, 0, False)


async def _is_complete(db: PrefectDBInterface, attempt: Attempt) -> bool:
    async with db.session_context() as session:
        found = await session.get(db.FlowRun, _whole(attempt))
        return (
            found is not None and found.state_id == uuid5(_whole(attempt), attempt.state) and attempt.state != "running"
        )


def _rows(root: Path, attempt: Attempt, flows: dict[str, UUID], shown: int) -> Iterator[Shown]:
    """Flow runs and task runs of an attempt that has moved: it, its iterations, and new stages, parents first."""
    stages = [entry for entry in attempt.entries if entry.phase != FINISHED]
    whole = {"flow_id": flows["infuser"], "parameters": {"name": attempt.run}, "tags": [store_tag(root)]}
    yield _shown("FlowRun", _whole(attempt), attempt.run, attempt, attempt.entries, whole)
    # The iteration that was the last one then has ended since.
    changed = [*stages[:shown][-1:], *stages[shown:]]
    for number in sorted({entry.iteration for entry in changed if _is_inside(entry)}):
        yield from _iteration(attempt, number, stages, flows["iteration"])
    for count, entry in list(enumerate(stages))[shown:]:
        own = {"flow_run_id": _parent(attempt, entry), "task_key": entry.phase, "dynamic_key": str(count)}
        name = title(entry.phase, entry.iteration)
        yield _shown("TaskRun", _id(attempt.run, attempt.number, "stage", count), name, entry, [entry], own)


def _iteration(attempt: Attempt, number: int, stages: Sequence[Entry], flow: UUID) -> Iterator[Shown]:
    """An iteration as a sub-flow: the task run that stands for it in its parent, and the flow run."""
    inside = [entry for entry in stages if _is_inside(entry) and entry.iteration == number]
    is_last = number == max(entry.iteration for entry in stages)
    part = attempt if is_last else replace(attempt, state="done", message="")
    task, label = _id(attempt.run, attempt.number, number, "task"), f"iteration-{number}"
    own = {"flow_run_id": _whole(attempt), "task_key": "iteration", "dynamic_key": label}
    yield _shown("TaskRun", task, label, part, inside, own)
    own = {"flow_id": flow, "parent_task_run_id": task, "parameters": {"run": attempt.run, "number": number}}
    yield _shown("FlowRun", _id(attempt.run, attempt.number, number), label, part, inside, own)


def _is_inside(entry: Entry) -> bool:
    """Whether the stage is one of an iteration's phases; evaluations of its checkpoint come beside or after it."""
    return entry.iteration >= 0 and entry.phase not in MEASUREMENTS


def _parent(attempt: Attempt, entry: Entry) -> UUID:
    """The flow run that a stage belongs to."""
    return _id(attempt.run, attempt.number, entry.iteration) if _is_inside(entry) else _whole(attempt)


async def _put(session: Any, db: PrefectDBInterface, rows: Sequence[Shown]) -> None:
    """Write flow runs and task runs, then their states, then who has which: the tables refer to each other."""
    placed = []
    for kind, columns, _ in rows:
        placed.append(await session.merge(getattr(db, kind)(**columns)))
        await session.flush()
    for kind, columns, state in rows:
        owner = {"flow_run_id" if kind == "FlowRun" else "task_run_id": columns["id"]}
        await session.merge(getattr(db, f"{kind}State")(**state, **owner))
    await session.flush()
    for model, (_, _, state) in zip(placed, rows, strict=True):
        model.state_id = state["id"]
    await session.flush()


async def _show_pages(root: Path, db: PrefectDBInterface, attempt: Attempt, shown: int) -> None:
    """A page for each artifact that the attempt made, and one of the run once it is complete."""
    for count, entry in list(enumerate(attempt.entries))[shown:]:
        if entry.state == "ran":
            page = await asyncio.to_thread(_page, root, attempt.run, entry)
            task = _id(attempt.run, attempt.number, "stage", count)
            inside = _parent(attempt, entry)
            await _publish(db, page.model_copy(update={"flow_run_id": inside, "task_run_id": task}))
    if attempt.state == "done" and any(entry.state == "ran" for entry in attempt.entries):
        text = await asyncio.to_thread(page_of_run, root, attempt.run)
        page = _artifact(artifact_key("run", attempt.run), text, RUN_PAGE, f"run {_whole(attempt)}")
        await _publish(db, page.model_copy(update={"flow_run_id": _whole(attempt)}))


async def _publish(db: PrefectDBInterface, page: Artifact) -> None:
    async with db.session_context(begin_transaction=True, with_for_update=True) as session:
        if await session.get(db.Artifact, page.id) is None:
            await models.artifacts.create_artifact(session=session, artifact=page)


def _page(root: Path, run: str, entry: Entry) -> Artifact:
    ref, store = ArtifactRef(kind=entry.phase, key=entry.key, digest=entry.digest), Store(root)
    try:
        record = store.manifest(ref)
        text, said = artifact_page(store, record, run=run), described(record, run)
    except InfuserError as error:  # removed by gc, or damaged: the page says so
        said = f"run {run}: cannot be shown"
        text = f"# {heading(entry.phase, entry.iteration)}\n\n`{ref.id}` cannot be shown: {error.message}"
    return _artifact(page_key(entry.phase, entry.iteration, entry.key), text, said, ref.id)


def _artifact(key: str, text: str, said: str, identity: str) -> Artifact:
    return Artifact(id=_id("page", identity), key=key, type="markdown", data=text, description=said)


def _id(*parts: object) -> UUID:
    return uuid5(_SPACE, "/".join(map(str, parts)))


def _complain(root: Path, name: str, error: Exception) -> None:
    """Nobody sees this process's output: what could not be shown stands in a file beside the database."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with (root / "prefect" / "mirror.log").open("a", encoding="utf-8") as log:
        log.write(f"{now} {name}: {type(error).__name__}: {' '.join(str(error).split())[:500]}\n")
