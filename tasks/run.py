"""The run that this process executes: configuration, store, journal and warm engines, found by the run's name.

Prefect passes names and references; everything heavy stays here.
"""

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.config.overlays import validate
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.engines.configured import run_pool, run_workers
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.worker_pool import WorkerPool
from infuser_core.planning import place
from infuser_core.planning.place import SALT, RunPlaces, Salts
from infuser_core.results.trackers.parts.run_log import RunLog
from infuser_core.schemas import Checkpoint
from infuser_core.store import runs
from infuser_core.store.history import History, load_history
from infuser_core.store.journal import Journal
from infuser_core.store.lease import AND, Hold, describe_left
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store
from infuser_core.terminal import Console
from tasks.run_control import Control, Only, Planning

_WHOLE = RunPlaces()


@dataclass(slots=True, kw_only=True)
class Execution:
    """Store, journal and engines that stages are executed with, of a run or of an evaluation."""

    name: str
    """Name of the run or evaluation."""
    store: Store
    """Artifacts."""
    journal: Journal
    """Record of the stages."""
    pool: EnginePool
    """Warm engines."""
    console: Console
    """Lines in the terminal."""
    log: RunLog = field(default_factory=RunLog)
    """Says what the stages did, in the terminal and in the run's folder."""
    hold: Hold | None = None
    """Our ownership of the run."""
    published: bool = False
    """Whether stages show themselves in Prefect."""
    control: Control = field(default_factory=Control)
    """How far the run goes."""
    started: float = field(default_factory=time.monotonic)
    """Start of this attempt on the monotonic clock, seconds."""

    @property
    def resumed_by(self) -> str:
        """The command that resumes this, for hints."""
        return "the same command"

    def checkpoint(self, ref: ArtifactRef, role: str) -> Checkpoint:
        """The checkpoint in an artifact, every file verified."""
        step = int(self.store.manifest(ref).summary["step"])
        folder = self.store.verified_folder(ref)
        return Checkpoint(checkpoint_id=ref.id, role=role, path=str(folder), step=step)

    def recipe(
        self,
        phase: str,
        version: int,
        settings: Any,
        inputs: Mapping[str, ArtifactRef | None],
        *,
        iteration: int = -1,
        seed: int = 0,
    ) -> Recipe:
        """The recipe of a stage: the phase's own settings and its inputs by id, nothing else.

        `seed` where the phase draws random numbers. Work that is done again although the store has it carries its salt
        among the settings.
        """
        sources = {name: ref.id for name, ref in inputs.items() if ref is not None}
        salt = self.control.salts.of(phase, iteration, sources)
        return Recipe(
            phase=phase,
            version=version,
            config={**recorded(settings), SALT: salt} if salt else recorded(settings),
            seed=seed,
            iteration=iteration,
            inputs=sources,
        )


@dataclass(slots=True, kw_only=True)
class Run(Execution):
    """State that the stages of one run share."""

    config: RunConfig
    """Resolved configuration; inside a stage, what holds for it."""
    workers: WorkerPool
    """Workers of stages that need no engine."""
    history: History
    """The configuration over the iterations: a fork has its origin's before it left."""
    listed: bool = True
    """Whether commands know it as a run."""

    @property
    def resumed_by(self) -> str:
        """The command that resumes this, for hints."""
        return f"`infuser resume {self.name}`" if self.listed else "the same command"

    @property
    def overlaps(self) -> bool:
        """Whether independent stages run beside each other. A run to a place keeps their order."""
        return self.config.engine.overlap and self.control.is_open

    @property
    def writes_beside(self) -> bool:
        """Whether a checkpoint is committed beside the next stage. A run to a place keeps their order."""
        return self.config.engine.write_beside and self.control.is_open


_open: dict[str, Run] = {}


_view: ContextVar[Run | None] = ContextVar("view", default=None)


def current(name: str) -> Run:
    """The open run of that name, or what this thread sees of it."""
    view = _view.get()
    if view is not None and view.name == name:
        return view
    assert name in _open, f"run {name} is not open in this process"
    return _open[name]


def unpublish(run: Execution) -> None:
    """From here on the run shows nothing in Prefect, whose server is gone: the next one shows this attempt anew."""
    run.published = False
    opened = _open.get(run.name)
    if opened is not None and opened.published:
        opened.published = False
        _note_flow_run(opened.store.root, run.name, opened.journal.attempt, "")


def _note_flow_run(root: Path, name: str, attempt: int, flow_run: str) -> None:
    """Record which flow run of Prefect shows an attempt."""
    shown = {**runs.read_run(root, name).get("shown", {}), str(attempt): flow_run}
    runs.change_run(root, name, shown={number: found for number, found in shown.items() if found})


@contextmanager
def seen_as(run: Run) -> Iterator[None]:
    """In this thread the run of that name is this one; branches beside it go on with the open one."""
    token = _view.set(run)
    try:
        yield
    finally:
        _view.reset(token)


