"""The undisturbed store that faults are done to, with a bit of everything that a store can hold, and copies of it."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crash_points import content
from launcher import Finished, Launcher, SmallRun

from flows import deployment

KILLED = "killed"
KEEP = ("--keep-full", "1", "--every", "0")
"""Retention that thins out what the runs do not need."""
_DEAD_SERVER = """active = "infuser"
[profiles.infuser]
PREFECT_API_URL = "http://127.0.0.1:1/api"
PREFECT_API_AUTH_STRING = "admin:gone"
"""
EVALUATION = ("eval", "--model", "nano", "--benchmarks", "nano_target", "--limit", "4")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An undisturbed store, and one place where copies of it are harmed."""

    launch: Launcher
    """Starts the commands."""
    run: SmallRun
    """The finished run and its control, in the undisturbed store."""
    store: Path
    """Where the copy lies, always the same: answers may name it."""
    reference: Mapping[str, Mapping[str, str]]
    """For each run the digests of its artifacts' bytes by key."""

    def renew(self) -> Path:
        """Put the copy back into the undisturbed state."""
        if self.store.exists():
            shutil.rmtree(self.store)
        copy(self.run.root, self.store)
        return self.store

    def ask(self, *arguments: str) -> Finished:
        """A command on the copy."""
        return self.launch(*arguments, store=self.store)


def copy(source: Path, target: Path) -> None:
    """A store with hard links to the artifacts' files, which nothing but a fault changes, and all else its own."""
    for path in source.iterdir():
        linked = path.name == "artifacts"
        if path.is_dir():
            shutil.copytree(path, target / path.name, copy_function=os.link if linked else shutil.copy2, symlinks=True)
        else:
            target.mkdir(exist_ok=True)
            shutil.copy2(path, target)


def world(launch: Launcher, run: SmallRun, folder: Path) -> World:
    """Give the small run's store company: an interrupted run, an evaluation, a study, a pin, prunings, a dead server."""
    root = folder / "undisturbed"
    copy(run.root, root)
    alone = folder / "alone"

    def do(*arguments: str, store: Path = root, code: int = 0, **environment: str) -> None:
        ended = launch(*arguments, store=store, **environment)
        assert ended.code == code, (arguments, ended)

    do(*EVALUATION)
    do("eval", "rescore", run.name)
    do("report", "quality", run.name, "--limit", "2", "--iterations", "0")
    do("gc", "--pin", f"{run.name}@1")
    longer = [*run.arguments[:-1], KILLED, "--set", "cotrain.iterations=3"]
    do(*longer, code=-9, INFUSER_CRASH_AT="update_solver:inside")
    do("gc", "--apply", *KEEP)
    deployment.announcement(root).write_text(_DEAD_SERVER)
    copy(root, alone)
    do("resume", KILLED, store=alone)
    reference = {name: content(alone, name) for name in (run.name, run.fixed, KILLED)}
    shutil.rmtree(alone)
    changed = SmallRun(
        root=root, name=run.name, fixed=run.fixed, arguments=run.arguments, fixed_arguments=run.fixed_arguments
    )
    return World(launch=launch, run=changed, store=folder / "store", reference=reference)


def runs_touched(world: World, harmed: list[str]) -> Iterator[str]:
    """Names of the runs to go on with after a fault: the small one, and those whose own records were hit."""
    yield world.run.name
    for name in (world.run.fixed, KILLED):
        if any(path.startswith((f"runs/{name}/", ".staging/", ".partial/")) for path in harmed):
            yield name
