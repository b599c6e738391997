"""Records of runs in a mirror: the resolved configuration, the journal, the report, and the keys of their artifacts."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infuser_core.durable import fsync
from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.mirror.inventory import is_safe
from infuser_core.mirror.outcome import Copied
from infuser_core.mirror.remote import Remote
from infuser_core.store import runs
from infuser_core.store.retention import FILE as PINS

RECORDS = "records"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
FORMAT = 1
_RUN, _JOURNAL = "run.json", "journal.jsonl"
_TRANSIENT = ("lock", "lease.*", ".*", "*.tmp")
SAME, AHEAD, BEHIND, APART = "same", "here is newer", "the mirror is newer", "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A run's record at one moment."""

    run: str
    """Name of the run."""
    files: Mapping[str, bytes]
    """File name to content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """A run's record as the mirror names it."""

    run: str
    """Name of the run."""
    files: Mapping[str, str]
    """File name to sha256, hex."""
    keys: tuple[str, ...]
    """Artifacts that the run consists of, with what they were made from."""


def take(root: Path, run: str) -> Taken:
    """Read a run's record. The journal of a living run is what it is now: it only grows."""
    folder = runs.runs_folder(root) / run
    names = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in names if not any(path.match(pattern) for pattern in _TRANSIENT)]
    return Taken(run=run, files={path.relative_to(folder).as_posix(): path.read_bytes() for path in kept})


def keys(root: Path, names: Iterable[str]) -> list[str]:
    """Keys that the journals of these runs name as theirs."""
    return [entry.key for name in names for entry in runs.Journal(root, name).latest()]


def put(remote: Remote, taken: Taken, consists_of: Collection[str]) -> Copied:
    """Write a run's record: first the files under the names of their digests, then what names them."""
    there = read(remote, taken.run)
    if there is not None:
        state = compare(taken, journal(remote, there), there)
        if state in (BEHIND, APART):
            return Copied(key=taken.run, files=0, bytes=0, problem=_REFUSED[state])
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in taken.files.items()}
    wanted = Mirrored(run=taken.run, files=digests, keys=tuple(sorted(consists_of)))
    if wanted == there:
        return Copied(key=taken.run, files=0, bytes=0)
    known = set(there.files.values()) if there else set()
    new = {digests[name]: content for name, content in taken.files.items() if digests[name] not in known}
    for digest, content in new.items():
        remote.write(_path(taken.run, digest), content)
        if remote.content(_path(taken.run, digest)).sha256 != digest:
            raise StoreError(
                f"the mirror {remote.shown} gave back other bytes of run {taken.run}'s record than were sent",
                hint="try again; if it stays so, the mirror cannot be trusted",
            )
    value = {"format": FORMAT, "run": wanted.run, "files": wanted.files, "keys": list(wanted.keys)}
    remote.write(_path(taken.run, "record.json"), (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())
    return Copied(key=taken.run, files=max(len(new), 1), bytes=sum(map(len, new.values())))


def listed(remote: Remote) -> list[str]:
    """Names of the runs in the mirror."""
    return sorted(path.split("/")[1] for path in remote.sizes(RECORDS) if path.count("/") == 2 and _names_all(path))


def read(remote: Remote, run: str) -> Mirrored | None:
    """What the mirror says of a run; None where it has none. Raises DamagedArtifactError for a garbled record."""
    text = remote.read(_path(run, "record.json")) if _NAME.fullmatch(run) else None
    if text is None:
        return None
    try:
        value = json.loads(text)
        found = Mirrored(run=value["run"], files=dict(value["files"]), keys=tuple(value["keys"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(remote, run, f"{type(error).__name__}: {error}") from error
    if value.get("format") != FORMAT or found.run != run or not all(map(is_safe, found.files)):
        raise _damaged(remote, run, "it is of another format, or names another run or files outside its folder")
    return found


def content(remote: Remote, record: Mirrored, name: str) -> bytes:
    """One file of a mirrored record, verified. Raises DamagedArtifactError where it is missing or changed."""
    text = remote.read(_path(record.run, record.files[name]))
    if text is None or hashlib.sha256(text).hexdigest() != record.files[name]:
        raise _damaged(remote, record.run, f"its {name} is missing or changed")
    return text


def journal(remote: Remote, record: Mirrored) -> bytes:
    """The mirrored journal."""
    return content(remote, record, _JOURNAL) if _JOURNAL in record.files else b""


def compare(taken: Taken, journal_there: bytes, there: Mirrored) -> str:
    """Which of two records of one name knows more: journals only grow, so one must begin with the other."""
    here = taken.files.get(_JOURNAL, b"")
    settings = hashlib.sha256(taken.files.get(_RUN, b"")).hexdigest()
    if settings != there.files.get(_RUN):
        return APART
    if here == journal_there:
        return SAME
    if here.startswith(journal_there):
        return AHEAD
    return BEHIND if journal_there.startswith(here) else APART


def bring(root: Path, remote: Remote, record: Mirrored) -> Copied:
    """Write a mirrored run's record into the store, `run.json` last: until then there is no such run.

    The run must be ours while this happens. Pins that are set here stay.
    """
    folder = runs.runs_folder(root) / record.run
    new = not (folder / _RUN).is_file()
    state = BEHIND if new else compare(take(root, record.run), journal(remote, record), record)
    if state != BEHIND:
        problem = _DIVERGED if state == APART else ""
        return Copied(key=record.run, files=0, bytes=0, problem=problem)
    names = sorted(record.files, key=lambda name: name == _RUN)
    kept = [name for name in names if not ((folder / name).is_file() and name in (PINS, _RUN))]
    size = 0
    for name in kept:
        text = content(remote, record, name)
        _write(folder / name, text)
        size += len(text)
    return Copied(key=record.run, files=len(kept), bytes=size)


_DIVERGED = "the store and the mirror have different runs of this name; fork or rename one of them"
_REFUSED = {BEHIND: "the mirror knows more of this run than this store: pull it first", APART: _DIVERGED}


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_bytes(text)
    fsync(draft)
    draft.replace(path)
    fsync(path.parent)


def _path(run: str, name: str) -> str:
    return f"{RECORDS}/{run}/{name}"


def _names_all(path: str) -> bool:
    return path.endswith("/record.json")


def _damaged(remote: Remote, run: str, why: str) -> DamagedArtifactError:
    return DamagedArtifactError(
        f"the record of run {run} in the mirror {remote.shown} is damaged: {why}",
        hint="move records/ of that run in the mirror aside; `infuser mirror push` writes it anew",
    )
