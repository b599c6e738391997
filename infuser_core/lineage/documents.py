"""Lineage of a document or a textbook: where it came from, and what became of it."""

from bisect import bisect_right
from typing import Any

from infuser_core.lineage.answer import Answer, Passage
from infuser_core.lineage.run_view import Sight

SOURCE = (
    "source_id", "title", "author", "discipline", "category", "licence", "licence_evidence", "source_url",
    "download_url", "filename", "sha256", "num_bytes", "status", "reason",
)  # fmt: skip
DOCUMENT = ("document_id", "source_id", "header_path", "start", "end", "num_tokens", "domain", "prompt_type", "text")

ADDED = "training_pool"
"""Phase whose `documents` are no chunks of textbooks: problems with their answers, and blank rows."""


def document(sight: Sight, document_id: str) -> dict[str, Any] | None:
    """A chunk's row, from the pool or from the chunks that did not reach it; its `table` says which."""
    for table in ("documents", "chunks"):
        row = sight.row(sight.graph.holding(table), table, DOCUMENT, "document_id = ?", document_id)
        if row is not None:
            return row | {"table": table}
    return None


def passages(sight: Sight, document_id: str) -> list[Passage]:
    """Textbook, pages, chunk and the judgement on it."""
    row = document(sight, document_id)
    if row is None:
        return [Passage(name="document", title="Document", note=f"document {document_id} is gone from the store")]
    if sight.graph.records[row["artifact_key"]].phase == ADDED:
        return [_added(row)]
    return [_source(sight, row), _chunk(sight, row), *_judgements(sight, row)]


def _added(row: dict[str, Any]) -> Passage:
    facts = {name: row[name] for name in ("document_id", "source_id", "num_tokens", "domain", "prompt_type")}
    title = "Row of the pool: a problem that is given" if row["text"] else "Blank row of the pool"
    texts = {"text": row["text"]} if row["text"] else {}
    return Passage(name="document", title=title, artifact=row["artifact_key"], facts=facts, texts=texts)


def _source(sight: Sight, row: dict[str, Any]) -> Passage:
    source = sight.row(
        sight.graph.holding("sources"), "sources", SOURCE, "source_id = ? and status = 'admitted'", row["source_id"]
    ) or sight.row(sight.graph.holding("sources"), "sources", SOURCE, "source_id = ?", row["source_id"])
    if source is None:
        note = "the run's store has no registry entry of this source: the pool was imported"
        return Passage(name="source", title="Textbook", facts={"source_id": row["source_id"]}, note=note)
    facts = {name: source[name] for name in SOURCE if source[name] not in (None, "")}
    return Passage(name="source", title="Textbook", artifact=source["artifact_key"], facts=facts)


def _chunk(sight: Sight, row: dict[str, Any]) -> Passage:
    facts = {name: row[name] for name in DOCUMENT if name != "text"}
    facts |= {"in_pool": row["table"] == "documents", **_pages(sight, row)}
    return Passage(
        name="document",
        title="Chunk of the textbook",
        artifact=row["artifact_key"],
        facts=facts,
        texts={"text": row["text"]},
    )


def _pages(sight: Sight, row: dict[str, Any]) -> dict[str, Any]:
    """The pages of the book that a chunk lies on, counted from 1, where the converter knows them."""
    columns = ("num_pages", "converter", "page_starts", "sha256")
    page = sight.row(sight.graph.holding("pages"), "pages", columns, "source_id = ? and reason = ''", row["source_id"])
    if page is None:
        return {}
    found = {"converter": page["converter"], "markdown_sha256": page["sha256"], "num_pages": page["num_pages"]}
    starts = page["page_starts"] or []
    if not starts:
        return found
    first, last = bisect_right(starts, row["start"]), bisect_right(starts, row["end"] - 1)
    return {"page": first if first == last else f"{first}-{last}"} | found


def _judgements(sight: Sight, row: dict[str, Any]) -> list[Passage]:
    columns = ("keep", "reason", "decided_by", "response")
    found = sight.rows(sight.graph.holding("judgements"), "judgements", columns, "document_id = ?", row["document_id"])
    if not found:
        return []
    overlaps = sight.rows(
        sight.graph.holding("overlaps"),
        "overlaps",
        ("reference_id", "longest_run", "containment_document", "matched"),
        "document_id = ? and not starts_with(reference_id, 'control:')",
        row["document_id"],
    )
    # What was decided last stands: after chunking the judge, after the judge the overlap rule of the pool.
    order = list(sight.graph.records)
    last = max(found, key=lambda row: order.index(row["artifact_key"]))
    facts = {name: last[name] for name in ("keep", "decided_by", "reason")} | {"overlaps_found": len(overlaps)}
    return [
        Passage(
            name="judgement",
            title="Why the chunk was kept" if last["keep"] else "Why the chunk was dropped",
            artifact=last["artifact_key"],
            facts=facts,
            texts={"judge": last["response"]} if last["response"] else {},
            rows=[{name: value for name, value in row.items() if name != "artifact_key"} for row in overlaps],
        )
    ]


GIVEN = "given"
"""What a question counts as that a row of the pool carries."""


