"""A sweep: many runs over one store, a few at a time; what they have in common is computed once."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from time import sleep

import typer

from flows import deployment
from flows.warm import Warm, WarmRun
from infuser_core import settings
from infuser_core.errors import StageError
from infuser_core.planning.sweeps import Member, Pace
from infuser_core.store import runs

_LOOK = 0.5
"""Seconds between looks at the processes."""


class _Work:
    """Processes and what became of them."""

    def __init__(self, warm: Warm, logs: Path, waiting: list[Member]) -> None:
        self.warm = warm
        self.logs = logs
        self.waiting = waiting
        self.running: dict[str, WarmRun] = {}
        self.failed: dict[str, str] = {}
        self.pace = Pace()

    def start(self) -> None:
        """The next run, as a process of its own."""
        member = self.waiting.pop(0)
        self.running[member.run] = self.warm.spawn(member.arguments, log=self.logs / f"{member.run}.log")
        self.pace.begin(member.run)

    def collect(self) -> list[str]:
        """Runs that ended since the last look."""
        ended = [run for run, process in self.running.items() if process.poll() is not None]
        for run in ended:
            self.pace.end(run)
            if self.running.pop(run).returncode != 0:
                self.failed[run] = _last_line(self.logs / f"{run}.log")
        return ended

    def stop(self) -> None:
        """End what still runs, at its next safe point."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


def sweep(members: Sequence[Member], *, jobs: int, quiet: bool = False) -> None:
    """Run all members, `jobs` at a time. A run that fails does not stop the others.

    Raises StageError naming the runs that failed.
    """
    root = settings.writable_store_root()
    open_ = [member for member in members if not runs.Journal(root, member.run).is_finished()]
    say = partial(typer.echo, err=quiet)
    say(f"{len(members)} runs, {len(open_)} to do; logs: {root / 'sweeps'}")
    if not open_:
        return
    deployment.prepare_environment(root)
    with deployment.server(root) as url, closing(Warm()) as warm:
        deployment.wait_until_up(url)
        work = _Work(warm, root / "sweeps", open_)
        try:
            _drive(work, jobs, say)
        finally:
            work.stop()
    if work.failed:
        lines = "; ".join(f"{run}: {said}" for run, said in work.failed.items())
        raise StageError(f"{len(work.failed)} runs failed: {lines}", hint="the same command goes on with them")


def _drive(work: _Work, jobs: int, say: Callable[[str], None]) -> None:
    while work.waiting or work.running:
        while work.waiting and len(work.running) < jobs:
            work.start()
        for run in work.collect():
            state = f"failed: {work.failed[run]}" if run in work.failed else "done"
            left = [*work.running, *work.waiting]
            eta = work.pace.remaining(len(work.waiting), jobs)
            say(f"{run}  {state}  ({len(left)} to go, about {eta:.0f} s)")
        sleep(_LOOK)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    said = [line for line in lines if line.startswith("infuser:")] or lines[-1:]
    return said[-1] if said else "no output"
