"""Read access to one run: its artifact graph, the rows of its tables, its checkpoints and validations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.errors import quantity
from infuser_core.results.lineage.graph import Graph
from infuser_core.results.lineage.story import Passage, Story
from infuser_core.schemas import columns
from infuser_core.store.recipe import Record
from infuser_core.store.views import TABLES, Lens, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run's artifact graph with access to the rows of its tables."""

    lens: Lens
    graph: Graph

    def rows(self, table: str, *names: str, of: Iterable[Record] | None = None, **values: Any) -> Rows:
        """Rows of a table that match column values (any of a list's); the named columns, or all.

        Reads the artifacts `of`, by default all of the run that have the table.
        """
        keys = [record.key for record in (self.graph.holding(table) if of is None else of)]
        where = [f'list_contains(?, "{n}")' if isinstance(value, list) else f'"{n}" = ?' for n, value in values.items()]
        names = names or tuple(columns(TABLES[table]))
        return self.lens.rows(table, keys, names, where=" and ".join(where) or "true", parameters=[*values.values()])

    def row(self, table: str, *names: str, of: Iterable[Record] | None = None, **values: Any) -> dict[str, Any] | None:
        """The first row that `rows` would return, or None."""
        return next(iter(self.rows(table, *names, of=of, **values)), None)

    def source(self, key: str, name: str) -> Record:
        """Commit record of an artifact's named input."""
        catalogue = self.graph.catalogue
        return catalogue.record(catalogue.input_ref(key, name).key)

    def story(self, kind: str, name: str, headline: str, passages: Sequence[Passage]) -> Story:
        """Build an explanation of something in this run."""
        return Story(id=name, kind=kind, run=self.graph.run, headline=headline, passages=passages)

    def scores(self, *phases: str, **values: Any) -> Rows:
        """Benchmark scores of some phases with the iterations that each checkpoint has seen, the earliest first."""
        records = {record.key: record for record in self.graph.of(*phases)}
        rows = self.rows("benchmark_scores", of=records.values(), **values)
        rows = [{"after_iterations": records[row["artifact_key"]].iteration, **row} for row in rows]
        return sorted(rows, key=lambda row: row["after_iterations"])

    def selected(self) -> dict[str, Any] | None:
        """Row of the selected checkpoint; None before the selection."""
        return self.row("selections", of=self.graph.of(Phase.SELECT))

    def steps(self, updates: Sequence[Record]) -> list[dict[str, Any]]:
        """Totals over the optimizer steps of each update."""
        rows = self.rows("updates", "num_groups", "num_tokens", "gradient_norm", "loss", of=updates)
        sums = []
        for update in updates:
            steps = [row for row in rows if row["artifact_key"] == update.key]
            sums.append(
                {
                    "steps": len(steps),
                    "groups": sum(row["num_groups"] for row in steps),
                    "tokens": sum(row["num_tokens"] for row in steps),
                    "gradient_norm": steps[0]["gradient_norm"] if steps else None,
                    "loss": steps[-1]["loss"] if steps else None,
                    "checkpoint": update.key,
                }
            )
        return sums

    def describe_checkpoint(self, identity: str) -> str:
        """Describe a checkpoint, given by id or key, by its role, iteration and key."""
        record = self.graph.catalogue.find(identity.split("@")[0])
        if record is None:
            return "a checkpoint that is gone from the store"
        if record.phase == Phase.ANCHOR:
            return f"the anchor, {record.key}"
        return f"{role_of(record)} after {quantity(record.iteration + 1, 'iteration')}, {record.key}"


def role_of(update: Record) -> str:
    """Role (solver or generator) whose checkpoint an update makes."""
    return update.phase.removeprefix("update_")
