"""A store and its mirror side by side: what a push would send and a pull would fetch."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import DamagedArtifactError, UsageError
from infuser_core.mirror import records
from infuser_core.mirror.inventory import There, commit_record, removed, there
from infuser_core.mirror.outcome import Progress
from infuser_core.mirror.push import WORKERS
from infuser_core.mirror.remote import Content, Remote
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue, with_inputs
from infuser_core.store.store import MANIFEST

ONLY_HERE, ONLY_THERE = "only here", "only in the mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run on both sides."""

    run: str
    """Its name."""
    state: str
    """same, here is newer, the mirror is newer, apart, only here or only in the mirror."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a look at both sides found."""

    url: str
    """The mirror's address, without secrets."""
    both: int
    """Artifacts that are complete on both sides."""
    to_push: int
    """Artifacts that are complete here alone."""
    bytes_to_push: int
    """Their sizes."""
    to_pull: int
    """Artifacts that are complete in the mirror alone."""
    bytes_to_pull: int
    """Their sizes."""
    half: int
    """Artifacts in the mirror without their commit record: a push was interrupted."""
    runs: Sequence[RunState]
    """Runs of both sides by name."""
    checked: int
    """Files of the mirror that were read and compared with their digests."""
    problems: Sequence[str]
    """Damage in the mirror."""

    def to_json(self) -> dict[str, Any]:
        """The finding for scripts."""
        return asdict(self)

    def text(self) -> str:
        """The finding for people."""
        lines = [
            f"mirror     {self.url}",
            f"artifacts  {self.both} on both sides",
            f"to push    {self.to_push}, {self.bytes_to_push / 1e6:,.1f} MB",
            f"to pull    {self.to_pull}, {self.bytes_to_pull / 1e6:,.1f} MB",
            f"half sent  {self.half}" + (": push again" if self.half else ""),
            *(f"run        {run.run}: {run.state}" for run in self.runs),
        ]
        lines += [f"checked    {self.checked} files of the mirror"] if self.checked else []
        return "\n".join([*lines, *(f"damage     {problem}" for problem in self.problems)])


def status(
    root: Path, url: str, run: str | None, *, check: bool = False, progress: Progress = lambda done, total: None
) -> Status:
    """Compare by key; with `check`, read every file of the mirror and compare it with its recorded digest.

    Raises UsageError for a run that neither side knows, StoreError where the mirror cannot be reached.
    """
    remote = Remote(url)
    catalogue = Catalogue(root)
    here_runs, there_runs = set(runs.list_runs(root)), set(records.listed(remote))
    here, copies = set(catalogue.records), there(remote)
    if run:
        if run not in here_runs | there_runs:
            raise UsageError(f"no run named {run} here or in {remote.shown}", hint="`infuser mirror status URL`")
        here_runs, there_runs = here_runs & {run}, there_runs & {run}
        wanted = _consists_of(root, remote, catalogue, run, here_runs, there_runs)
        here, copies = here & wanted, {key: copy for key, copy in copies.items() if key in wanted}
    complete = {key for key, copy in copies.items() if copy.complete}
    found = _check(remote, [copies[key] for key in sorted(complete)], progress) if check else _Checked()
    compared = _runs(root, remote, here_runs, there_runs)
    return Status(
        url=remote.shown,
        both=len(here & complete),
        to_push=len(here - complete),
        bytes_to_push=sum(catalogue.records[key].num_bytes for key in here - complete),
        to_pull=len(complete - here),
        bytes_to_pull=sum(copies[key].bytes for key in complete - here),
        half=len(copies) - len(complete),
        runs=compared.states,
        checked=found.files,
        problems=[*found.problems, *compared.problems],
    )


def _consists_of(
    root: Path, remote: Remote, catalogue: Catalogue, run: str, here_runs: set[str], there_runs: set[str]
) -> set[str]:
    here = with_inputs(catalogue, records.keys(root, [run])) if here_runs else set()
    known = records.read(remote, run) if there_runs else None
    return here | set(known.keys if known else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Runs of both sides."""

    states: list[RunState]
    """By name."""
    problems: list[str]
    """Damaged records."""


def _runs(root: Path, remote: Remote, here: set[str], there: set[str]) -> _Runs:
    states: list[RunState] = []
    problems: list[str] = []
    for name in sorted(here | there):
        state = ONLY_HERE if name in here else ONLY_THERE
        try:
            known = records.read(remote, name) if name in there else None
            if name in here and known is not None:
                state = records.compare(records.take(root, name), records.journal(remote, known), known)
        except DamagedArtifactError as error:
            state = "damaged in the mirror"
            problems.append(error.message)
        states.append(RunState(run=name, state=state))
    return _Runs(states=states, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What reading some artifacts gave."""

    files: int = 0
    """Files that were read."""
    problems: tuple[str, ...] = ()
    """Damage."""


def _check(remote: Remote, copies: Sequence[There], progress: Progress) -> _Checked:
    total, done, files = sum(copy.bytes for copy in copies), 0, 0
    problems: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for copy, found in zip(copies, pool.map(lambda copy: _read_all(remote, copy), copies), strict=True):
            files += found.files
            problems += found.problems
            done += copy.bytes
            progress(done, total)
    return _Checked(files=files, problems=tuple(problems))


def _read_all(remote: Remote, copy: There) -> _Checked:
    try:
        known = commit_record(remote, copy)
        thin = removed(remote, copy)
    except DamagedArtifactError as error:
        return _Checked(problems=(error.message,))
    if known is None:
        return _Checked(problems=(f"{copy.path(MANIFEST)} is torn: push again",))
    problems = []
    names = [name for name in known[0].files if name not in thin]
    for name in names:
        facts = known[0].files[name]
        expected = Content(sha256=str(facts["sha256"]), bytes=int(facts["bytes"]))
        if name not in copy.sizes:
            problems.append(f"{copy.path(name)} is missing")
        elif remote.content(copy.path(name)) != expected:
            problems.append(f"{copy.path(name)} does not match its recorded digest")
    return _Checked(files=len(names), problems=tuple(problems))
