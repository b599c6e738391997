"""Open runs of this process: configuration, store, journal and engines, found by the run's name.

Prefect tasks get only names and references; heavy objects are held here.
"""

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from infuser_core.engines.traces import TraceWriter, traced
from infuser_core.errors import UsageError
from infuser_core.evaluation.benchmarks.parts.loader import longest_sequence
from infuser_core.memory.hardware import peak_resident
from infuser_core.planning import place
from infuser_core.planning.place import SALT, RunPlaces, Salts
from infuser_core.results.trackers.parts.run_log import RunLog
from infuser_core.schemas import Checkpoint
from infuser_core.store import runs
from infuser_core.store.history import History, load_history
from infuser_core.store.journal import Journal
from infuser_core.store.lease import AND, Hold, describe_death
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store
from infuser_core.system.worker_pool import WorkerPool
from infuser_core.terminal import Console
from tasks.run_control import Only, Planning, RunControl

_WHOLE = RunPlaces()


@dataclass(slots=True, kw_only=True)
class Execution:
    """State of a run or evaluation while its stages are executed: store, journal, engines, control."""

    name: str
    store: Store
    journal: Journal
    pool: EnginePool
    console: Console
    log: RunLog = field(default_factory=RunLog)
    """Reports stages in the terminal and in the run's folder."""
    hold: Hold | None = None
    published: bool = False
    """Whether stages are shown in Prefect."""
    control: RunControl = field(default_factory=RunControl)
    started: float = field(default_factory=time.monotonic)
    """Start of this attempt on the monotonic clock, seconds."""

    @property
    def resumed_by(self) -> str:
        """Command that continues this work, for hints in messages."""
        return "the same command"

    def checkpoint(self, ref: ArtifactRef, role: str) -> Checkpoint:
        """Load the checkpoint of an artifact, with every file verified."""
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
        """Make the recipe of a stage from the phase's own settings and the ids of its inputs, nothing else.

        `seed` is for phases that draw random numbers. The settings of a stage that is recomputed on request
        include a salt, which changes the key.
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
    """State of an open run that its stages share."""

    config: RunConfig
    """Resolved configuration; inside a stage, the one of its iteration."""
    workers: WorkerPool
    """Worker processes of stages that need no engine."""
    history: History
    """Configurations by iteration: a fork has its origin's before its start."""
    listed: bool = True
    """Whether commands list this as a run."""

    @property
    def resumed_by(self) -> str:
        """Command that continues this work, for hints in messages."""
        return f"`infuser resume {self.name}`" if self.listed else "the same command"

    @property
    def overlaps(self) -> bool:
        """Whether independent stages run in parallel; not in a run up to a place, which is sequential."""
        return self.config.engine.overlap and self.control.is_open

    @property
    def overlaps_commits(self) -> bool:
        """Whether a checkpoint is committed while the next stage runs; not in a run up to a place."""
        return self.config.engine.write_beside and self.control.is_open


_open: dict[str, Run] = {}
_override: ContextVar[Run | None] = ContextVar("override", default=None)


def current_run(name: str) -> Run:
    """The open run of this name, or the run that overrides it in this thread."""
    override = _override.get()
    if override is not None and override.name == name:
        return override
    assert name in _open, f"run {name} is not open in this process"
    return _open[name]


def unpublish(run: Execution) -> None:
    """Stop showing the run in Prefect after its server was lost; the next server shows the whole attempt."""
    run.published = False
    opened = _open.get(run.name)
    if opened is not None and opened.published:
        opened.published = False
        _note_flow_run(opened.store.root, run.name, opened.journal.attempt, "")


def _note_flow_run(root: Path, name: str, attempt: int, flow_run: str) -> None:
    """Record in the run which Prefect flow run shows an attempt."""
    flow_runs = {**runs.read_run(root, name).get("shown", {}), str(attempt): flow_run}
    runs.change_run(root, name, shown={number: flow_run for number, flow_run in flow_runs.items() if flow_run})


@contextmanager
def override_run(run: Run) -> Iterator[None]:
    """Let `run` replace the open run of its name in this thread; parallel branches still see the open one."""
    token = _override.set(run)
    try:
        yield
    finally:
        _override.reset(token)


@contextmanager
def open_run(
    name: str,
    config: RunConfig,
    *,
    journal: str = "journal.jsonl",
    flow_run: str = "",
    listed: bool = True,
    request: RunPlaces = _WHOLE,
    workers: int | None = None,
) -> Iterator[Run]:
    """Open a run: take ownership of it, start an attempt, and release its engines at the end.

    `flow_run` is the Prefect flow run that shows the stages, if any. Studies use a separate `journal`.
    Runs with `listed=False`, e.g. corpus builds, are hidden from commands. A `request` to recompute is recorded before
    anything runs, so that a killed run continues with it. `workers` is the number of processes on this machine if
    there is no cluster, by default one per core.
    """
    root = settings.writable_store_root()
    settings.phase_seconds("")
    settings.track_seconds()
    settings_now = config.model_dump(mode="json")
    if listed:
        # Settings that results depend on must equal the recorded ones; a resumed run may change the others.
        runs.create_run(root, name, settings_now, identity=lambda values: recorded(validate(values), naming=True))
    with runs.hold_run(root, name) as hold, without_heartbeats() if flow_run else nullcontext():
        record = Journal(root, name, file=journal)
        record.start_attempt()
        if flow_run:
            _note_flow_run(root, name, record.attempt, flow_run)
        if listed and validate(runs.read_config(root, name)).model_dump(mode="json") != settings_now:
            runs.change_run(root, name, config=settings_now)
        store, console = Store(root), Console.here(plain=listed)
        log = RunLog(console, record.path.parent, attempt=record.attempt, track=config.track if listed else ())
        _report_killed_holder(hold, record, name, log)
        run = Run(
            name=name,
            config=config,
            history=load_history(root, name, config),
            control=_control_of(root, name, store, request),
            store=store,
            journal=record,
            hold=hold,
            published=bool(flow_run),
            listed=listed,
            pool=run_pool(config, longest_sequence=longest_sequence(config)),
            workers=run_workers(config, workers),
            console=console,
            log=log,
        )
        store.sweep()
        with log.attempt(name, f"Prefect {os.environ.get('PREFECT_API_URL', '')}" if flow_run else "no Prefect"):
            with _registered(run):
                yield run


