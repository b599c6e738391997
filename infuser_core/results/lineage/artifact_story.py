"""Explanations by `infuser why` of checkpoints and of all other artifacts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.config.phase_table import CHECKPOINTS, TESTS, Phase
from infuser_core.errors import quantity
from infuser_core.results.lineage.run_view import RunView, role_of
from infuser_core.results.lineage.story import Passage, Story, format_value, table_passage
from infuser_core.store.recipe import Record
from infuser_core.system.sealed import canonical


def artifact_story(view: RunView, record: Record) -> Story:
    """Explain an artifact by its recipe, its inputs and its users; a checkpoint by its updates."""
    if record.phase in CHECKPOINTS:
        return checkpoint_story(view, record)
    users = view.graph.users(record.key)
    facts = {
        "iteration": record.iteration,
        "seed": record.seed,
        "rows": dict(record.rows),
        "summary": dict(record.summary),
        "settings": canonical(record.config),
    }
    passages = [
        _record_passage("artifact", "Artifact", record, facts),
        _records_passage("made_from", "Made from, the nearest first", view.graph.above(record.key)),
        _records_passage("used_by", "Used by", users),
    ]
    headline = f"{record.phase}, made from {quantity(len(record.inputs), 'artifact')}, used by {len(users)}"
    return view.story("artifact", record.id, headline, passages)


def _record_passage(name: str, title: str, record: Record, facts: dict[str, Any]) -> Passage:
    """Passage with `facts`, followed by those of the artifact's commit record."""
    machine = {"machine": record.machine} if record.machine else {}
    facts |= {"code_version": record.version, "seconds": record.seconds, "bytes": record.num_bytes}
    facts |= {"created": record.created, **machine, "id": record.id}
    return Passage(name=name, title=title, artifact=record.key, facts=facts)


def _records_passage(name: str, title: str, records: Sequence[Record]) -> Passage:
    rows = [{"phase": record.phase, "iteration": record.iteration, "artifact": record.key} for record in records]
    return Passage(name=name, title=title, rows=rows, note="" if rows else "nothing")


def checkpoint_story(view: RunView, record: Record) -> Story:
    """Explain a checkpoint by its updates, their textbooks, its scores and its users."""
    chain = view.graph.trained(record.key)
    tests = {user.key: user for user in view.graph.below([record.key], phases=TESTS)}
    scores = [
        {"phase": tests[row["artifact_key"]].phase, **row} for row in view.rows("benchmark_scores", of=tests.values())
    ]
    headline = (
        f"{view.describe_checkpoint(record.key)}: {len(chain) - 1} updates, optimizer step {record.summary.get('step')}"
    )
    validation = next((row for row in scores if row["phase"] == Phase.VALIDATE), None)
    if validation:
        headline += f", validation accuracy {format_value(validation['accuracy'])}"
    selection = view.selected()
    facts = {
        "role": role_of(record),
        "after_iterations": record.iteration + 1,
        "selected": selection is not None and selection["checkpoint_id"] == record.id,
        "made_from": view.graph.inputs(record.key),
    }
    updates = [
        {"iteration": each.iteration if each.iteration >= 0 else None, "step": each.summary.get("step"), **steps}
        for each, steps in zip(chain, view.steps(chain), strict=True)
    ]
    note = "" if scores else "not validated or evaluated in this run"
    passages = [
        _record_passage("checkpoint", "Checkpoint", record, facts),
        Passage(name="updates", title="Updates from the anchor", rows=updates),
        _textbooks_passage(view, chain),
        table_passage("scores", "Accuracy", scores, without=("checkpoint_id",), note=note),
        _records_passage("used_by", "What was made with it", view.graph.users(record.key)),
    ]
    return view.story("checkpoint", record.id, headline, passages)


def _textbooks_passage(view: RunView, chain: Sequence[Record]) -> Passage:
    """Passage on the textbooks of the questions that the updates read."""
    updates = [record for record in chain if "questions" in view.graph.inputs(record.key)]
    batches = {batch.key: batch for batch in (view.source(update.key, "questions") for update in updates)}
    questions = view.rows("questions", "document_id", of=batches.values())
    sources = {row["document_id"]: row["source_id"] for row in view.rows("documents", "document_id", "source_id")}
    counts = Counter(sources.get(row["document_id"], "unknown") for row in questions)
    entries = view.rows("sources", "source_id", "title", status="admitted")
    titles = {row["source_id"]: row["title"] for row in entries}
    rows = [{"title": titles.get(name), "questions": count, "source_id": name} for name, count in counts.most_common()]
    facts = {
        "questions": len(questions),
        "documents": len({row["document_id"] for row in questions}),
        "textbooks": len(counts),
    }
    return Passage(name="material", title="Generated questions it was trained on, by textbook", facts=facts, rows=rows)
