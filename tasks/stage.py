"""Decorators for stages and sub-flows: reuse, run, look up or plan a stage, and show it in Prefect.

A stage is a function that returns `Work` without doing it. If the store has the artifact, its Prefect task returns the
`Cached` state. Prefect is imported when a run is first shown in it: that takes seconds, and plans and runs without a
server do not need it.
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
    quantity,
)
from infuser_core.store.recipe import ArtifactRef, Recipe, stage_title
from tasks.interrupts import Overdue
from tasks.run import Run, current_run, override_run
from tasks.run_control import Halted, LookUp, NotStored, StageCall, Stop
from tasks.work import Work, execute, note_cached, show_cached

P = ParamSpec("P")
T = TypeVar("T")
# Errors that a retry would only repeat.
_PERMANENT = (
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
    """Result of a task or sub-flow in which a run stopped, with the cause."""

    cause: Stop | Halted


def stage(phase: str) -> Callable[[Callable[Concatenate[Run, P], Work]], Callable[Concatenate[str, P], ArtifactRef]]:
    """Decorate a function that returns a stage's `Work`: flows call it by the run's name and get the artifact.

    Raises ValueError for a phase without a row in the table of phases.
    """
    if phase not in FACTS:
        raise ValueError(f"phase {phase} has no row in infuser_core/config/phase_table.py")

    def decorate(function: Callable[Concatenate[Run, P], Work]) -> Callable[Concatenate[str, P], ArtifactRef]:
        as_task = cache(partial(_as_task, phase, function))

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> ArtifactRef:
            opened = _configured(current_run(run), phase, function, args, arguments)
            work = partial(function, opened, *args, **arguments)
            ref = opened.control.take(_call_of(opened, phase, work))
            if ref is not None:
                return ref
            if opened.published:
                # Request the state itself: otherwise Prefect would return a state in place of the task's data.
                state: Any = as_task()(run, *args, return_state=True, **arguments)
                return cast(ArtifactRef, _result_of(state.result()))
            # Without Prefect, retry once as its task would.
            try:
                return execute(opened, work()).ref
            except Exception as error:  # journalled by execute
                if isinstance(error, _PERMANENT):
                    raise
                return execute(opened, work()).ref

        return call

    return decorate


def _as_task(phase: str, function: Callable[..., Work]) -> Any:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Completed

    def run_name(parameters: dict[str, Any]) -> str:
        """Name of the task run: what the stage works on, as in the log."""
        bound = signature(function).bind(parameters["run"], *parameters["args"], **parameters["arguments"])
        values = bound.arguments
        label = values.get("label") or values.get("part") or ""
        return stage_title(f"{phase} {label}".rstrip(), values.get("iteration", -1))

    @task(
        name=function.__name__,
        # Its protocol has a class method that a function lacks.
        task_run_name=cast(Any, run_name),
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=1,
        retry_delay_seconds=1,
        retry_condition_fn=lambda task, run, state: not isinstance(state.result(raise_on_failure=False), _PERMANENT),
        log_prints=False,
    )
    def as_task(run: str, *args: Any, **arguments: Any) -> Any:
        opened = _configured(current_run(run), phase, function, args, arguments)
        try:
            result = execute(opened, function(opened, *args, **arguments))
        except Halted as halted:
            return stopped_state(halted)
        return Completed(name="Cached", data=result.ref) if result.cached else result.ref

    return as_task


def _call_of(run: Run, phase: str, work: "partial[Work]") -> StageCall:
    arguments = signature(work.func).bind(*work.args, **work.keywords).arguments

    def sketch() -> Recipe:
        inputs = {}
        for name, value in arguments.items():
            if isinstance(value, ArtifactRef):
                inputs[name] = value
            elif isinstance(value, list | tuple):
                inputs |= {f"{name}{number}": ref for number, ref in enumerate(value) if isinstance(ref, ArtifactRef)}
        return run.recipe(phase, 0, {}, inputs, iteration=arguments.get("iteration", -1))

    return StageCall(recipe=lambda: work().recipe, sketch=sketch)


def _configured(run: Run, phase: str, function: Callable[..., Work], args: Any, arguments: Any) -> Run:
    """The run with the configuration of the stage's iteration."""
    iteration = signature(function).bind(run, *args, **arguments).arguments.get("iteration", -1)
    config = run.history.for_measurement(iteration) if phase in MEASUREMENTS else run.history.at(iteration)
    return run if config is run.config else replace(run, config=config)