@contextmanager
def opened(
    name: str,
    config: RunConfig,
    *,
    journal: str = "journal.jsonl",
    flow_run: str = "",
    listed: bool = True,
    asked: RunPlaces = _WHOLE,
    workers: int | None = None,
) -> Iterator[Run]:
    """Own the run, start an attempt, and release engines at the end.

    Stages show themselves in Prefect where this happens in one of its flow runs. Studies of a run keep a journal of
    their own. A corpus build is no run that commands list: its journal alone holds what it made. What is `asked` for
    again is recorded before anything runs: a killed run goes on with it. `workers` is the number of processes on
    this machine where there is no cluster, by default one per core.
    """
    root = settings.writable_store_root()
    settings.phase_seconds("")
    settings.track_seconds()
    current = config.model_dump(mode="json")
    if listed:
        # Results depend on the recorded settings; a resumed run may change the others.
        runs.create_run(root, name, current, identity=lambda known: recorded(validate(known), naming=True))
    with runs.holding(root, name) as hold, without_heartbeats() if flow_run else nullcontext():
        record = Journal(root, name, file=journal)
        record.start_attempt()
        if flow_run:
            _note_flow_run(root, name, record.attempt, flow_run)
        if listed and validate(runs.read_config(root, name)).model_dump(mode="json") != current:
            runs.change_run(root, name, config=current)
        store, console = Store(root), Console.here(plain=listed)
        log = RunLog(console, record.path.parent, attempt=record.attempt, track=config.track if listed else ())
        _say_what_was_left(hold, record, name, log)
        run = Run(
            name=name,
            config=config,
            history=load_history(root, name, config),
            control=_control(root, name, store, asked),
            store=store,
            journal=record,
            hold=hold,
            published=bool(flow_run),
            listed=listed,
            pool=run_pool(config),
            workers=run_workers(config, workers),
            console=console,
            log=log,
        )
        store.sweep()
        with log.attempt(name, f"Prefect {os.environ.get('PREFECT_API_URL', '')}" if flow_run else "no Prefect"):
            with _entered(run):
                yield run


def _control(root: Path, name: str, store: Store, asked: RunPlaces) -> Control:
    salts = _salts(root, name, asked)
    if asked.only is not None:
        return Only(store, digests=digests_of(root, name), last=asked.only, salts=salts)
    return Control(last=asked.until, salts=salts)


def _salts(root: Path, name: str, asked: RunPlaces) -> Salts:
    if asked.again is None:
        return Salts(place.load_repeats(root, name))
    # One attempt that Prefect retries asks only once.
    flow_run = _flow_run()
    repeats = place.add_repeat(root, name, asked.again, asked_by=str(flow_run.id) if flow_run else "")
    place.record_repeats(root, name, repeats)
    return Salts(repeats)


def _flow_run() -> Any:
    """Prefect's flow run that this is in, if any: none where Prefect, which is slow to import, is absent."""
    if "prefect" not in sys.modules:
        return None
    from prefect.context import FlowRunContext

    return getattr(FlowRunContext.get(), "flow_run", None)


@contextmanager
def _entered(run: Run) -> Iterator[None]:
    _open[run.name] = run
    try:
        yield
    finally:
        run.console.clear()
        run.workers.close()
        run.pool.close()
        del _open[run.name]


@contextmanager
def looked_at(name: str, history: History, control: Planning, root: Path) -> Iterator[Run]:
    """The run for a walk along the pipeline that computes and records nothing. It need not exist."""
    run = Run(
        name=name,
        config=history.latest,
        history=history,
        control=control,
        store=Store(root),
        journal=Journal(root, name),
        pool=run_pool(history.latest),
        workers=run_workers(history.latest),
        console=Console(enabled=False),
    )
    with _entered(run):
        yield run


def digests_of(root: Path, name: str) -> dict[str, str]:
    """Digest of every artifact that the run has had, by its key."""
    return {entry.key: entry.digest for entry in Journal(root, name).entries() if entry.digest}


@contextmanager
def evaluating(name: str, *, pool: EnginePool) -> Iterator[Execution]:
    """Own an evaluation's record and start an attempt.

    Raises BusyRunError while another process works on the same evaluation.
    """
    root = settings.writable_store_root()
    settings.phase_seconds("")
    with runs.holding(root, name, shelf=runs.EVALUATIONS) as hold:
        journal = Journal(root, name, shelf=runs.EVALUATIONS)
        journal.start_attempt()
        console = Console.here()
        log = RunLog(console, journal.path.parent, attempt=journal.attempt)
        execution = Execution(
            name=name,
            store=Store(root),
            journal=journal,
            pool=pool,
            console=console,
            log=log,
            hold=hold,
        )
        try:
            with log.attempt(name):
                yield execution
        finally:
            console.clear()
            pool.close()


def _say_what_was_left(hold: Hold, record: Journal, name: str, log: RunLog) -> None:
    """A holder that was killed could not say so itself: its successor does, to the person and in the journal."""
    left = hold.left
    if left is None:
        return
    said = describe_left(left, name)
    sys.stderr.write(f"infuser: {said}\n")
    log.note(said)
    for doing in filter(None, left.doing.split(AND)):
        phase, _, iteration = doing.partition(", iteration ")
        attempt = max(1, record.attempt - 1)
        record.append(
            phase=phase,
            iteration=int(iteration or -1),
            state="killed",
            seconds=0.0,
            message=said,
            attempt=attempt,
        )


def served() -> bool:
    """Whether a deployment's runner started this flow run."""
    flow_run = _flow_run()
    return flow_run is not None and flow_run.deployment_id is not None


@contextmanager
def without_heartbeats() -> Iterator[None]:
    """No heartbeats of the flows inside: joining their thread costs up to a second each.

    Only a deployment's flow run needs them, the outermost; others are found dead by their lock.
    """
    from prefect.context import SettingsContext, get_settings_context

    context = get_settings_context()
    flows = context.settings.flows.model_copy(update={"heartbeat_frequency": None})
    changed = context.settings.model_copy(update={"flows": flows})
    with SettingsContext(profile=context.profile, settings=changed):
        yield


def peak_memory_mb() -> float:
    """Largest resident set of this process or one of its children so far, MB."""
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    # Linux counts in KiB, macOS in bytes.
    return max(peaks) / (1024 if sys.platform != "darwin" else 1024 * 1024)
