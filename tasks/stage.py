"""The only implementation of cache, commit, retry, progress and display. Everything else composes stages.

One cache authority: the store. On a hit the task returns Prefect's `Cached` state with the reference.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
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
    StageError,
    StoreError,
    UsageError,
)
from infuser_core.planning.place import SALT
from infuser_core.planning.survey import Survey
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome
from tasks import display, lineage
from tasks.course import Stop
from tasks.guard import Guard, Overdue, guarded
from tasks.halt import Halted
from tasks.run import Run, current, seen_as

P = ParamSpec("P")
T = TypeVar("T")
Produce = Callable[[Path, Progress], Outcome]

MEASURES = frozenset({"respond", "validate", "evaluate", "select_checkpoint", "leakage"})
"""Stages that measure checkpoints; their iteration counts what a checkpoint has seen."""
# What fails the same way again is not tried again.
_FINAL = (BusyRunError, CheckpointError, ConfigError, DamagedArtifactError, DocumentError, Overdue, UsageError)


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


class _NotStored(Exception):
    """While recalling: the artifact is not in the store."""


class _Recipe(Exception):
    """While asking: what the stage would make."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe.key)
        self.recipe = recipe


def run_stage(run: Run, recipe: Recipe, produce: Produce) -> StageResult:
    """Reuse the recipe's artifact, or produce and commit it. Failures are journalled and re-raised."""
    if run.asking:
        raise _Recipe(recipe)
    if run.recalling:
        run.course.enter(recipe)
    result = _found_or_made(run, recipe, produce)
    run.salts.carry(result.ref.id, recipe.config.get(SALT, 0))
    return result


def _found_or_made(run: Run, recipe: Recipe, produce: Produce) -> StageResult:
    started = time.monotonic()
    found = run.store.find(recipe)
    if found is not None:
        return _hit(run, recipe, found, time.monotonic() - started)
    if run.recalling:
        raise _NotStored(recipe.key)
    try:
        run.halt.check()
        with run.store.exclusive(recipe):
            found = run.store.find(recipe)
            if found is not None:
                return _hit(run, recipe, found, time.monotonic() - started)
            with guarded(run, recipe.phase, record=lambda error: _record_failure(run, recipe, error, started)) as guard:
                ref = _produce(run, recipe, produce, started, guard)
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
    if run.recalling:
        run.recalled.append((ref, recipe.iteration))
    else:
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


def stage(function: Callable[Concatenate[Run, P], StageResult]) -> Callable[Concatenate[str, P], ArtifactRef]:
    """Make a stage callable from flows by the run's name: a Prefect task, or a mere look-up while recalling."""

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
        opened = _seen(current(run), function, args, arguments)
        alone = opened.course.store if opened.surveyed else None
        try:
            result = function(opened if alone is None else replace(opened, store=alone), *args, **arguments)
        except Halted as halted:
            return _ended(halted)
        return Completed(name="Cached", data=result.ref) if result.cached else result.ref

    @wraps(function)
    def call(run: str, *args: P.args, **arguments: P.kwargs) -> ArtifactRef:
        opened = current(run)
        if opened.recalling:
            return function(_seen(opened, function, args, arguments), *args, **arguments).ref
        passed = None if opened.course.is_open else _passed(opened, function, args, arguments)
        if passed is not None:
            return passed
        # Asking for the state: a task that returns a state of its own hands that out instead of its data.
        state: Any = as_task(run, *args, return_state=True, **arguments)
        return cast(ArtifactRef, _went_on(state.result()))

    return call


def _seen(run: Run, function: Callable[..., StageResult], args: Any, arguments: Any) -> Run:
    """The run with the configuration that holds for this stage."""
    iteration = signature(function).bind(run, *args, **arguments).arguments.get("iteration", -1)
    if function.__name__ in MEASURES:
        return run.under(run.history.measuring(iteration))
    return run.under(run.history.at(iteration))


def _passed(run: Run, function: Callable[..., StageResult], args: Any, arguments: Any) -> ArtifactRef | None:
    """On a run that does not go to its end: raises Stop behind the last stage; gives what is not wanted itself."""
    seen = _seen(run, function, args, arguments)
    try:
        function(replace(seen, asking=True), *args, **arguments)
    except _Recipe as asked:
        recipe = asked.recipe
    run.course.enter(recipe)
    if not isinstance(run.store, Survey):
        return None
    if run.course.wants(recipe):
        run.course.check_inputs(recipe, run.store, run.name)
        return None
    ref = run.store.find(recipe)
    run.salts.carry(ref.id, recipe.config.get(SALT, 0))
    return ref


def recall(run_name: str, label: str, piece: Callable[[], T]) -> T | None:
    """The piece's result if every artifact of it is in the store, shown as one Cached task; else None.

    Where the pipeline is only surveyed, the piece is walked as it is.
    """
    run = current(run_name)
    if run.surveyed:
        return piece()
    reached = run.course.reached
    run = replace(run, recalling=True, recalled=[])
    try:
        with seen_as(run):
            result = piece()
    except _NotStored:
        run.course.go_back(reached)
        return None
    except Stop:
        _journal_recalled(run)
        raise
    _journal_recalled(run)
    show: Any = _show_cached.with_options(name=label)
    show(len(run.recalled))
    return result


def _journal_recalled(run: Run) -> None:
    for ref, iteration in run.recalled:
        rows = sum(run.store.manifest(ref).rows.values())
        run.journal.append(
            phase=ref.kind, iteration=iteration, state="cached", seconds=0.0, key=ref.key, digest=ref.digest, rows=rows
        )


@task(cache_policy=NO_CACHE, persist_result=False)
def _show_cached(artifacts: int) -> Any:
    return Completed(name="Cached", message=f"{artifacts} artifacts found in the store", data=artifacts)


def subflow(name: str, run_name: str) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """A part of a run as a Prefect flow of its own; `run_name` may hold names of its parameters in braces.

    A run that stops inside it, as asked or because another branch has failed, ends the flow as Stopped. On a survey
    there is no flow at all.
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
            if current(run).recalling:
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
