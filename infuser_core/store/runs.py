"""Folders of runs: list, find and create runs, read and write their records, and lock a run while it executes.

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
from functools import cache
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
"""File with a run's record: its configuration when it was created, and later additions such as pins."""
_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)(\.|$))[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)
NAME_CHARS = 160
"""Maximum length of a run's name: file systems allow 255 characters, and file names contain names of runs."""
EVALUATION = "evaluation.json"
"""File with an evaluation's record: its model and benchmarks."""
EVALUATIONS = "evaluations"
"""Folder of the store with the records of evaluations, which may be of any model."""
ATTEMPT = "attempt.json"
"""File with the time and other costs of a run's last complete attempt."""
METRICS = "metrics.jsonl"
"""File with metrics of a run's stages, only for display."""
_OWN = ("journal.jsonl", RECORD, "journal.head")
_KEPT = "what the store has is not computed again"
_SWEEP = Path("locks") / "gc"
_LOOK_AGAIN = 1.0


def runs_folder(root: Path) -> Path:
    """Folder of the store with a folder for each run."""
    return root / RUNS


def report_folder(root: Path, name: str) -> Path:
    """Folder of a run's report."""
    return runs_folder(root) / name / "report"


def list_runs(root: Path) -> list[str]:
    """Names of all runs, latest start last, including those whose record or journal is lost."""
    started: dict[str, float] = {}
    for name in _OWN:
        for path in runs_folder(root).glob(f"*/{name}"):
            started.setdefault(path.parent.name, path.stat().st_mtime)
    return sorted(started, key=lambda name: (started[name], name))


def mark_latest(root: Path, name: str) -> None:
    """Mark the run as the latest one, which commands use if no run is named."""
    journal = runs_folder(root) / name / "journal.jsonl"
    journal.touch()
    make_newest(journal)


def find_run(root: Path, name: str | None) -> str:
    """Find a run by its name or the beginning of its name; without a name, the latest run.

    Raises UsageError if no run or more than one matches.
    """
    names = list_runs(root)
    if name is not None and names:
        return match_name(name, names, kind="run", where=f" in {root}")
    if not names:
        problem = f"no run named {name}" if name else "no runs yet"
        raise UsageError(f"{problem} in {root}", hint="start one with `infuser run nano`")
    return names[-1]


def find_method(root: Path, name: str | None) -> str:
    """Find a run by its name; without a name, the latest run, or the run whose control the latest one is."""
    match = find_run(root, name)
    if name is not None:
        return match
    return next((other for other in reversed(list_runs(root)) if control_of(root, other) == match), match)


def control_of(root: Path, name: str) -> str:
    """The run that differs only by a generator that is never updated; empty if there is none."""
    own, updates = _without_update(root, name)
    if not own or not updates:
        return ""
    others = (other for other in reversed(list_runs(root)) if other != name)
    return next((other for other in others if _without_update(root, other) == (own, False)), "")


def _without_update(root: Path, name: str) -> tuple[dict[str, Any], bool]:
    """Settings of a run without names, retention and the generator's update, and whether its generator is updated.

    Empty settings for a run whose record cannot be read.
    """
    try:
        config = read_config(root, name)
    except (StoreError, FileNotFoundError):
        return {}, False
    cotrain = dict(config.get("cotrain", {}))
    generator = dict(cotrain.get("generator", {}))
    updates = bool(generator.pop("update", True))
    settings = {key: value for key, value in config.items() if key not in ("variant", "store")}
    return {**settings, "cotrain": {**cotrain, "generator": generator}}, updates


def match_run(root: Path, name: str) -> str:
    """Find a run (see `find_run`) by a text that may also mean something else; empty if no name begins with the text.

    Raises UsageError if the names of several runs begin with it and none equals it.
    """
    names = list_runs(root)
    return find_run(root, name) if names_starting_with(name, names) else ""


