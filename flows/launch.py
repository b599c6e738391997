"""Start, resume and follow runs from scripts and notebooks. A run is a process, and continues if the script ends."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.execute import describe_failure, spawn
from infuser_core import settings
from infuser_core.config.overlays import load
from infuser_core.errors import StageError, quantity
from infuser_core.planning.preflight import preflight
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.progress import AttemptPart, parts_of
from infuser_core.results.reader import RunReader, open_store
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.system.durable import write_errors

_LOOK = 0.5
"""Seconds between looks at a run's journal."""


class StartedRun(RunReader):
    """A run that this script has started: its rows, and its process."""

    def __init__(self, root: Path, name: str, process: subprocess.Popen[bytes], log: Path, attempt: int) -> None:
        super().__init__(root, name)
        self.process, self.log = process, log
        self._former_attempt = attempt

    def follow(self) -> Iterator[AttemptPart]:
        """Yield the preparation, each iteration and the evaluation when they have ended, until the process ends."""
        yield from _follow(self.root, self.name, lambda: self.process.poll() is None, self._former_attempt)

    def wait(self, show: Callable[[str], object] = print) -> "StartedRun":
        """Wait until the run has ended, with one line of progress per iteration.

        Raises StageError with its message if it failed; `resume` continues it.
        """
        for part in self.follow():
            show(_progress_line(part))
        if code := self.process.wait():
            failure = describe_failure(code, self.log)
            raise StageError(f"run {self.name}: {failure}", hint=f"output: {self.log}; `infuser resume {self.name}`")
        return self

    def stop(self) -> None:
        """Stop the run after its current step, and wait for its end; `resume` continues it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def start(
    *configs: str | Path,
    changes: Mapping[str, Any] | Sequence[str] = (),
    name: str = "",
    seed: int | None = None,
    store: str | Path | None = None,
) -> StartedRun:
    """Start `infuser run CONFIGS...` in the background; a run of the same name is continued.

    `changes` maps dotted settings to values, such as `{"cotrain.iterations": 10}`, or lists them as `--set` takes them.

    Raises ConfigError if a setting is wrong or something that it names is missing, BusyRunError if the run is going.
    """
    sets = [f"{key}={json.dumps(value)}" for key, value in changes.items()] if isinstance(changes, Mapping) else changes
    config = load([Path(file) for file in configs], list(sets), seed=seed)
    preflight(config)
    name = name or config.run_name()
    runs.check_name(name)
    options = [word for each in sets for word in ("--set", each)]
    seeds = [] if seed is None else ["--seed", str(seed)]
    return _launch(["run", *map(str, configs), *options, *seeds, "--name", name], name, store)


def resume(run: str | None = None, *, store: str | Path | None = None) -> StartedRun:
    """Continue a run in the background from its last completed stage; without a name, the latest one.

    Raises UsageError if there is no such run, and BusyRunError if it is going.
    """
    name = runs.find_run(settings.store_root(store), run)
    return _launch(["resume", name], name, store)


def follow(run: str | None = None, *, store: str | Path | None = None) -> Iterator[AttemptPart]:
    """Yield the parts of a run's last start as they end, until the run ends. Another process may execute the run.

    A part is the preparation, an iteration with its validation accuracy, or the evaluation. Raises UsageError if there
    is no such run.
    """
    reader = open_store(store).run(run)
    yield from _follow(reader.root, reader.name, lambda: runs.is_held(reader.root, reader.name), 0)


def _launch(arguments: list[str], name: str, store: str | Path | None) -> StartedRun:
    root = settings.store_root(store)
    runs.refuse_if_held(root, name)
    attempt = Journal(root, name).read_state().attempt
    log = root / "logs" / f"{name}.log"
    with write_errors(log, hint="set INFUSER_STORE to a folder you may write"):
        process = spawn(arguments, root, log=log, apart=True)
    return StartedRun(root, name, process, log, attempt)


def _follow(root: Path, name: str, is_going: Callable[[], bool], former: int) -> Iterator[AttemptPart]:
    """Yield the parts of the attempt after `former` as they end, while the run is going, then those that are left."""
    count, going = 0, True
    while going:
        going = is_going()
        if Journal(root, name).read_state().attempt > former:
            parts = parts_of(root, name, state="running" if going else state_of(root, name))
            complete = parts[:-1] if going else parts
            yield from complete[count:]
            count = max(count, len(complete))
        if going:
            time.sleep(_LOOK)


def _progress_line(part: AttemptPart) -> str:
    label = f"iteration {part.part}" if part.part.isdecimal() else part.part
    accuracy = "" if part.accuracy is None else f", validation accuracy {part.accuracy:.3f}"
    return f"{label}: {part.state}, {quantity(len(part.stages), 'stage')}, {part.seconds:.1f} s{accuracy}"
