"""Execute a sweep: many runs over one store, several at a time; artifacts in common are computed once.

Each run is forked from a process that has only imported modules: the imports take 8 s of processor time, and
a short run takes less than a minute. No report pages are written: comparisons read the store, and `infuser report
RUN` writes one.
"""

import atexit
import gc
import os
import signal
import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from time import sleep

import typer

from flows.execute import describe_failure, execute, exit_code
from infuser_core import settings
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError, InfuserError, StageError, quantity
from infuser_core.planning.preflight import preflight
from infuser_core.planning.sweeps import Pace
from infuser_core.store.journal import Journal

PRELOADED = [
    "flows.pipeline",
    "infuser_core.engines.local.trainer",
    "infuser_core.engines.hf.sampler",
    "infuser_core.nano.textbooks",
    "corpus.audit.lsh",
    "corpus.find.session",
    "corpus.find.download",
]
"""Modules imported once, before the runs are forked."""
_LOOK = 0.5
"""Seconds between checks of the processes."""


class _Processes:
    """Waiting, running and failed runs of a sweep, one process per run."""

    def __init__(self, logs: Path, waiting: list[RunConfig]) -> None:
        self.logs = logs
        self.waiting = waiting
        self.running: dict[str, ForkServerProcess] = {}
        self.failed: dict[str, str] = {}
        self.pace = Pace()
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def start(self) -> None:
        """Start the next run as a separate process."""
        config = self.waiting.pop(0)
        run = config.run_name()
        process = self._context.Process(target=_process, args=(config, self._log(run)))
        process.start()
        self.running[run] = process
        self.pace.begin(run)

    def collect(self) -> list[str]:
        """Collect the processes that ended since the last call; returns their runs."""
        finished = [run for run, process in self.running.items() if process.exitcode is not None]
        for run in finished:
            self.pace.end(run)
            if code := self.running.pop(run).exitcode:
                self.failed[run] = describe_failure(code, self._log(run))
        return finished

    def stop(self) -> None:
        """Stop the running processes at their next safe points, and wait for them."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join()

    def _log(self, run: str) -> Path:
        return self.logs / f"{run}.log"


def _process(config: RunConfig, log: Path) -> None:
    """Execute a run in this process, with its output in a log file."""
    threading.Thread(target=_end_with_the_sweep, name="sweep", daemon=True).start()
    # Exclude the half a million objects of the imports from garbage collection.
    gc.freeze()
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(output, stream)
    code = exit_code(partial(_run, config))
    # multiprocessing skips exit functions in child processes; Prefect's client needs them.
    atexit._run_exitfuncs()
    raise SystemExit(code)


def _end_with_the_sweep() -> None:
    """Stop this run at its next safe point if the sweep is killed."""
    sweep = parent_process()
    assert sweep is not None
    wait([sweep.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _run(config: RunConfig) -> None:
    from infuser_core.results.lineage.outcome import describe_result

    execute(config, config.run_name(), page=False)
    typer.echo(describe_result(settings.store_root(), config.run_name()))
    typer.echo(f"processor time: {sum(os.times()[:4]):.1f} s")


def sweep(configs: Sequence[RunConfig], *, jobs: int, quiet: bool = False) -> None:
    """Execute all runs, `jobs` at a time; a failure does not stop the others.

    Raises ConfigError before the first start if one cannot run, and StageError with the runs that failed.
    """
    root = settings.writable_store_root()
    open_ = [config for config in configs if not Journal(root, config.run_name()).is_finished()]
    say = partial(typer.echo, err=quiet)
    say(f"{quantity(len(configs), 'run')}, {len(open_)} to do; logs: {root / 'sweeps'}")
    if not open_:
        return
    for config in open_:
        try:
            preflight(config)
        except InfuserError as error:
            raise ConfigError(f"run {config.run_name()}: {error.message}", hint=error.hint) from error
    work = _Processes(root / "sweeps", open_)
    try:
        while work.waiting or work.running:
            while work.waiting and len(work.running) < jobs:
                work.start()
            for run in work.collect():
                state = f"failed: {work.failed[run]}" if run in work.failed else "done"
                remaining = [*work.running, *work.waiting]
                eta = work.pace.remaining(len(work.waiting), jobs)
                say(f"{run}  {state}  ({len(remaining)} to go, about {eta:.0f} s)")
            sleep(_LOOK)
    finally:
        work.stop()
    if work.failed:
        lines = "; ".join(f"{run}: {message}" for run, message in work.failed.items())
        raise StageError(
            f"{quantity(len(work.failed), 'run')} failed: {lines}", hint="the same command runs them again"
        )