def of_document(sight: Sight, document_id: str) -> Answer:
    """What a chunk of a textbook did in a run."""
    written = drawn(sight, [document_id])
    keys = dict.fromkeys(row["artifact_key"] for row in written)
    updates = {user.key: user for key in keys for user in sight.graph.users(key, "update_generator")}
    columns = ("rollout_id", "reward", "advantage", "trained")
    rewards = sight.rows(updates.values(), "generator_scores", columns, "document_id = ?", document_id)
    entered = Passage(
        name="rewards",
        title="Rewards and advantages of the generator",
        rows=[
            {"iteration": updates[row["artifact_key"]].iteration, **{name: row[name] for name in columns}}
            for row in rewards
        ],
        note="" if rewards else "none: no update of the generator read it",
    )
    iterations = sorted({row["iteration"] for row in written})
    headline = (
        f"drawn in {len(iterations)} iterations; {len(written)} texts, "
        f"{sum(row['question_id'] is not None for row in written)} of them questions"
    )
    return Answer(
        id=document_id,
        kind="document",
        run=sight.graph.run,
        headline=headline,
        passages=[*passages(sight, document_id), _texts(written), entered],
    )


def of_source(sight: Sight, source_id: str) -> Answer:
    """What a textbook did in a run."""
    chunks = sight.rows(
        sight.graph.holding("chunks"), "chunks", ("document_id", "header_path"), "source_id = ?", source_id
    )
    pool = sight.rows(sight.graph.holding("documents"), "documents", ("document_id",), "source_id = ?", source_id)
    kept = {row["document_id"] for row in pool}
    written = drawn(sight, sorted(kept))
    counts: dict[str, int] = {}
    for row in written:
        counts[row["document_id"]] = counts.get(row["document_id"], 0) + (row["question_id"] is not None)
    entries = sight.rows(sight.graph.holding("sources"), "sources", SOURCE, "source_id = ?", source_id)
    # Another copy of the book may have been rejected under the same identifier.
    found = min(entries, key=lambda row: row["status"] != "admitted", default=None)
    facts = {name: value for name, value in (found or {}).items() if name != "artifact_key"}
    rows: list[dict[str, Any]] = [
        {"document_id": row["document_id"], "in_pool": row["document_id"] in kept,
         "questions": counts.get(row["document_id"], 0), "header_path": row["header_path"]}
        for row in chunks
    ]  # fmt: skip
    headline = (
        f"{len(kept)} of {len(chunks)} chunks in the pool; {sum(counts.values())} questions were written from them"
    )
    return Answer(
        id=source_id,
        kind="source",
        run=sight.graph.run,
        headline=headline,
        passages=[
            Passage(name="source", title="Textbook", artifact=(found or {}).get("artifact_key", ""), facts=facts),
            Passage(name="documents", title="Its chunks", rows=rows),
        ],
    )


def drawn(sight: Sight, document_ids: list[str]) -> list[dict[str, Any]]:
    """Every text the generator wrote from these documents, with the question it became and what that scored."""
    records = {record.key: record for record in sight.graph.of("generate_questions")}
    columns = ("rollout_id", "group_id", "verdict", "malformed_reason")
    texts = sight.rows(records.values(), "rollouts", columns, "list_contains(?, group_id)", document_ids)
    asked = ("question_id", "rollout_id", "document_id")
    became = sight.rows(records.values(), "questions", asked, "list_contains(?, document_id)", document_ids)
    # A row that carries its question gives it without a text of the generator.
    texts += [
        row | {"group_id": row["document_id"], "verdict": GIVEN, "malformed_reason": ""}
        for row in became
        if not row["rollout_id"]
    ]
    questions = {(row["artifact_key"], row["rollout_id"] or row["document_id"]): row["question_id"] for row in became}
    scored = [user for key in records for user in sight.graph.users(key, "score_influence")]
    wanted = sorted(set(questions.values()))
    scores = {
        row["question_id"]: row
        for row in sight.rows(
            scored, "scores", ("question_id", "score", "status", "solver_accuracy"),
            "list_contains(?, question_id)", wanted,
        )
    }  # fmt: skip
    found = []
    for row in texts:
        question = questions.get((row["artifact_key"], row["rollout_id"] or row["group_id"]))
        score = scores.get(question or "", {})
        found.append(
            {
                "iteration": records[row["artifact_key"]].iteration,
                "document_id": row["group_id"],
                "rollout_id": row["rollout_id"],
                "verdict": row["malformed_reason"] or row["verdict"],
                "question_id": question,
                "score": score.get("score"),
                "status": score.get("status"),
                "solver_accuracy": score.get("solver_accuracy"),
                "artifact_key": row["artifact_key"],
            }
        )
    return sorted(found, key=lambda row: (row["iteration"], row["rollout_id"]))


def _texts(written: list[dict[str, Any]]) -> Passage:
    names = ("iteration", "rollout_id", "verdict", "question_id", "status", "score", "solver_accuracy")
    return Passage(
        name="texts",
        title="What the generator wrote from it",
        rows=[{name: row[name] for name in names} for row in written],
        note="" if written else "never drawn in this run",
    )
