"""What the tellers of stories look at: one run's graph, and the rows of its artifacts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.lens import Lens, Rows
from infuser_core.lineage.graph import Graph
from infuser_core.lineage.index import Record


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
