"""Stages: the only implementation of cache, commit, retry, progress and display. Everything else composes stages.

A stage is a function that returns its `Work` and does none of it. One cache authority: the store. On a hit the task
returns Prefect's `Cached` state with the reference.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from infuser_core import faults
from infuser_core.engines.facts import noting
from infuser_core.engines.protocols import Progress
from infuser_core.errors import (
    BusyRunError,
    CheckpointError,
    ConfigError,
    DamagedArtifactError,
    DocumentError,
    InfuserError,
    MissingArtifactError,
    StageError,
    StoreError,
    UsageError,
)
from infuser_core.planning.fork import MEASUREMENTS
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome
from tasks import display, lineage
from tasks.guard import Guard, Overdue, guarded
from tasks.run import Run, current, seen_as
from tasks.run_control import Call, Halted, LookUp, NotStored, Stop

P = ParamSpec("P")
T = TypeVar("T")
Produce = Callable[[Path, Progress], Outcome]

# What fails the same way again is not tried again.
_FINAL = (BusyRunError, CheckpointError, ConfigError, DamagedArtifactError, DocumentError, Overdue, UsageError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a stage would make, and how."""

    recipe: Recipe
    """What it is a function of; known before anything runs."""
    produce: Produce
    """Makes it, into a workspace."""
    role: str = ""
    """Role whose warm trainer then is this checkpoint; empty for any other artifact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """Where a stage's artifact is, and whether it was there before."""

    ref: ArtifactRef
    """The artifact."""
    cached: bool
    """True when nothing had to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    """What a task or sub-flow returns that a run stopped in."""

    cause: Stop | Halted
    """Where, or why."""


def execute(run: Run, work: Work) -> StageResult:
    """Reuse the recipe's artifact, or produce and commit it. Failures are journalled and re-raised."""
    result = _found_or_made(run, work)
    run.control.salts.carry(result.ref, work.recipe)
    if work.role and not result.cached:
        # The next phase need not load it.
        run.pool.adopt(run.checkpoint(result.ref, work.role))
    return result


def _found_or_made(run: Run, work: Work) -> StageResult:
    started, recipe = time.monotonic(), work.recipe
    found = run.store.find(recipe)
    if found is not None:
        return _hit(run, recipe, found, time.monotonic() - started)
    try:
        run.control.halt.check()
        with run.store.exclusive(recipe):
            found = run.store.find(recipe)
            if found is not None:
                return _hit(run, recipe, found, time.monotonic() - started)
            with guarded(run, recipe.phase, record=lambda error: _record_failure(run, recipe, error, started)) as guard:
                ref = _produce(run, recipe, work.produce, started, guard)
    except Halted:
        # The branch that failed is in the journal.
        raise
    except Exception as error:
        _record_failure(run, recipe, error, started)
        if isinstance(error, InfuserError):
            raise
        raise _named(run, recipe, error) from error
    return StageResult(ref=ref, cached=False)


def _produce(run: Run, recipe: Recipe, produce: Produce, started: float, guard: Guard) -> ArtifactRef:
    with _at_work(run, recipe):
        ref = _committed(run, recipe, produce, started, guard)
    if run.published:
        lineage.show_page(run, ref)
    return ref


def _committed(run: Run, recipe: Recipe, produce: Produce, started: float, guard: Guard) -> ArtifactRef:
    faults.point(f"{recipe.phase}:start")
    ticker = display.Ticker(run, recipe)

    def progress(done: int, total: int, tokens: int) -> None:
        ticker(done, total, tokens)
        guard.point()

    with run.store.workspace(recipe) as workspace, noting() as used:
        outcome = produce(workspace, progress)
        outcome = replace(outcome, machine=used.facts())
        faults.point(f"{recipe.phase}:before_commit")
        _own(run)
        ref = run.store.commit(recipe, workspace, outcome, seconds=time.monotonic() - started)
    rows = sum(len(table.rows) for table in outcome.tables.values())
    _journal(run, recipe, ref, "ran", time.monotonic() - started, rows)
    faults.point(f"{recipe.phase}:journalled")
    ticker.finish()
    return ref


