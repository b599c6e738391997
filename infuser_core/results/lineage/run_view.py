"""One run for reading: its artifact graph, the rows of its tables as a reader sees them, its validations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from infuser_core.prompts.load import LETTERS
from infuser_core.results.lineage.answer import Answer, Passage
from infuser_core.results.lineage.graph import Graph
from infuser_core.schemas import COLUMNS, Column, columns
from infuser_core.store.recipe import Record
from infuser_core.store.views import TABLES, Lens, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run, seen through SQL views."""

    lens: Lens
    """Row access."""
    graph: Graph
    """The run's artifacts."""

    def rows(self, table: str, *names: str, of: Iterable[Record] | None = None, **values: Any) -> Rows:
        """Rows of a table whose columns have these values, one of them where a list is given, with the named columns.

        They are read from these artifacts, by default from all of the run that have the table; by default, all columns.
        """
        keys = [record.key for record in (self.graph.holding(table) if of is None else of)]
        where = [f'list_contains(?, "{n}")' if isinstance(value, list) else f'"{n}" = ?' for n, value in values.items()]
        wanted = names or list(columns(TABLES[table]))
        return self.lens.rows(table, keys, wanted, where=" and ".join(where) or "true", parameters=[*values.values()])

    def row(self, table: str, *names: str, of: Iterable[Record] | None = None, **values: Any) -> dict[str, Any] | None:
        """The first such row, or None."""
        return next(iter(self.rows(table, *names, of=of, **values)), None)

    def about(self, kind: str, name: Any, table: str, *names: str, of: Iterable[Record] | None = None) -> Rows:
        """Rows of a table that refer to a row of the table `kind` by its identifier, or to one of a list."""
        known = columns(TABLES[table]).items()
        (column, *_) = [column for column, one in known if one.refers_to in (kind, "groups")]
        return self.rows(table, *names, of=of, **{column: name})

    def record(self, identity: str) -> Record | None:
        """The artifact of an id, or of a key."""
        return self.graph.catalogue.find(identity.split("@")[0])

    def source(self, key: str, name: str) -> Record:
        """The named input of an artifact."""
        catalogue = self.graph.catalogue
        return catalogue.record(catalogue.input(key, name).key)

    def answer(self, kind: str, name: str, headline: str, passages: Sequence[Passage]) -> Answer:
        """Story of a thing in this run."""
        return Answer(id=name, kind=kind, run=self.graph.run, headline=headline, passages=passages)

    def scores(self, *phases: str, **values: Any) -> Rows:
        """Benchmark scores of some phases with the iterations done before them, the earliest first."""
        records = {record.key: record for record in self.graph.of(*phases)}
        rows = self.rows("benchmark_scores", of=records.values(), **values)
        found = [{"after_iterations": records[row["artifact_key"]].iteration, **row} for row in rows]
        return sorted(found, key=lambda row: row["after_iterations"])

    def selected(self) -> dict[str, Any] | None:
        """The selected checkpoint; None before the selection."""
        return self.row("selections", of=self.graph.of("select"))


def readable(row: Mapping[str, Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """A row as a reader sees it: texts first, identifiers last; of numbers per token their count or their mean."""

    def place(name: str) -> int:
        about = COLUMNS.get(name, Column())
        return 0 if about.is_text else 2 if about.refers_to else 1

    found = {}
    for name in sorted((name for name in row if name not in without), key=place):
        value, about = row[name], COLUMNS.get(name, Column())
        if about.is_text and isinstance(value, list):
            value = "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, value, strict=False))
        elif isinstance(value, list) and about.label:
            name = about.label.replace(" ", "_").replace("-", "_")
            value = fmean(value) if about.unit and value else len(value) or None
        found[name] = value
    return found


def passage(name: str, title: str, row: Mapping[str, Any], *, without: Collection[str] = (), **more: Any) -> Passage:
    """A row as a passage: its short columns are facts, its texts follow; `more` are fields of the passage."""
    shown = {key: value for key, value in readable(row, without=without).items() if value not in (None, "")}
    texts = {key: value for key, value in shown.items() if COLUMNS.get(key, Column()).is_text}
    facts = {key: value for key, value in shown.items() if key not in texts and key != "artifact_key"}
    own = {"artifact": row.get("artifact_key", ""), "texts": texts, **more, "facts": facts | more.get("facts", {})}
    return Passage(name=name, title=title, **own)


def listing(name: str, title: str, rows: Rows, *, without: Collection[str] = (), **more: Any) -> Passage:
    """Rows as a passage's table, without the columns that are empty in all of them."""
    lines = [readable(row, without=without) for row in rows]
    empty = {key for key in (lines[0] if lines else ()) if key != "text" and all(r[key] in (None, "") for r in lines)}
    return Passage(
        name=name, title=title, rows=[{k: v for k, v in line.items() if k not in empty} for line in lines], **more
    )


def steps_of(view: RunView, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Optimizer steps of each update, in sum."""
    rows = view.rows("updates", "num_groups", "num_tokens", "gradient_norm", "loss", of=records)
    steps = [[row for row in rows if row["artifact_key"] == record.key] for record in records]
    return [
        {
            "steps": len(own),
            "groups": sum(row["num_groups"] for row in own),
            "tokens": sum(row["num_tokens"] for row in own),
            "gradient_norm": own[0]["gradient_norm"] if own else None,
            "loss": own[-1]["loss"] if own else None,
            "checkpoint": record.key,
        }
        for record, own in zip(records, steps, strict=True)
    ]


def role_of(update: Record) -> str:
    """Role whose checkpoint an update makes."""
    return update.phase.removeprefix("update_")


def checkpoint_name(record: Record | None) -> str:
    """A checkpoint by its role and iteration."""
    if record is None:
        return "a checkpoint that is gone from the store"
    if record.phase == "anchor":
        return f"the anchor, {record.key}"
    return f"{role_of(record)} after {record.iteration + 1} iterations, {record.key}"
