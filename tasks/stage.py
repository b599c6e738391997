"""Stages and sub-flows in Prefect: reused, run, looked up or merely planned, as the run's control decides.

A stage is a function that returns its `Work` and does none of it. On a hit in the store the task returns Prefect's
`Cached` state with the reference. Prefect is imported when a run first shows itself there: that takes seconds, and
plans, and runs without a server, go without it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from infuser_core.config.phase_table import FACTS, MEASUREMENTS
from infuser_core.errors import (
    BusyRunError,
    CheckpointError,
    ConfigError,
    DamagedArtifactError,
    DocumentError,
    MissingArtifactError,
    PrunedError,
    Terminated,
    UsageError,
)
from infuser_core.store.recipe import ArtifactRef, Recipe
from tasks.run import Run, current, seen_as
from tasks.run_control import Call, Halted, LookUp, NotStored, Stop
from tasks.safe_points import Overdue
from tasks.work import Work, execute, note_found

P = ParamSpec("P")
T = TypeVar("T")
# What fails the same way again is not tried again.
_FINAL = (
    BusyRunError,
    CheckpointError,
    ConfigError,
    DamagedArtifactError,
    DocumentError,
    Halted,
    Overdue,
    PrunedError,
    Terminated,
    UsageError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    """Result of a task or sub-flow in which a run stopped."""

    cause: Stop | Halted
    """Where, or why."""


def _worth_retrying(task: Any, task_run: Any, state: Any) -> bool:
    return not isinstance(state.result(raise_on_failure=False), _FINAL)


def stage(phase: str) -> Callable[[Callable[Concatenate[Run, P], Work]], Callable[Concatenate[str, P], ArtifactRef]]:
    """Make the stages of a phase callable from flows by the run's name: reused, run, looked up or merely planned.

    Raises ValueError for a phase without a row in the table of phases.
    """
    if phase not in FACTS:
        raise ValueError(f"phase {phase} has no row in infuser_core/config/phase_table.py")

    def decorate(function: Callable[Concatenate[Run, P], Work]) -> Callable[Concatenate[str, P], ArtifactRef]:
        as_task = cache(partial(_as_task, phase, function))

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> ArtifactRef:
            opened = _seen(current(run), phase, function, args, arguments)
            work = partial(function, opened, *args, **arguments)
            ref = opened.control.take(_call(opened, phase, work))
            if ref is not None:
                return ref
            if not opened.published:
                return _tried(opened, work)
            # Asking for the state: a task that returns a state of its own hands that out instead of its data.
            state: Any = as_task()(run, *args, return_state=True, **arguments)
            return cast(ArtifactRef, _went_on(state.result()))

        return call

    return decorate


def _as_task(phase: str, function: Callable[..., Work]) -> Any:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Completed

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

    return as_task


def _tried(run: Run, work: "partial[Work]") -> ArtifactRef:
    """A stage that Prefect does not see, tried once more like one that it does."""
    try:
        return execute(run, work()).ref
    except Exception as error:  # journalled by execute
        if isinstance(error, _FINAL):
            raise
        return execute(run, work()).ref


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
    config = run.history.measuring(iteration) if phase in MEASUREMENTS else run.history.at(iteration)
    return run if config is run.config else replace(run, config=config)


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


def if_stored(run_name: str, label: str, piece: Callable[[], T]) -> T | None:
    """The piece's result if the store has every artifact of it, shown as one Cached task; else None. Plans walk it."""
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
        _take_over(run, look_up)
        raise
    _take_over(run, look_up)
    if run.published:
        _show_cached(label, len(look_up.found))
    return result


def _take_over(run: Run, look_up: LookUp) -> None:
    """The run stands where the look-up came to, and journals what that found."""
    run.control.reached = look_up.reached
    for recipe, ref in look_up.found:
        note_found(run, recipe, ref, seconds=0.0)


def _show_cached(label: str, artifacts: int) -> None:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Completed

    @task(name=label, cache_policy=NO_CACHE, persist_result=False)
    def cached() -> Any:
        return Completed(name="Cached", message=f"{artifacts} artifacts found in the store", data=artifacts)

    show: Any = cached
    show()


def subflow(
    name: str, run_name: str = ""
) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """A part of a run as a Prefect flow of its own; `run_name` may hold names of its parameters in braces.

    A run that stops inside it, as asked or because another branch has failed, ends the flow as Stopped. Where stages
    are only looked up or walked past there is no flow at all.
    """

    def decorate(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        @cache
        def as_flow() -> Any:
            from prefect import flow

            @flow(name=name, flow_run_name=run_name or name, validate_parameters=False)
            @wraps(function)
            def seen(run: str, *args: Any, **arguments: Any) -> Any:
                try:
                    return function(run, *args, **arguments)
                except (Stop, Halted) as cause:
                    return _ended(cause)

            return seen

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> T:
            opened = current(run)
            if not (opened.published and opened.control.executes) or opened.control.walks:
                return function(run, *args, **arguments)
            return cast(T, _went_on(as_flow()(run, *args, **arguments)))

        return call

    return decorate


def _ended(cause: Stop | Halted) -> Any:
    from prefect.states import Completed

    data = _Stopped(cause=cause)
    return stopped(cause, data) if isinstance(cause, Stop) else Completed(name="Stopped", message=str(cause), data=data)


def _went_on(result: Any) -> Any:
    """The result of a task or sub-flow. Raises what it stopped by."""
    if isinstance(result, _Stopped):
        raise result.cause
    return result


def stopped(stop: Stop, data: Any) -> Any:
    """The state of a flow that went as far as it was asked to."""
    from prefect.states import Completed

    return Completed(name="Stopped", message=f"after {stop}, as asked", data=data)
