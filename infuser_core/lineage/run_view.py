"""Row access to the artifacts of one run, and the accuracies around an iteration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.lineage.answer import Passage
from infuser_core.lineage.graph import Graph
from infuser_core.store.catalogue import Record
from infuser_core.store.views import Lens, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One run, seen through the lens."""

    lens: Lens
    """Row access."""
    graph: Graph
    """The run's artifacts."""

    def rows(
        self, records: Iterable[Record], table: str, columns: Sequence[str], where: str = "true", *parameters: Any
    ) -> Rows:
        """Rows of one table in these artifacts, in order."""
        keys = [record.key for record in records]
        return self.lens.rows(table, keys, columns, where=where, parameters=parameters)

    def row(
        self, records: Iterable[Record], table: str, columns: Sequence[str], where: str = "true", *parameters: Any
    ) -> dict[str, Any] | None:
        """The first such row, or None."""
        return next(iter(self.rows(records, table, columns, where, *parameters)), None)

    def record(self, identity: str) -> Record | None:
        """The artifact of an id, or of a key."""
        records = self.graph.catalogue
        return records.by_id.get(identity) or records.records.get(identity.split("@")[0])


FOREIGN = ("model-", "openai:")
"""How rollouts name models that are no checkpoint of the run: by their weights' digest, or their address."""


def writer_name(sight: Sight, identity: str) -> str:
    """The model that wrote a rollout, in words."""
    if identity.startswith(FOREIGN):
        return "a model in the generator's place, which is never updated"
    return checkpoint_name(sight, sight.record(identity))


def checkpoint_name(sight: Sight, record: Record | None) -> str:
    """A checkpoint in words."""
    if record is None:
        return "a checkpoint that is gone from the store"
    if record.phase == "anchor":
        return f"the anchor, {record.key}"
    role = record.phase.removeprefix("update_")
    return f"{role} after {record.iteration + 1} iterations, {record.key}"


SCORED = ("benchmark", "checkpoint_id", "accuracy", "low", "high", "num_questions")


def validations(sight: Sight) -> list[dict[str, Any]]:
    """Every validation of the run with its iteration, the earliest first."""
    records = {record.key: record for record in sight.graph.of("validate")}
    rows = sight.rows(records.values(), "benchmark_scores", SCORED)
    found = [{"after_iterations": records[row["artifact_key"]].iteration, **row} for row in rows]
    return sorted(found, key=lambda row: row["after_iterations"])


def selected(sight: Sight) -> dict[str, Any] | None:
    """The selected checkpoint; None before the selection."""
    return sight.row(sight.graph.of("select"), "selections", ("selected_iteration", "checkpoint_id", "accuracy"))


def effect(sight: Sight, iteration: int) -> list[Passage]:
    """The last validation before an iteration's updates and the first after them."""
    found = validations(sight)
    before = [row for row in found if row["after_iterations"] <= iteration][-1:]
    after = [row for row in found if row["after_iterations"] > iteration][:1]
    rows = [
        {name: row[name] for name in ("after_iterations", "accuracy", "low", "high", "num_questions", "checkpoint_id")}
        for row in [*before, *after]
    ]
    facts: dict[str, Any] = {}
    if before and after:
        between = after[0]["after_iterations"] - before[0]["after_iterations"]
        facts = {"change": after[0]["accuracy"] - before[0]["accuracy"], "iterations_between": between}
    chosen = selected(sight)
    if chosen is not None:
        facts["selected_iteration"] = chosen["selected_iteration"]
        facts["in_the_selected_checkpoint"] = chosen["selected_iteration"] > iteration
    note = "the change is that of all updates between the two validations, not of this one alone"
    if not after:
        note = "no validation after the update yet"
    return [
        Passage(name="validation", title="Validation accuracy around the update", facts=facts, rows=rows, note=note)
    ]