def read_fact(run: str, read: Callable[[Run], T], *, otherwise: T, note: str) -> T:
    """Read a fact of an artifact that decides which stages follow.

    A plan without the artifact uses `otherwise` and adds the note.
    """
    opened = current_run(run)
    try:
        return read(opened)
    except MissingArtifactError:
        if not opened.control.walks:
            raise
        opened.control.note(note)
        return otherwise


def if_stored(run_name: str, label: str, piece: Callable[[], T]) -> T | None:
    """Result of a part of the pipeline if all its artifacts are stored, shown as one Cached task; else None.

    Plans always walk the part.
    """
    run = current_run(run_name)
    if run.control.walks:
        return piece()
    look_up = LookUp(run.control, run.store)
    try:
        with override_run(replace(run, control=look_up)):
            result = piece()
    except NotStored:
        return None
    except Stop:
        _take_over(run, look_up)
        raise
    _take_over(run, look_up)
    if run.published:
        _show_cached(label, len(look_up.matches))
    return result


def _take_over(run: Run, look_up: LookUp) -> None:
    """Apply a successful look-up to the run: its position, and its matches in the journal."""
    run.control.reached = look_up.reached
    for recipe, ref in look_up.matches:
        note_cached(run, recipe, ref, seconds=0.0)
    show_cached(run, [recipe for recipe, _ in look_up.matches])


def _show_cached(label: str, artifacts: int) -> None:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Completed

    @task(name=label, task_run_name=label, cache_policy=NO_CACHE, persist_result=False)
    def cached() -> Any:
        return Completed(
            name="Cached", message=f"{label}: {quantity(artifacts, 'artifact')} in the store", data=artifacts
        )

    show: Any = cached
    show()


def subflow(name: str, run_name: str) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """Decorate a part of a run as a Prefect sub-flow; `run_name` contains parameters in braces.

    If the run stops inside, as requested or because another branch failed, the flow ends as Stopped. Stages that are
    only looked up or planned need no flow.
    """

    def decorate(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        @cache
        def as_flow() -> Any:
            from prefect import flow

            @flow(name=name, flow_run_name=run_name, validate_parameters=False)
            @wraps(function)
            def in_prefect(run: str, *args: Any, **arguments: Any) -> Any:
                try:
                    return function(run, *args, **arguments)
                except (Stop, Halted) as cause:
                    return stopped_state(cause)

            return in_prefect

        @wraps(function)
        def call(run: str, *args: P.args, **arguments: P.kwargs) -> T:
            opened = current_run(run)
            if not (opened.published and opened.control.executes) or opened.control.walks:
                return function(run, *args, **arguments)
            return cast(T, _result_of(as_flow()(run, *args, **arguments)))

        return call

    return decorate


def stopped_state(cause: Stop | Halted, data: Any = None) -> Any:
    """Prefect state of a flow or task in which the run stopped; `data` is its result, by default the cause."""
    from prefect.states import Completed

    message = f"after {cause}, as requested" if isinstance(cause, Stop) else str(cause)
    return Completed(name="Stopped", message=message, data=data or _Stopped(cause=cause))


def _result_of(result: Any) -> Any:
    """Unwrap the result of a task or sub-flow. Raises the cause if the run stopped inside."""
    if isinstance(result, _Stopped):
        raise result.cause
    return result
