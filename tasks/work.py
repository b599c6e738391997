"""Execute a stage: reuse its stored artifact, or produce, commit, journal and show a new one."""

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import disk_usage

from infuser_core.config.phase_table import Phase
from infuser_core.engines.pool import facts_of, record_engines
from infuser_core.engines.step_costs import record_costs
from infuser_core.errors import InfuserError, StageError, StoreError, quantity
from infuser_core.protocols import Progress
from infuser_core.results.lineage.markdown import page_key
from infuser_core.results.trackers.parts.run_log import place_of
from infuser_core.schemas import NotFinite, StepCost
from infuser_core.settings import phase_seconds
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Table
from infuser_core.store.verify import format_size
from infuser_core.system import fault_points as faults
from tasks import display
from tasks.interrupts import StageInterrupts, release_engines
from tasks.run import Execution
from tasks.run_control import Halted

Produce = Callable[[Path, Progress], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a stage: a recipe, and the function that produces its artifact."""

    recipe: Recipe
    """Everything that the artifact depends on, complete before anything runs."""
    produce: Produce
    """Writes the artifact's files into a workspace and returns the outcome."""
    role: str = ""
    """Role whose trainer holds this new checkpoint afterwards; empty for other artifacts."""
    needs: Callable[[], int] = int
    """Bytes of the artifact's large files, compared with the free space before the stage runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """Artifact of a stage, and whether it was reused."""

    ref: ArtifactRef
    cached: bool


def execute(run: Execution, work: Work) -> StageResult:
    """Execute a stage: reuse its artifact, or produce and commit it. Failures are journalled and re-raised."""
    started, recipe = time.monotonic(), work.recipe
    ref = run.store.find(recipe)
    result = StageResult(ref=ref, cached=True) if ref else _produce(run, work, started)
    if result.cached:
        note_cached(run, recipe, result.ref, seconds=time.monotonic() - started)
        show_cached(run, [recipe])
    elif work.role:
        # Spares the next phase from loading the checkpoint.
        run.pool.adopt(run.checkpoint(result.ref, work.role))
    run.control.salts.carry(result.ref, recipe)
    return result


def _produce(run: Execution, work: Work, started: float) -> StageResult:
    """Produce and commit the artifact, unless another process commits it first."""
    recipe = work.recipe

    def record(error: Exception) -> None:
        _record_failure(run, recipe, error, started)

    try:
        run.control.halt.check()
        with run.store.exclusive(recipe):
            ref = run.store.find(recipe)
            if ref is not None:
                return StageResult(ref=ref, cached=True)
            with StageInterrupts(run, recipe.phase, record=record, limit=phase_seconds(recipe.phase)) as interrupts:
                needed, free = work.needs(), disk_usage(run.store.root).free
                if needed > free:
                    raise StoreError(
                        f"{recipe.title} writes {format_size(needed)}, and the disk of the store at "
                        f"{run.store.root} has {format_size(free)} free: {format_size(needed - free)} are missing",
                        hint="`infuser gc` lists what can be removed, and with store.keep a run removes it itself; "
                        f"then {run.resumed_by} continues from here",
                    )
                with _running(run, recipe):
                    ref = _commit(run, recipe, work.produce, started, interrupts)
                if run.published:
                    display.show_page(run, ref)
                    if recipe.phase == Phase.VALIDATE:
                        display.show_run(run)
    except Halted:
        # Nothing to record: the journal has the failure of the other branch.
        raise
    except Exception as error:
        record(error)
        if isinstance(error, InfuserError):
            raise
        hint = f"finished stages are kept: {run.resumed_by} continues from here"
        if _is_disk_full(error):
            raise StoreError(
                f"no space left in the store at {run.store.root}, in stage {recipe.phase} of run {run.name}",
                hint=f"free some space; {hint}",
            ) from error
        message = f"stage {recipe.phase} of run {run.name} failed: {type(error).__name__}: {error}"
        raise StageError(message, hint=hint) from error
    return StageResult(ref=ref, cached=False)


def _commit(
    run: Execution, recipe: Recipe, produce: Produce, started: float, interrupts: StageInterrupts
) -> ArtifactRef:
    faults.point(f"{recipe.phase}:start")
    ticker, processed = display.Ticker(run, recipe), 0

    def progress(current: int, total: int, tokens: int) -> None:
        nonlocal processed
        processed = tokens
        ticker(current, total, tokens)
        interrupts.point()

    with run.store.workspace(recipe) as workspace, record_engines() as used, record_costs() as costs:
        outcome = produce(workspace, progress)
        outcome = replace(outcome, machine=facts_of(used))
        if costs:
            table = Table(row_type=StepCost, rows=costs, volatile=True)
            outcome = replace(outcome, tables={**outcome.tables, "step_costs": table})
        release_engines()
        faults.point(f"{recipe.phase}:before_commit")
        _check_ownership(run)
        ref = run.store.commit(recipe, workspace, outcome, seconds=time.monotonic() - started)
    rows = sum(len(table.rows) for table in outcome.tables.values())
    _journal(run, recipe, ref, "ran", time.monotonic() - started, rows)
    faults.point(f"{recipe.phase}:journalled")
    ticker.finish()
    record = run.store.manifest(ref)
    line = run.log.ran(record, seconds=time.monotonic() - started, tokens=processed)
    if run.published:
        page = display.page_address(page_key(record.phase, record.iteration, record.key))
        display.log(f"{line}  {page}".rstrip())
    return ref


@contextmanager
def _running(run: Execution, recipe: Recipe) -> Iterator[None]:
    """Show the running stage in the terminal and record it in the run's lease, so that a crash can be diagnosed."""
    _check_ownership(run)
    if run.hold is not None:
        run.hold.begin_stage(recipe.title)
    where = place_of(recipe.phase, recipe.iteration, run.console.iterations)
    run.console.start(f"{where}  {recipe.phase}".lstrip())
    try:
        yield
    finally:
        run.console.end()
        if run.hold is not None:
            run.hold.end_stage(recipe.title)


def _check_ownership(run: Execution) -> None:
    """Raise an error if another process has taken over the run."""
    if run.hold is not None:
        run.hold.check()


def note_cached(run: Execution, recipe: Recipe, ref: ArtifactRef, *, seconds: float) -> None:
    """Journal and log a reused artifact."""
    record = run.store.manifest(ref)
    _journal(run, recipe, ref, "cached", seconds, sum(record.rows.values()))
    run.log.add_cached(record, recipe.iteration)


def show_cached(run: Execution, recipes: Sequence[Recipe]) -> None:
    """Name reused artifacts in Prefect's log, a line per stage."""
    if run.published:
        for title, count in Counter(recipe.title for recipe in recipes).items():
            display.log(f"{title}: {quantity(count, 'artifact')} in the store")


def _journal(run: Execution, recipe: Recipe, ref: ArtifactRef, state: str, seconds: float, rows: int) -> None:
    run.journal.append(
        phase=recipe.phase,
        iteration=recipe.iteration,
        state=state,
        seconds=seconds,
        key=ref.key,
        digest=ref.digest,
        rows=rows,
    )


def _record_failure(run: Execution, recipe: Recipe, error: Exception, started: float) -> None:
    message = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    run.log.failed(recipe.title, seconds, error)
    # A full disk may have no room for the line; the error itself is reported in any case.
    with suppress(StoreError):
        run.journal.append(
            phase=recipe.phase,
            iteration=recipe.iteration,
            state="failed",
            seconds=seconds,
            key=recipe.key,
            message=message,
        )


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether the error or one of its causes means a full disk; native libraries report that only in the message."""
    if error is None:
        return False
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error)
    return full or _is_disk_full(error.__cause__)


def add_not_finite(outcome: Outcome, dropped: list[NotFinite]) -> Outcome:
    """Add a table and a remark about dropped sequences to an outcome; unchanged if none were dropped."""
    if not dropped:
        return outcome
    status = str(outcome.summary.get("status", "ok"))
    remark = f"the first left out: {dropped[0]}"
    return replace(
        outcome,
        tables={**outcome.tables, "not_finite": Table(row_type=NotFinite, rows=dropped)},
        summary={
            **outcome.summary,
            "not_finite": len(dropped),
            "status": remark if status == "ok" else f"{status}; {remark}",
        },
    )