def _control_of(root: Path, name: str, store: Store, request: RunPlaces) -> RunControl:
    if request.again is None:
        repeats = place.load_repeats(root, name)
    else:
        # An attempt that Prefect retries makes only one request.
        flow_run = _flow_run()
        repeats = place.add_repeat(root, name, request.again, asked_by=str(flow_run.id) if flow_run else "")
        place.record_repeats(root, name, repeats)
    if request.only is not None:
        return Only(store, digests=digests_of(root, name), last=request.only, salts=Salts(repeats))
    return RunControl(last=request.until, salts=Salts(repeats))


def _flow_run() -> Any:
    """Prefect's current flow run, or None. Prefect is slow to import and is not imported for this."""
    if "prefect" not in sys.modules:
        return None
    from prefect.context import FlowRunContext

    return getattr(FlowRunContext.get(), "flow_run", None)


@contextmanager
def _registered(run: Run) -> Iterator[None]:
    _open[run.name] = run
    try:
        yield
    finally:
        run.console.clear()
        run.workers.close()
        run.pool.close()
        del _open[run.name]


@contextmanager
def walk_run(name: str, history: History, control: Planning, root: Path) -> Iterator[Run]:
    """Open a run to walk the pipeline without computing or recording anything. The run need not exist."""
    run = Run(
        name=name,
        config=history.latest,
        history=history,
        control=control,
        store=Store(root),
        journal=Journal(root, name),
        pool=run_pool(history.latest, longest_sequence=longest_sequence(history.latest)),
        workers=run_workers(history.latest),
        console=Console(enabled=False),
    )
    with _registered(run):
        yield run


def digests_of(root: Path, name: str) -> dict[str, str]:
    """Digests of all artifacts that a run ever had, by key."""
    return {entry.key: entry.digest for entry in Journal(root, name).entries() if entry.digest}


@contextmanager
def open_evaluation(name: str, *, pool: EnginePool) -> Iterator[Execution]:
    """Open an evaluation: take ownership of its record, start an attempt, and release the engines at the end.

    Raises BusyRunError while another process works on the same evaluation.
    """
    root = settings.writable_store_root()
    settings.phase_seconds("")
    with runs.hold_run(root, name, shelf=runs.EVALUATIONS) as hold:
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


def trace_run(config: RunConfig, name: str, root: Path, number: int) -> AbstractContextManager[TraceWriter]:
    """Within the block, trace `number` optimizer steps and scoring micro-batches of this process into the run's folder.

    Raises UsageError if the trainer computes in other processes.
    """
    if config.engine.trainer == "deepspeed":
        raise UsageError(
            "--profile traces this process, and engine.trainer deepspeed computes in others",
            hint="set engine.trainer local",
        )
    return traced(runs.runs_folder(root) / name / "profile", number)


def _report_killed_holder(hold: Hold, record: Journal, name: str, log: RunLog) -> None:
    """Report and journal that the previous process of the run was killed."""
    lease = hold.dead_lease
    if lease is None:
        return
    message = describe_death(lease, name)
    sys.stderr.write(f"infuser: {message}\n")
    log.note(message)
    for stage in filter(None, lease.doing.split(AND)):
        phase, _, iteration = stage.partition(", iteration ")
        record.append(
            phase=phase,
            iteration=int(iteration or -1),
            state="killed",
            seconds=0.0,
            message=message,
            attempt=max(1, record.attempt - 1),
        )


def is_deployed() -> bool:
    """Whether a deployment's runner started this flow run."""
    flow_run = _flow_run()
    return flow_run is not None and flow_run.deployment_id is not None


@contextmanager
def without_heartbeats() -> Iterator[None]:
    """Switch off Prefect's heartbeats of the flows inside: joining their thread costs up to a second each.

    Only a deployment's outermost flow run needs them; other dead flow runs are detected by their lock.
    """
    from prefect.context import SettingsContext, get_settings_context

    context = get_settings_context()
    flows = context.settings.flows.model_copy(update={"heartbeat_frequency": None})
    changed = context.settings.model_copy(update={"flows": flows})
    with SettingsContext(profile=context.profile, settings=changed):
        yield


def peak_memory_mb() -> float:
    """Largest resident set of this process or one of its children so far, MB."""
    return max(map(peak_resident, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))) / 2**20
