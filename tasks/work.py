"""Execution of a stage's work: reuse what the store has, or produce, commit, journal and show it."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import disk_usage

from infuser_core.engines.pool import facts_of, noting
from infuser_core.engines.protocols import Progress
from infuser_core.errors import InfuserError, StageError, StoreError
from infuser_core.results.trackers.parts.run_log import place_of
from infuser_core.schemas import NotFinite
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Table
from infuser_core.store.verify import size
from infuser_core.system import fault_points as faults
from tasks import display
from tasks.run import Execution
from tasks.run_control import Halted
from tasks.safe_points import Guard, guarded, release_engines

Produce = Callable[[Path, Progress], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A recipe and the function that makes its artifact."""

    recipe: Recipe
    """Everything that the artifact is a function of; known before anything runs."""
    produce: Produce
    """Makes it, into a workspace."""
    role: str = ""
    """Role whose warm trainer then is this checkpoint; empty for any other artifact."""
    needs: Callable[[], int] = int
    """Bytes that its large files will take; asked before it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """Artifact of a stage, and whether it was there before."""

    ref: ArtifactRef
    """The artifact."""
    cached: bool
    """True when nothing had to run."""


def execute(run: Execution, work: Work) -> StageResult:
    """Reuse the recipe's artifact, or produce and commit it. Failures are journalled and re-raised."""
    started, recipe = time.monotonic(), work.recipe
    found = run.store.find(recipe)
    result = StageResult(ref=found, cached=True) if found else _made(run, work, started)
    if result.cached:
        note_found(run, recipe, result.ref, seconds=time.monotonic() - started)
    elif work.role:
        # The next phase need not load it.
        run.pool.adopt(run.checkpoint(result.ref, work.role))
    run.control.salts.carry(result.ref, recipe)
    return result


def _made(run: Execution, work: Work, started: float) -> StageResult:
    """Produce and commit the artifact, unless another process has done so meanwhile."""
    recipe = work.recipe
    try:
        run.control.halt.check()
        with run.store.exclusive(recipe):
            found = run.store.find(recipe)
            if found is not None:
                return StageResult(ref=found, cached=True)
            with guarded(run, recipe.phase, record=lambda error: _record_failure(run, recipe, error, started)) as guard:
                _require_room(run, recipe, work.needs())
                with _at_work(run, recipe):
                    ref = _committed(run, recipe, work.produce, started, guard)
                if run.published:
                    display.show_page(run, ref)
    except Halted:
        # The branch that failed is in the journal.
        raise
    except Exception as error:
        _record_failure(run, recipe, error, started)
        if isinstance(error, InfuserError):
            raise
        raise _named(run, recipe, error) from error
    return StageResult(ref=ref, cached=False)


def _require_room(run: Execution, recipe: Recipe, needed: int) -> None:
    """Raises StoreError where the store's disk has not the room for what a stage writes: hours before it would."""
    free = disk_usage(run.store.root).free
    if needed > free:
        raise StoreError(
            f"{recipe.title} writes {size(needed)}, and the disk of the store at "
            f"{run.store.root} has {size(free)} free: {size(needed - free)} are missing",
            hint="`infuser gc` says what can go, and with store.keep a run removes it itself as it goes on; "
            f"then {run.resumed_by} goes on from here",
        )


def _committed(run: Execution, recipe: Recipe, produce: Produce, started: float, guard: Guard) -> ArtifactRef:
    faults.point(f"{recipe.phase}:start")
    ticker, moved = display.Ticker(run, recipe), 0

    def progress(done: int, total: int, tokens: int) -> None:
        nonlocal moved
        moved = tokens
        ticker(done, total, tokens)
        guard.point()

    with run.store.workspace(recipe) as workspace, noting() as used:
        outcome = produce(workspace, progress)
        outcome = replace(outcome, machine=facts_of(used))
        release_engines()
        faults.point(f"{recipe.phase}:before_commit")
        _own(run)
        ref = run.store.commit(recipe, workspace, outcome, seconds=time.monotonic() - started)
    rows = sum(len(table.rows) for table in outcome.tables.values())
    _journal(run, recipe, ref, "ran", time.monotonic() - started, rows)
    faults.point(f"{recipe.phase}:journalled")
    ticker.finish()
    line = run.log.ran(run.store.manifest(ref), seconds=time.monotonic() - started, tokens=moved)
    if run.published:
        display.log(line)
    return ref


@contextmanager
def _at_work(run: Execution, recipe: Recipe) -> Iterator[None]:
    """The person sees what is at work, and so does whoever finds us dead."""
    _own(run)
    doing = recipe.title
    if run.hold is not None:
        run.hold.note(doing)
    where = place_of(recipe.phase, recipe.iteration, run.console.iterations)
    run.console.start(f"{where}  {recipe.phase}".lstrip())
    try:
        yield
    finally:
        run.console.end()
        if run.hold is not None:
            run.hold.note_end(doing)


def _own(run: Execution) -> None:
    """The run must still be ours."""
    if run.hold is not None:
        run.hold.check()


def note_found(run: Execution, recipe: Recipe, ref: ArtifactRef, *, seconds: float) -> None:
    """Journal and log an artifact that was there."""
    record = run.store.manifest(ref)
    _journal(run, recipe, ref, "cached", seconds, sum(record.rows.values()))
    run.log.found(record, recipe.iteration)


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


def _named(run: Execution, recipe: Recipe, error: Exception) -> InfuserError:
    """A foreign error as an InfuserError, with its remedy."""
    hint = f"finished stages are kept: {run.resumed_by} goes on from here"
    if _disk_is_full(error):
        return StoreError(
            f"no space left in the store at {run.store.root}, in stage {recipe.phase} of run {run.name}",
            hint=f"free some space; {hint}",
        )
    return StageError(f"stage {recipe.phase} of run {run.name} failed: {type(error).__name__}: {error}", hint=hint)


def with_lost(made: Outcome, lost: list[NotFinite]) -> Outcome:
    """The same with what left the batch: a table and a remark that only batches with losses have."""
    if not lost:
        return made
    said = [str(made.summary.get("status", "ok")), f"the first left out: {lost[0]}"]
    return replace(
        made,
        tables={**made.tables, "not_finite": Table(row_type=NotFinite, rows=lost)},
        summary={**made.summary, "not_finite": len(lost), "status": "; ".join(said[said[0] == "ok" :])},
    )
