"""Records of runs: resolved configuration, journal of stages, and a lock that dies with its holder.

Layout: `runs/<name>/{run.json, journal.jsonl, lock, lease.json, report/, log.txt, metrics.jsonl}`.
"""

import fcntl
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from infuser_core.errors import (
    BusyRunError,
    ConfigError,
    StoreError,
    UnwritableStoreError,
    UsageError,
    abbreviate,
    match_name,
    names_starting_with,
)
from infuser_core.store import lease
from infuser_core.store.journal import RUNS, Journal, make_newest
from infuser_core.system import durable, sealed

RECORD = "run.json"
"""File with the record that a run was created with, and with what was decided about it since."""
_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)(\.|$))[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)
NAME_CHARS = 160
"""Length of a run's name; file systems take 255, and files are named after runs."""
EVALUATION = "evaluation.json"
"""File with the record of an evaluation: its model and benchmarks."""
EVALUATIONS = "evaluations"
"""Folder of the store with the records of evaluations of any model."""
ATTEMPT = "attempt.json"
"""File with what the last complete attempt of a run cost."""
METRICS = "metrics.jsonl"
"""File with the numbers of a run's stages, for people."""
_OWN = ("journal.jsonl", RECORD, "journal.head")
_KEPT = "what the store has is not computed again"
_SWEEP = Path("locks") / "gc"
_LOOK_AGAIN = 1.0


def runs_folder(root: Path) -> Path:
    """Folder of the records of runs."""
    return root / RUNS


def report_folder(root: Path, name: str) -> Path:
    """Folder of a run's report."""
    return runs_folder(root) / name / "report"


def list_runs(root: Path) -> list[str]:
    """Names of all runs, the latest started last; also of one that has lost its record, or its journal."""
    started: dict[str, float] = {}
    for name in _OWN:
        for path in runs_folder(root).glob(f"*/{name}"):
            started.setdefault(path.parent.name, path.stat().st_mtime)
    return sorted(started, key=lambda name: (started[name], name))


def mark_latest(root: Path, name: str) -> None:
    """Make the run the one that commands mean when none is named."""
    journal = runs_folder(root) / name / "journal.jsonl"
    journal.touch()
    make_newest(journal)


def find_run(root: Path, name: str | None) -> str:
    """The run of this name, or the only one whose name begins so; without a name the latest.

    Raises UsageError for none, and for several.
    """
    names = list_runs(root)
    if name is not None and names:
        return match_name(name, names, kind="run", where=f" in {root}")
    if not names:
        problem = f"no run named {name}" if name else "no runs yet"
        raise UsageError(f"{problem} in {root}", hint="start one with `infuser run nano`")
    return names[-1]


def match_run(root: Path, name: str) -> str:
    """The run that a text names, where other things may be meant: empty for none. Raises UsageError for several."""
    names = list_runs(root)
    return find_run(root, name) if names_starting_with(name, names) else ""


def find_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Runs by name, once each; the latest without names. Raises UsageError for one that does not exist."""
    return list(dict.fromkeys(find_run(root, name) for name in names)) or [find_run(root, None)]


def finished_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Runs by name, once each; without names all that are finished. Raises UsageError when none is."""
    finished = find_runs(root, names) if names else [n for n in list_runs(root) if Journal(root, n).is_finished()]
    if not finished:
        raise UsageError("no finished runs to compare", hint="name runs, or finish one")
    return finished


