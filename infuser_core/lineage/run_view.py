"""One run for reading: its artifact graph, the rows of its tables, its checkpoints, validations and selection."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.lineage.answer import Answer, Passage
from infuser_core.lineage.graph import Graph
from infuser_core.store.recipe import Record
from infuser_core.store.views import Lens, Rows

SCORED = ("benchmark", "checkpoint_id", "accuracy", "low", "high", "num_questions")
FOREIGN = ("model-", "openai:")
"""How rollouts name models that are no checkpoint of the run: by their weights' digest, or their address."""


def pick(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some columns of a row."""
    return {name: row[name] for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run, seen through SQL views."""

    lens: Lens
    """Row access."""
    graph: Graph
    """The run's artifacts."""

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        where: str = "true",
        *parameters: Any,
        of: Iterable[Record] | None = None,
    ) -> Rows:
        """Rows of one table in order: in these artifacts, or in all of the run that have the table."""
        keys = [record.key for record in (self.graph.holding(table) if of is None else of)]
        return self.lens.rows(table, keys, columns, where=where, parameters=parameters)

    def row(
        self,
        table: str,
        columns: Sequence[str],
        where: str = "true",
        *parameters: Any,
        of: Iterable[Record] | None = None,
    ) -> dict[str, Any] | None:
        """The first such row, or None."""
        return next(iter(self.rows(table, columns, where, *parameters, of=of)), None)

    def record(self, identity: str) -> Record | None:
        """The artifact of an id, or of a key."""
        return self.graph.catalogue.find(identity.split("@")[0])

    def source(self, key: str, name: str) -> Record:
        """The named input of an artifact."""
        catalogue = self.graph.catalogue
        return catalogue.record(catalogue.input(key, name).key)

    def answer(self, kind: str, name: str, headline: str, passages: Sequence[Passage | None]) -> Answer:
        """Story of a thing in this run; passages that do not apply are None."""
        told = [passage for passage in passages if passage is not None]
        return Answer(id=name, kind=kind, run=self.graph.run, headline=headline, passages=told)

    def writer_name(self, identity: str) -> str:
        """The model that wrote a rollout, in words."""
        if identity.startswith(FOREIGN):
            return "a model in the generator's place, which is never updated"
        return checkpoint_name(self.record(identity))

    def validations(self) -> Rows:
        """Every validation of the run with its iteration, the earliest first."""
        records = {record.key: record for record in self.graph.of("validate")}
        rows = self.rows("benchmark_scores", SCORED, of=records.values())
        found = [{"after_iterations": records[row["artifact_key"]].iteration, **row} for row in rows]
        return sorted(found, key=lambda row: row["after_iterations"])

    def selected(self) -> dict[str, Any] | None:
        """The selected checkpoint; None before the selection."""
        columns = ("selected_iteration", "checkpoint_id", "accuracy")
        return self.row("selections", columns, of=self.graph.of("select"))


def checkpoint_name(record: Record | None) -> str:
    """A checkpoint in words."""
    if record is None:
        return "a checkpoint that is gone from the store"
    if record.phase == "anchor":
        return f"the anchor, {record.key}"
    return f"{record.phase.removeprefix('update_')} after {record.iteration + 1} iterations, {record.key}"


def question_of(row: Mapping[str, Any], more: Mapping[str, Any]) -> Passage:
    """A question with its reference answer, from its row; `more` stands beside the facts of the row."""
    lettered = zip("ABCDEFGHIJ", row["choices"] or [], strict=False)
    texts = {
        "question": row["text"],
        "choices": "\n".join(f"{letter}) {text}" for letter, text in lettered),
        "author's reasoning": row["reasoning"],
    }
    return Passage(
        name="question",
        title="The question, with its reference answer",
        artifact=row["artifact_key"],
        facts={**pick(row, ("question_id", "answer", "verifier", "domain", "subdomain")), **more},
        texts={label: body for label, body in texts.items() if body},
    )


def validation_around(view: RunView, iteration: int) -> Passage:
    """The last validation before an iteration's updates and the first after them."""
    found = view.validations()
    before = [row for row in found if row["after_iterations"] <= iteration][-1:]
    after = [row for row in found if row["after_iterations"] > iteration][:1]
    columns = ("after_iterations", "accuracy", "low", "high", "num_questions", "checkpoint_id")
    facts: dict[str, Any] = {}
    if before and after:
        between = after[0]["after_iterations"] - before[0]["after_iterations"]
        facts = {"change": after[0]["accuracy"] - before[0]["accuracy"], "iterations_between": between}
    chosen = view.selected()
    if chosen is not None:
        facts["selected_iteration"] = chosen["selected_iteration"]
        facts["in_the_selected_checkpoint"] = chosen["selected_iteration"] > iteration
    note = "the change is that of all updates between the two validations, not of this one alone"
    return Passage(
        name="validation",
        title="Validation accuracy around the update",
        facts=facts,
        rows=[pick(row, columns) for row in [*before, *after]],
        note=note if after else "no validation after the update yet",
    )
