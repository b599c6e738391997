"""Progress of runs: a summary of every run in the store, and one line per iteration of a run's latest attempt."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import CHECKPOINTS, MEASUREMENTS, UPDATES, Phase
from infuser_core.errors import StoreError, quantity
from infuser_core.results.lineage.attempts import state_of
from infuser_core.store import pruned, runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.recipe import Record, artifact_folder

_BEFORE, _AFTER = "preparation", "evaluation"
_ENDED = ("failed", "killed", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of a run in the list of runs."""

    run: str
    created: str = ""
    """Time of its record, ISO 8601; empty if unknown."""
    state: str
    """Its state as text; for a damaged run, the damage."""
    iterations_done: int | None = None
    """Iterations whose updates are complete."""
    iterations: int | None = None
    """Number of iterations that its settings ask for."""
    score: float | None = None
    """Validation accuracy of the selected checkpoint; before the selection, of the last validated one."""
    bytes: int | None = None
    """Size of its artifacts, including those that it shares with other runs."""
    forked_from: str = ""
    """How it was made from another run; empty if it was not."""


def summaries(root: Path) -> tuple[list[Summary], list[StoreError]]:
    """Summaries of all runs of the store, the latest last, and the errors of damaged runs."""
    catalogue, rows, damage = Catalogue(root), [], []
    for name in runs.list_runs(root):
        try:
            rows.append(_summary(catalogue, name))
        except StoreError as error:
            damage.append(error)
            rows.append(Summary(run=name, state=f"damaged: {error.message}"))
    return rows, damage


def _summary(catalogue: Catalogue, name: str) -> Summary:
    root = catalogue.root
    record = runs.read_run_or_empty(root, name)
    artifacts = [(entry, catalogue.record(entry.key)) for entry in catalogue.journal_entries(name)]
    cotrain = record.get("config", {}).get("cotrain", {})
    return Summary(
        run=name,
        created=str(record.get("created", "")),
        state=state_of(root, name),
        iterations_done=_iterations_done(artifacts),
        iterations=cotrain.get("iterations"),
        score=_validation_accuracy(artifacts),
        bytes=sum(_size(catalogue, record) for record in {record.key: record for _, record in artifacts}.values()),
        forked_from=runs.describe_origin(root, name),
    )


def _iterations_done(artifacts: Sequence[tuple[Entry, Record]]) -> int:
    # The solver's update ends an iteration; if no solver is updated, the generator's does.
    counts = ([entry.iteration + 1 for entry, _ in artifacts if entry.phase == phase] for phase in reversed(UPDATES))
    return max(next(filter(None, counts), [0]))


def _validation_accuracy(artifacts: Sequence[tuple[Entry, Record]]) -> float | None:
    for phase in (Phase.SELECT, Phase.VALIDATE):
        records = [(entry.iteration, record) for entry, record in artifacts if entry.phase == phase]
        if records:
            return _accuracy(max(records, key=lambda pair: pair[0])[1])
    return None


def _accuracy(record: Record) -> float | None:
    value = record.summary.get("accuracy")
    return None if value is None else float(value)


def _size(catalogue: Catalogue, record: Record) -> int:
    pruned_files = (
        pruned.read_removed(artifact_folder(catalogue.root, record.key)) if record.phase in CHECKPOINTS else {}
    )
    return record.num_bytes - sum(each.bytes for each in pruned_files.values())


def describe_trend(parts: Sequence["AttemptPart"]) -> str:
    """A line with the first, the best and the last validation accuracy; empty with fewer than two."""
    points = [(part.accuracy, part.part) for part in parts if part.accuracy is not None]
    if len(points) < 2:
        return ""
    texts = [f"{accuracy:.3f} after {quantity(int(part), 'iteration')}" for accuracy, part in points]
    best = texts[points.index(max(points, key=lambda point: point[0]))]
    return f"\nvalidation accuracy: {texts[0]} -> {texts[-1]}; best {best}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPart:
    """A part of a run's latest attempt: the preparation, one iteration, or the evaluation."""

    part: str
    """preparation, the number of an iteration, or evaluation."""
    state: str
    """done, cached, running, failed, killed, stopped or unfinished."""
    ran: int
    cached: int
    """Stages whose artifacts were in the store."""
    seconds: float
    accuracy: float | None
    """Validation accuracy of the solver at the start of the iteration; None if it was not validated."""
    stages: tuple[Entry, ...]

    @property
    def is_test(self) -> bool:
        """Whether it only tests the checkpoint that the iteration would start from."""
        return self.part.isdecimal() and all(entry.phase in (Phase.RESPOND, Phase.VALIDATE) for entry in self.stages)

    def to_json(self) -> dict[str, Any]:
        """The part as JSON values, without its stages."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "stages"}


def parts_of(root: Path, name: str, *, state: str) -> list[AttemptPart]:
    """Parts of a run's latest attempt in order. Raises StoreError if an accuracy cannot be read."""
    entries = Journal(root, name).last_attempt()
    catalogue = Catalogue(root)
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(_part_name(entry, catalogue), []).append(entry)
    current = "running" if state == "running" else "" if state == "done" else "unfinished"
    last = _part_name(entries[-1], catalogue) if entries else ""
    ordered = sorted(grouped, key=lambda part: (part == _AFTER, int(part) if part.isdecimal() else -1))
    return [_summarize_part(part, grouped[part], catalogue, current if part == last else "") for part in ordered]


def _part_name(entry: Entry, catalogue: Catalogue) -> str:
    if entry.phase in MEASUREMENTS and entry.phase not in (Phase.RESPOND, Phase.VALIDATE):
        return _AFTER
    if entry.phase == Phase.RESPOND and entry.digest and catalogue.record(entry.key).label != "validation":
        return _AFTER
    return _BEFORE if entry.iteration < 0 else str(entry.iteration)


def _summarize_part(part: str, stages: Sequence[Entry], catalogue: Catalogue, current: str) -> AttemptPart:
    ran, cached = (sum(entry.state == state for entry in stages) for state in ("ran", "cached"))
    validated = [entry for entry in stages if entry.phase == Phase.VALIDATE and entry.digest]
    end_state = stages[-1].state if stages[-1].state in _ENDED else ""
    return AttemptPart(
        part=part,
        state=end_state or current or ("done" if ran else "cached"),
        ran=ran,
        cached=cached,
        seconds=round(sum(entry.seconds for entry in stages), 4),
        accuracy=_accuracy(catalogue.record(validated[0].key)) if validated else None,
        stages=tuple(stages),
    )
