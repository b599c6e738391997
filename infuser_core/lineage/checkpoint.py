"""Lineage of a checkpoint: the updates that made it, what they were made from, and what it scored."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.config.phase_table import TESTS
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.run_view import SCORED, RunView, checkpoint_name, pick
from infuser_core.store.recipe import Record


def of_checkpoint(view: RunView, record: Record) -> Answer:
    """Explanation of a checkpoint."""
    chain = view.graph.trained(record.key)
    scores = _scores(view, record)
    headline = f"{checkpoint_name(record)}: {len(chain) - 1} updates, optimizer step {record.summary.get('step')}"
    validation = next((row for row in scores.rows if row["phase"] == "validate"), None)
    if validation:
        headline += f", validation accuracy {shown(validation['accuracy'])}"
    told = [_itself(view, record), _path(view, chain), _material(view, chain), scores, _used(view, record)]
    return view.answer("checkpoint", record.id, headline, told)


def iteration_of(record: Record) -> int | None:
    """The co-training iteration of an artifact; None outside the loop."""
    return record.iteration if record.iteration >= 0 else None


def _itself(view: RunView, record: Record) -> Passage:
    chosen = view.selected()
    facts = {
        "id": record.id,
        "role": record.phase.removeprefix("update_"),
        "after_iterations": record.iteration + 1,
        "made_from": view.graph.inputs(record.key),
        "code_version": record.version,
        "seconds": record.seconds,
        "bytes": record.num_bytes,
        "created": record.created,
        **({"machine": record.machine} if record.machine else {}),
        "selected": chosen is not None and chosen["checkpoint_id"] == record.id,
    }
    return Passage(name="checkpoint", title="Checkpoint", artifact=record.key, facts=facts)


def _path(view: RunView, chain: Sequence[Record]) -> Passage:
    """One row per update on the way from the anchor."""
    steps: dict[str, list[dict[str, Any]]] = {record.key: [] for record in chain}
    for row in view.rows("updates", ("num_groups", "num_tokens", "gradient_norm", "loss"), of=chain):
        steps[row["artifact_key"]].append(row)
    rows = [
        {
            "iteration": iteration_of(record),
            "steps": len(steps[record.key]),
            "step": record.summary.get("step"),
            "groups": sum(row["num_groups"] for row in steps[record.key]),
            "tokens": sum(row["num_tokens"] for row in steps[record.key]),
            "gradient_norm": steps[record.key][0]["gradient_norm"] if steps[record.key] else None,
            "loss": steps[record.key][-1]["loss"] if steps[record.key] else None,
            "checkpoint": record.key,
        }
        for record in chain
    ]
    return Passage(name="updates", title="Updates from the anchor", rows=rows)


def _material(view: RunView, chain: Sequence[Record]) -> Passage:
    """The textbooks behind the questions that the updates read."""
    written = [view.source(record.key, "questions") for record in chain if "questions" in view.graph.inputs(record.key)]
    questions = view.rows("questions", ("document_id",), of={record.key: record for record in written}.values())
    pool = view.rows("documents", ("document_id", "source_id"))
    book = {row["document_id"]: row["source_id"] for row in pool}
    per_source = Counter(book.get(row["document_id"], "unknown") for row in questions)
    entries = view.rows("sources", ("source_id", "title"), "status = 'admitted'")
    titles = {row["source_id"]: row["title"] for row in entries}
    rows = [
        {"source_id": name, "title": titles.get(name), "questions": count} for name, count in per_source.most_common()
    ]
    documents = {row["document_id"] for row in questions}
    facts = {"questions": len(questions), "documents": len(documents), "textbooks": len(per_source)}
    return Passage(name="material", title="Generated questions behind it, by textbook", facts=facts, rows=rows)


def _scores(view: RunView, record: Record) -> Passage:
    """Validations and evaluations of a checkpoint, at once or by way of its saved responses."""
    tested = {user.key: user for user in view.graph.below([record.key], phases=TESTS)}
    rows = [
        {
            "phase": tested[row["artifact_key"]].phase,
            **pick(row, (name for name in SCORED if name != "checkpoint_id")),
            "artifact": row["artifact_key"],
        }
        for row in view.rows("benchmark_scores", SCORED, of=tested.values())
    ]
    note = "" if rows else "not validated or evaluated in this run"
    return Passage(name="scores", title="What it scored", rows=rows, note=note)


def _used(view: RunView, record: Record) -> Passage:
    rows = [
        {"phase": user.phase, "iteration": iteration_of(user), "artifact": user.key}
        for user in view.graph.users(record.key)
    ]
    return Passage(name="used_by", title="What was made with it", rows=rows, note="" if rows else "nothing yet")