@contextmanager
def _at_work(run: Run, recipe: Recipe) -> Iterator[None]:
    """The person sees what is at work, and so does whoever finds us dead."""
    _own(run)
    doing = display.title(recipe.phase, recipe.iteration)
    if run.hold is not None:
        run.hold.note(doing)
    run.console.start(recipe.phase, recipe.iteration)
    try:
        yield
    finally:
        run.console.end()
        if run.hold is not None:
            run.hold.note_end(doing)


def _own(run: Run) -> None:
    """The run must still be ours."""
    if run.hold is not None:
        run.hold.check()


def _hit(run: Run, recipe: Recipe, ref: ArtifactRef, seconds: float) -> StageResult:
    _journal(run, recipe, ref, "cached", seconds, sum(run.store.manifest(ref).rows.values()))
    return StageResult(ref=ref, cached=True)


def _journal(run: Run, recipe: Recipe, ref: ArtifactRef, state: str, seconds: float, rows: int) -> None:
    run.journal.append(
        phase=recipe.phase,
        iteration=recipe.iteration,
        state=state,
        seconds=seconds,
        key=ref.key,
        digest=ref.digest,
        rows=rows,
    )


def _record_failure(run: Run, recipe: Recipe, error: Exception, started: float) -> None:
    message = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    # On a full disk there is no room for the line either; the error itself is on its way to the person.
    with suppress(StoreError):
        run.journal.append(
            phase=recipe.phase,
            iteration=recipe.iteration,
            state="failed",
            seconds=seconds,
            key=recipe.key,
            message=message,
        )


def _disk_is_full(error: BaseException | None) -> bool:
    """Writers in other languages tell it in words alone."""
    if error is None:
        return False
    told = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error)
    return told or _disk_is_full(error.__cause__)


def _named(run: Run, recipe: Recipe, error: Exception) -> InfuserError:
    """What a person should know of an error that is not ours."""
    hint = f"finished stages are kept: `infuser resume {run.name}` goes on from here"
    if _disk_is_full(error):
        return StoreError(
            f"no space left in the store at {run.store.root}, in stage {recipe.phase} of run {run.name}",
            hint=f"free some space; {hint}",
        )
    return StageError(f"stage {recipe.phase} of run {run.name} failed: {type(error).__name__}: {error}", hint=hint)