def find_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Find runs by name (see `find_run`), without duplicates; if `names` is empty, that of `find_method`.

    Raises UsageError if a run does not exist.
    """
    return list(dict.fromkeys(find_run(root, name) for name in names)) or [find_method(root, None)]


def finished_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Find runs by name, without duplicates; if `names` is empty, all finished runs.

    Raises UsageError if there are none.
    """
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
    """Create a run's record with its resolved configuration; an existing record stays as it is.

    `identity` extracts the settings that results depend on, with defaults for those that records of older versions
    lack. Raises ConfigError if a run of this name has other such settings.
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


@cache
def software() -> dict[str, str]:
    """Versions of INFUSER, Python and the numerical libraries; and the git commit if INFUSER runs from a checkout."""
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
    """Write or replace a sealed JSON file in the run's folder in one step. Raises StoreError if that fails."""
    path = runs_folder(root) / name / file
    with durable.write_errors(path, hint="free some space, or set INFUSER_STORE to a folder you may write"):
        sealed.write(path, record)


def change_run(root: Path, name: str, **facts: Any) -> None:
    """Add or replace entries of the run's record, in one step. Raises StoreError if it cannot be read or written."""
    folder = runs_folder(root) / name
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Another process may change the record at the same time, for example to pin a checkpoint.
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_record(root, name, RECORD, {**read_run(root, name), **facts})
    finally:
        os.close(handle)


def check_name(name: str) -> None:
    """Raise UsageError if a text is not valid as the name of a run."""
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        hint = (
            f"1 to {NAME_CHARS} letters, digits, '.', '_' or '-', a letter or digit first, no '.' last, no device (CON)"
        )
        raise UsageError(f"--name {abbreviate(name)}: not a name for a run", hint=hint)


def read_config(root: Path, name: str) -> dict[str, Any]:
    """Read the resolved configuration with which the run was created."""
    config: dict[str, Any] = read_run(root, name)["config"]
    return config


def read_run(root: Path, name: str) -> dict[str, Any]:
    """Read the run's record. Raises StoreError if it is damaged or lost, FileNotFoundError if there is no such run."""
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
    """Read the run's record; empty if there is no such run. Raises StoreError if it is damaged or lost."""
    try:
        return read_run(root, name)
    except FileNotFoundError:
        return {}


def describe_origin(root: Path, name: str) -> str:
    """Text that names the origin of a forked run, for messages; empty for other runs."""
    record = read_run_or_empty(root, name)
    if not record.get("forked_from"):
        return ""
    where = f" at iteration {record['at']}" if "at" in record else ""
    return f"forked from {record['forked_from']}{where}"


def read_attempt(root: Path, name: str) -> dict[str, Any]:
    """Read the record of the run's last complete attempt; empty if there is none yet.

    Raises StoreError if the record is damaged or lost.
    """
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
    """Compare two nested settings; returns the dotted name and both values of each setting that differs.

    The value of a setting that one side lacks is `absent`.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        differences = []
        for key in sorted({*old, *new}):
            name = f"{where}.{key}".lstrip(".")
            differences += list_differences(old.get(key, absent), new.get(key, absent), name, absent=absent)
        return differences
    return [] if old == new else [(where, old, new)]


@contextmanager
def hold_run(root: Path, name: str, *, shelf: str = RUNS) -> Iterator[lease.Hold]:
    """Hold a run or an evaluation during the block: its lock and lease. Waits while files of the store are removed.

    The lock ends with the process, even if it is killed. Raises BusyRunError, which names the holder, if another living
    process executes the run.
    """
    with lease.hold(root / shelf / name, name) as hold:
        if (root / _SWEEP).exists():
            with (root / _SWEEP).open("r") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield hold


@contextmanager
def hold_sweep_lock(root: Path) -> Iterator[None]:
    """Hold the lock for removing files from the store. No run, which might reuse the files, can start during the block.

    Runs that started before continue. Raises BusyRunError if another process holds this lock.
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
    """Whether a living process is executing the run."""
    return lease.is_held(runs_folder(root) / name)


def refuse_if_held(root: Path, name: str) -> None:
    """Raise BusyRunError, which names the holder, if a living process is executing the run."""
    if is_held(root, name):
        raise lease.busy_error(runs_folder(root) / name, name)


def wait_until_free(root: Path, name: str) -> None:
    """Wait until no living process is executing the run."""
    while is_held(root, name):
        time.sleep(_LOOK_AGAIN)
