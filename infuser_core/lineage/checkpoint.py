"""The story of a checkpoint: the updates that made it, what they were made from, and what it scored."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.question import UPDATE
from infuser_core.lineage.run_view import SCORED, Sight, checkpoint_name, selected
from infuser_core.store.catalogue import Record


def of_checkpoint(sight: Sight, record: Record) -> Answer:
    """Why a checkpoint is what it is."""
    chain = sight.graph.trained(record.key)
    scores = _scores(sight, record)
    passages = [_itself(sight, record), _path(sight, chain), _material(sight, chain), scores, _used(sight, record)]
    headline = (
        f"{checkpoint_name(sight, record)}: {len(chain) - 1} updates, optimizer step {record.summary.get('step')}"
    )
    validation = next((row for row in scores.rows if row["phase"] == "validate"), None)
    if validation:
        headline += f", validation accuracy {shown(validation['accuracy'])}"
    return Answer(id=record.ref.id, kind="checkpoint", run=sight.graph.run, headline=headline, passages=passages)


def _itself(sight: Sight, record: Record) -> Passage:
    chosen = selected(sight)
    facts = {
        "id": record.ref.id,
        "role": record.phase.removeprefix("update_"),
        "after_iterations": record.iteration + 1,
        "made_from": dict(sight.graph.inputs(record.key)),
        "code_version": record.version,
        "seconds": record.seconds,
        "bytes": record.num_bytes,
        "created": record.created,
        **({"machine": record.machine} if record.machine else {}),
        "selected": chosen is not None and chosen["checkpoint_id"] == record.ref.id,
    }
    return Passage(name="checkpoint", title="Checkpoint", artifact=record.key, facts=facts)


def _path(sight: Sight, chain: Sequence[Record]) -> Passage:
    """One row per update on the way from the anchor."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in sight.rows(chain, "updates", UPDATE):
        steps.setdefault(row["artifact_key"], []).append(row)
    rows = []
    for record in chain:
        taken = steps.get(record.key, [])
        rows.append(
            {
                "iteration": record.iteration if record.iteration >= 0 else None,
                "steps": len(taken),
                "step": record.summary.get("step"),
                "groups": sum(row["num_groups"] for row in taken),
                "tokens": sum(row["num_tokens"] for row in taken),
                "gradient_norm": taken[0]["gradient_norm"] if taken else None,
                "loss": taken[-1]["loss"] if taken else None,
                "checkpoint": record.key,
            }
        )
    return Passage(name="updates", title="Updates from the anchor", rows=rows)


def _material(sight: Sight, chain: Sequence[Record]) -> Passage:
    """The textbooks behind the questions that the updates read."""
    records = sight.graph.catalogue.records
    keys = {sight.graph.inputs(record.key).get("questions") for record in chain}
    written = [records[key] for key in sorted(key for key in keys if key)]
    questions = sight.rows(written, "questions", ("document_id",))
    per_document = Counter(row["document_id"] for row in questions)
    pool = sight.rows(sight.graph.holding("documents"), "documents", ("document_id", "source_id"))
    book = {row["document_id"]: row["source_id"] for row in pool}
    per_source = Counter(book.get(row["document_id"], "unknown") for row in questions)
    titles = {
        row["source_id"]: row["title"]
        for row in sight.rows(sight.graph.holding("sources"), "sources", ("source_id", "title"), "status = 'admitted'")
    }
    rows = [
        {"source_id": name, "title": titles.get(name), "questions": count} for name, count in per_source.most_common()
    ]
    facts = {"questions": len(questions), "documents": len(per_document), "textbooks": len(per_source)}
    return Passage(name="material", title="Generated questions behind it, by textbook", facts=facts, rows=rows)


def _scores(sight: Sight, record: Record) -> Passage:
    tested = {user.key: user for user in _tests(sight, record)}
    found = sight.rows(tested.values(), "benchmark_scores", SCORED)
    rows = [
        {
            "phase": tested[row["artifact_key"]].phase,
            **{n: row[n] for n in SCORED if n != "checkpoint_id"},
            "artifact": row["artifact_key"],
        }
        for row in found
    ]
    note = "" if rows else "not validated or evaluated in this run"
    return Passage(name="scores", title="What it scored", rows=rows, note=note)


def _tests(sight: Sight, record: Record) -> list[Record]:
    """Validations and evaluations of a checkpoint, at once or by way of its saved responses."""
    tests: dict[str, Record] = {}
    ahead = list(sight.graph.users(record.key))
    while ahead:
        user = ahead.pop()
        if user.phase in ("respond", "validate", "evaluate") and user.key not in tests:
            tests[user.key] = user
            ahead += sight.graph.users(user.key)
    return [test for test in sight.graph.records.values() if test.key in tests]


def _used(sight: Sight, record: Record) -> Passage:
    rows = [
        {"phase": user.phase, "iteration": user.iteration if user.iteration >= 0 else None, "artifact": user.key}
        for user in sight.graph.users(record.key)
    ]
    return Passage(name="used_by", title="What was made with it", rows=rows, note="" if rows else "nothing yet")
