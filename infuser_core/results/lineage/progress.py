"""Progress of runs: state, date, iterations, score and size of every run, and one line per iteration of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import CHECKPOINTS, MEASUREMENTS, UPDATES, Phase
from infuser_core.errors import StoreError
from infuser_core.results.lineage.attempts import state_of
from infuser_core.store import pruned, runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.recipe import Record, artifact_folder

_BEFORE, _AFTER = "preparation", "evaluation"
_ENDED = ("failed", "killed", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in the list of runs."""

    run: str
    """Its name."""
    created: str = ""
    """When it was recorded, ISO 8601; empty where nothing tells."""
    state: str
    """Its state in words; for a damaged one, the damage."""
    iterations_done: int | None = None
    """Iterations whose updates are made."""
    iterations: int | None = None
    """Iterations of its settings."""
    score: float | None = None
    """Validation accuracy of the selected checkpoint; before the selection, of the last that was validated."""
    bytes: int | None = None
    """Size of its artifacts, those included that other runs have too."""
    forked_from: str = ""
    """Origin in words; empty for a run that was not made from another."""


def summaries(root: Path) -> tuple[list[Summary], list[StoreError]]:
    """Every run of the store, the latest started last, and the damage that hides what some of them hold."""
    catalogue, found, damage = Catalogue(root), [], []
    for name in runs.list_runs(root):
        try:
            found.append(_summary(catalogue, name))
        except StoreError as error:
            damage.append(error)
            found.append(Summary(run=name, state=f"damaged: {error.message}"))
    return found, damage


def _summary(catalogue: Catalogue, name: str) -> Summary:
    root = catalogue.root
    known = runs.known_run(root, name)
    held = [(entry, catalogue.record(entry.key)) for entry in catalogue.held(name)]
    cotrain = known.get("config", {}).get("cotrain", {})
    return Summary(
        run=name,
        created=str(known.get("created", "")),
        state=state_of(root, name),
        iterations_done=_done(held),
        iterations=cotrain.get("iterations"),
        score=_score(held),
        bytes=sum(_size(catalogue, record) for record in {record.key: record for _, record in held}.values()),
        forked_from=runs.origin_of(root, name),
    )


def _done(held: Sequence[tuple[Entry, Record]]) -> int:
    # The solver's update ends an iteration; if no solver is updated, the generator's does.
    made = ([entry.iteration + 1 for entry, _ in held if entry.phase == phase] for phase in reversed(UPDATES))
    return max(next(filter(None, made), [0]))


def _score(held: Sequence[tuple[Entry, Record]]) -> float | None:
    for phase in (Phase.SELECT, Phase.VALIDATE):
        found = [(entry.iteration, record) for entry, record in held if entry.phase == phase]
        if found:
            return _accuracy(max(found, key=lambda pair: pair[0])[1])
    return None


def _accuracy(record: Record) -> float | None:
    value = record.summary.get("accuracy")
    return None if value is None else float(value)


def _size(catalogue: Catalogue, record: Record) -> int:
    gone = pruned.read(artifact_folder(catalogue.root, record.key)) if record.phase in CHECKPOINTS else {}
    return record.num_bytes - sum(each.bytes for each in gone.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a run's latest attempt: what stands before the iterations, one iteration, or what stands behind."""

    part: str
    """preparation, the number of an iteration, or evaluation."""
    state: str
    """done, cached, running, failed, killed, stopped or unfinished."""
    ran: int
    """Stages that ran."""
    cached: int
    """Stages whose artifacts were there."""
    seconds: float
    """Time of its stages, seconds."""
    accuracy: float | None
    """Validation accuracy of the solver that enters the iteration; None where it was not validated."""
    stages: tuple[Entry, ...]
    """Its stages in their order."""

    def to_json(self) -> dict[str, Any]:
        """For scripts, without the stages."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "stages"}


def parts_of(root: Path, name: str, *, state: str) -> list[Part]:
    """The parts of a run's latest attempt in their order. Raises StoreError where an accuracy cannot be read."""
    entries = Journal(root, name).last_attempt()
    catalogue = Catalogue(root)
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(_part(entry, catalogue), []).append(entry)
    current = "running" if state == "running" else "" if state == "done" else "unfinished"
    last = _part(entries[-1], catalogue) if entries else ""
    ordered = sorted(grouped, key=lambda part: (part == _AFTER, int(part) if part.isdecimal() else -1))
    return [_made(part, grouped[part], catalogue, current if part == last else "") for part in ordered]


def _part(entry: Entry, catalogue: Catalogue) -> str:
    if entry.phase in MEASUREMENTS and entry.phase not in (Phase.RESPOND, Phase.VALIDATE):
        return _AFTER
    if entry.phase == Phase.RESPOND and entry.digest and catalogue.record(entry.key).label != "validation":
        return _AFTER
    return _BEFORE if entry.iteration < 0 else str(entry.iteration)


def _made(part: str, stages: Sequence[Entry], catalogue: Catalogue, current: str) -> Part:
    ran, cached = (sum(entry.state == state for entry in stages) for state in ("ran", "cached"))
    validated = [entry for entry in stages if entry.phase == Phase.VALIDATE and entry.digest]
    ended = stages[-1].state if stages[-1].state in _ENDED else ""
    return Part(
        part=part,
        state=ended or current or ("done" if ran else "cached"),
        ran=ran,
        cached=cached,
        seconds=round(sum(entry.seconds for entry in stages), 4),
        accuracy=_accuracy(catalogue.record(validated[0].key)) if validated else None,
        stages=tuple(stages),
    )