def _worth_retrying(task: Any, task_run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return not isinstance(error, _FINAL)


def stage(phase: str) -> Callable[[Callable[Concatenate[Run, P], Work]], Callable[Concatenate[str, P], ArtifactRef]]:
    """Make the stages of a phase callable from flows by the run's name: reused, run, looked up or merely planned."""

    def decorate(function: Callable[Concatenate[Run, P], Work]) -> Callable[Concatenate[str, P], ArtifactRef]:
        @task(
            name=function.__name__,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=1,
            retry_delay_seconds=1,
            retry_condition_fn=_worth_retrying,
            log_prints=False,
        )
        def as_task(run: str, *args: Any, **arguments: Any) -> Any:
            opened = _seen(current(run), phase, function, args, arguments)
            try:
                result = execute(opened, function(opened, *args, **arguments))
            except Halted as halted:
                return _ended(halted)
            return Completed(name="Cached", data=result.ref) if result.cached else result.ref

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> ArtifactRef:
            opened = _seen(current(run), phase, function, args, arguments)
            ref = opened.control.take(_call(opened, phase, partial(function, opened, *args, **arguments)))
            if ref is not None:
                return ref
            # Asking for the state: a task that returns a state of its own hands that out instead of its data.
            state: Any = as_task(run, *args, return_state=True, **arguments)
            return cast(ArtifactRef, _went_on(state.result()))

        return call

    return decorate


def _call(run: Run, phase: str, work: "partial[Work]") -> Call:
    given = signature(work.func).bind(*work.args, **work.keywords).arguments
    iteration = given.get("iteration", -1)

    def sketch() -> Recipe:
        inputs = {name: ref for name, value in given.items() for name, ref in _refs(name, value)}
        return run.recipe(phase, 0, {}, inputs, iteration=iteration)

    return Call(recipe=lambda: work().recipe, sketch=sketch)


def _refs(name: str, value: Any) -> list[tuple[str, ArtifactRef]]:
    """The artifacts in an argument of a stage."""
    if isinstance(value, ArtifactRef):
        return [(name, value)]
    if isinstance(value, list | tuple):
        return [(f"{name}{number}", item) for number, item in enumerate(value) if isinstance(item, ArtifactRef)]
    return []


def _seen(run: Run, phase: str, function: Callable[..., Work], args: Any, arguments: Any) -> Run:
    """The run with the configuration that holds for this stage."""
    iteration = signature(function).bind(run, *args, **arguments).arguments.get("iteration", -1)
    history = run.history
    return run.under(history.measuring(iteration) if phase in MEASUREMENTS else history.at(iteration))


def known(run: str, read: Callable[[Run], T], *, otherwise: T, note: str) -> T:
    """A fact of an artifact on which the pipeline's course depends; a plan that cannot know it says so in a note."""
    opened = current(run)
    try:
        return read(opened)
    except MissingArtifactError:
        if not opened.control.walks:
            raise
        opened.control.note(note)
        return otherwise


def recall(run_name: str, label: str, piece: Callable[[], T]) -> T | None:
    """The piece's result if every artifact of it is in the store, shown as one Cached task; else None.

    Where the pipeline is only walked, the piece is walked as it is.
    """
    run = current(run_name)
    if run.control.walks:
        return piece()
    look_up = LookUp(run.control, run.store)
    try:
        with seen_as(replace(run, control=look_up)):
            result = piece()
    except NotStored:
        return None
    except Stop:
        run.control.reached = look_up.reached
        _journal_found(run, look_up)
        raise
    run.control.reached = look_up.reached
    _journal_found(run, look_up)
    show: Any = _show_cached.with_options(name=label)
    show(len(look_up.found))
    return result


def _journal_found(run: Run, look_up: LookUp) -> None:
    for ref, iteration in look_up.found:
        rows = sum(run.store.manifest(ref).rows.values())
        run.journal.append(
            phase=ref.kind, iteration=iteration, state="cached", seconds=0.0, key=ref.key, digest=ref.digest, rows=rows
        )


@task(cache_policy=NO_CACHE, persist_result=False)
def _show_cached(artifacts: int) -> Any:
    return Completed(name="Cached", message=f"{artifacts} artifacts found in the store", data=artifacts)


def subflow(name: str, run_name: str) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """A part of a run as a Prefect flow of its own; `run_name` may hold names of its parameters in braces.

    A run that stops inside it, as asked or because another branch has failed, ends the flow as Stopped. In a plan or a
    look-up there is no flow at all.
    """

    def decorate(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        @flow(name=name, flow_run_name=run_name, validate_parameters=False)
        @wraps(function)
        def as_flow(run: str, *args: Any, **arguments: Any) -> Any:
            try:
                return function(run, *args, **arguments)
            except (Stop, Halted) as cause:
                return _ended(cause)

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> T:
            if not current(run).control.executes:
                return function(run, *args, **arguments)
            return cast(T, _went_on(as_flow(run, *args, **arguments)))

        return call

    return decorate


def _ended(cause: Stop | Halted) -> Any:
    data = _Stopped(cause=cause)
    return stopped(cause, data) if isinstance(cause, Stop) else Completed(name="Stopped", message=str(cause), data=data)


def _went_on(result: Any) -> Any:
    """The result of a task or sub-flow. Raises what it stopped by."""
    if isinstance(result, _Stopped):
        raise result.cause
    return result


def stopped(stop: Stop, data: Any) -> Any:
    """The state of a flow that went as far as it was asked to."""
    return Completed(name="Stopped", message=f"after {stop}, as asked", data=data)