def create_run(
    root: Path,
    name: str,
    config: dict[str, Any],
    *,
    identity: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Record the resolved configuration.

    Raises ConfigError for a name that has a configuration of another `identity`: the settings that results depend on,
    with defaults for those that a record of an older version lacks.
    """
    check_name(name)
    path = runs_folder(root) / name / RECORD
    if path.is_file():
        pairs = list_differences(identity(read_config(root, name)), identity(config))
        changed = [f"{key} is {old!r}, asked {new!r}" for key, old, new in pairs]
        if changed:
            raise ConfigError(
                f"run {name} exists with other settings: {'; '.join(changed[:3])}",
                hint="choose another --name, or `infuser resume` to go on with the recorded settings",
            )
        return
    created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    sealed.write(path, {"name": name, "config": config, "created": created, "software": software()})


def software() -> dict[str, str]:
    """Versions of this program, its commit where it is a checkout, Python and the libraries that compute."""
    versions = {"Python": platform.python_version()}
    for name in ("infuser", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    folder = Path(__file__).parents[2]
    if (folder / ".git").exists():
        command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
        with suppress(OSError):
            versions["commit"] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {name: value for name, value in versions.items() if value}


def write_record(root: Path, name: str, file: str, record: Mapping[str, Any]) -> None:
    """Replace a sealed JSON file of the run's record in one step. Raises StoreError when it cannot be written."""
    path = runs_folder(root) / name / file
    with durable.write_errors(path, hint="free some space, or set INFUSER_STORE to a folder you may write"):
        sealed.write(path, record)


def change_run(root: Path, name: str, **facts: Any) -> None:
    """Add facts to the run's record, in one step. Raises StoreError."""
    folder = runs_folder(root) / name
    handle = os.open(folder, os.O_RDONLY)
    try:
        # A person may pin a checkpoint while the run records what it repeats.
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_record(root, name, RECORD, {**read_run(root, name), **facts})
    finally:
        os.close(handle)


def check_name(name: str) -> None:
    """Raises UsageError for what cannot name a run."""
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        hint = (
            f"1 to {NAME_CHARS} letters, digits, '.', '_' or '-', a letter or digit first, no '.' last, no device (CON)"
        )
        raise UsageError(f"--name {abbreviate(name)}: not a name for a run", hint=hint)


def read_config(root: Path, name: str) -> dict[str, Any]:
    """The resolved configuration that the run was created with."""
    config: dict[str, Any] = read_run(root, name)["config"]
    return config


def read_run(root: Path, name: str) -> dict[str, Any]:
    """The record that the run was created with. Raises StoreError for a damaged one."""
    path = runs_folder(root) / name / RECORD
    try:
        record = sealed.read(path, name=name)
        if not isinstance(record.get("config"), dict):
            raise ValueError("it has no configuration")
        return record
    except FileNotFoundError as error:
        if not Journal(root, name).is_known():
            raise
        hint = f"start it again with its configuration files and --name {name}: {_KEPT}"
        raise StoreError(f"the record {path} is lost", hint=hint) from error
    except ValueError as error:
        hint = (
            f"`infuser doctor {name} --repair` moves it aside; then start the run again with its configuration files "
            f"and --name {name}: {_KEPT}"
        )
        raise StoreError(f"the record {path} is damaged: {error}", hint=hint) from error


def read_run_or_empty(root: Path, name: str) -> dict[str, Any]:
    """The record that the run was created with; empty for a run that is not recorded."""
    try:
        return read_run(root, name)
    except FileNotFoundError:
        return {}


def describe_origin(root: Path, name: str) -> str:
    """Origin of a forked run for messages; empty for other runs."""
    record = read_run_or_empty(root, name)
    if not record.get("forked_from"):
        return ""
    where = f" at iteration {record['at']}" if "at" in record else ""
    return f"forked from {record['forked_from']}{where}"


def read_attempt(root: Path, name: str) -> dict[str, Any]:
    """Facts about the last complete attempt; empty before there is one. Raises StoreError for a damaged record."""
    path = runs_folder(root) / name / ATTEMPT
    hint = f"`infuser doctor {name} --repair` makes it anew"
    try:
        return sealed.read(path, run=name)
    except FileNotFoundError as error:
        if not Journal(root, name).read_state().is_finished:
            return {}
        raise StoreError(f"the record {path} is lost", hint=hint) from error
    except ValueError as error:
        raise StoreError(f"the record {path} is damaged: {error}", hint=hint) from error


def list_differences(old: Any, new: Any, where: str = "", *, absent: Any = None) -> list[tuple[str, Any, Any]]:
    """Leaves of two nested settings that differ: dotted name and both values, `absent` for one that is not there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        differences = []
        for key in sorted({*old, *new}):
            name = f"{where}.{key}".lstrip(".")
            differences += list_differences(old.get(key, absent), new.get(key, absent), name, absent=absent)
        return differences
    return [] if old == new else [(where, old, new)]


@contextmanager
def hold_run(root: Path, name: str, *, shelf: str = RUNS) -> Iterator[lease.Hold]:
    """Own the run, or the evaluation, while it executes; it ends with the process, however that ends.

    Raises BusyRunError with the holder's process when another one lives.
    """
    with lease.hold(root / shelf / name, name) as hold:
        if (root / _SWEEP).exists():
            with (root / _SWEEP).open("r") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield hold


@contextmanager
def hold_sweep_lock(root: Path) -> Iterator[None]:
    """While this lasts no run begins: it would reuse what is being removed. Runs that began before hold their lock.

    Raises BusyRunError when another one lives.
    """
    path = root / _SWEEP
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        hint = "set INFUSER_STORE to a folder you may write"
        raise UnwritableStoreError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another process removes files in {root}"
            raise BusyRunError(message, hint="wait for its end") from error
        yield


def is_held(root: Path, name: str) -> bool:
    """Whether a living process executes the run."""
    return lease.is_held(runs_folder(root) / name)


def refuse_if_held(root: Path, name: str) -> None:
    """Raises BusyRunError with the holder when a living process executes the run."""
    if is_held(root, name):
        raise lease.busy_error(runs_folder(root) / name, name)


def wait_until_free(root: Path, name: str) -> None:
    """Wait until no living process executes the run."""
    while is_held(root, name):
        time.sleep(_LOOK_AGAIN)
