"""Warnings about a run, computed from its stored rows: what may make its result worthless, and the remedy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infuser_core.config.phase_table import UPDATES, Phase
from infuser_core.cotrain.phases.parts.health import (
    GAUGES,
    LIMITS,
    key_warning,
    leak_warning,
    missing_inclusions_warning,
    small_pool_warning,
)
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.run_view import RunView
from infuser_core.schemas import KeyAccuracy, Leak, Update
from infuser_core.store import runs
from infuser_core.store.views import Lens
from infuser_core.terminal import number_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarning:
    """A warning about a run, with all iterations that it is about."""

    text: str
    """The warning; of several iterations, with the worst value."""
    iterations: tuple[int, ...] = ()
    """Iterations that it is about; empty if it is about the whole run."""

    def __str__(self) -> str:
        if not self.iterations:
            return self.text
        noun = "iteration" if len(self.iterations) == 1 else "iterations"
        return f"{noun} {number_ranges(self.iterations)}: {self.text}"


def run_warnings(lens: Lens, run: str) -> list[RunWarning]:
    """Warnings about a run, in the order of the pipeline; the lens must contain the run."""
    view = RunView(lens=lens, graph=graph_of(lens.catalogue, run))
    config = runs.read_run_or_empty(lens.catalogue.root, run).get("config", {})
    return [
        *_books(view),
        *_pool(view, config),
        *_questions(view),
        *_keys(view, config),
        *_gauges(view),
        *_updates(view),
        *_leaks(view),
    ]


def _books(view: RunView) -> Iterator[RunWarning]:
    missing = sum((row["removed_for"] or []).count("missing") for row in view.rows("pages", "removed_for"))
    if text := missing_inclusions_warning(missing):
        yield RunWarning(text=text)


def _pool(view: RunView, config: Mapping[str, Any]) -> Iterator[RunWarning]:
    pools = (view.graph.inputs(record.key).get("pool") for record in view.graph.of(Phase.GENERATE_QUESTIONS))
    key = next(filter(None, pools), None)
    if key is None:
        return
    pool = view.graph.catalogue.record(key)
    table = "pool_rows" if "pool_rows" in pool.rows else "documents"
    rule = config.get("corpus", {}).get("exclude", {})
    excluded = {
        row["document_id"]
        for column, names in (("document_id", rule.get("documents")), ("source_id", rule.get("sources")))
        if names
        for row in view.rows(table, "document_id", of=[pool], **{column: names})
    }
    documents = config.get("cotrain", {}).get("documents", 0)
    if text := small_pool_warning(documents, pool.rows[table] - len(excluded)):
        yield RunWarning(text=text)


def _questions(view: RunView) -> Iterator[RunWarning]:
    texts = {record.iteration: record.summary.get("said") for record in view.graph.of(Phase.GENERATE_QUESTIONS)}
    empty = {iteration: text for iteration, text in texts.items() if text}
    if empty:
        yield RunWarning(text=str(max(empty.values())), iterations=tuple(sorted(empty)))


def _keys(view: RunView, config: Mapping[str, Any]) -> Iterator[RunWarning]:
    floor = config.get("cotrain", {}).get("key_floor", 0.0)
    for phase in (Phase.ROLLOUT_QUESTIONS, Phase.CHECK_KEYS):
        records = {record.key: record.iteration for record in view.graph.of(phase) if "key_accuracies" in record.rows}
        rows = view.rows("key_accuracies", of=map(view.graph.catalogue.record, records))
        low = {records[row.pop("artifact_key")]: KeyAccuracy(**row) for row in rows}
        low = {iteration: row for iteration, row in low.items() if key_warning(row, floor)}
        if low:
            worst = min(low.values(), key=lambda row: row.accuracy)
            yield RunWarning(text=key_warning(worst, floor), iterations=tuple(sorted(low)))


def _gauges(view: RunView) -> Iterator[RunWarning]:
    rows = view.lens.query("select * from question_gauges where run = ? order by iteration", [view.graph.run])
    for limit in GAUGES:
        iterations = [row["iteration"] for row in rows if limit.warning([row])]
        if iterations:
            yield RunWarning(text=limit.warning(rows), iterations=tuple(iterations))


def _updates(view: RunView) -> Iterator[RunWarning]:
    for phase in UPDATES:
        records = {record.key: record for record in view.graph.of(phase)}
        steps: dict[int, list[Update]] = {}
        for row in view.rows("updates", of=records.values()):
            record = records[row.pop("artifact_key")]
            # Rows of older versions lack columns.
            if None not in row.values() and row["num_tokens"]:
                steps.setdefault(record.iteration, []).append(Update(**row))
        for limit in LIMITS:
            iterations = tuple(sorted(number for number, updates in steps.items() if limit.warning(updates)))
            if iterations:
                worst = limit.warning([step for number in iterations for step in steps[number]])
                yield RunWarning(text=f"{phase.removeprefix('update_')}: {worst}", iterations=iterations)


def _leaks(view: RunView) -> Iterator[RunWarning]:
    rows = view.rows("leaks")
    if text := leak_warning([Leak(**{k: v for k, v in row.items() if k != "artifact_key"}) for row in rows]):
        yield RunWarning(text=text)
