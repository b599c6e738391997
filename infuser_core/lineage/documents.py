"""Lineage of a document or a textbook: where it came from, and what became of it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.lineage.answer import Answer, Passage
from infuser_core.lineage.run_view import RunView, pick
from infuser_core.store.views import Rows

SOURCE = (
    "source_id", "title", "author", "discipline", "category", "licence", "licence_evidence", "source_url",
    "download_url", "filename", "sha256", "num_bytes", "status", "reason",
)  # fmt: skip
DOCUMENT = ("document_id", "source_id", "header_path", "start", "end", "num_tokens", "domain", "prompt_type", "text")
ADDED = "training_pool"
"""Phase whose `documents` are no chunks of textbooks: problems with their answers, and blank rows."""
GIVEN = "given"
"""Role of a question that a row of the pool carries."""


def document(view: RunView, document_id: str) -> dict[str, Any] | None:
    """A chunk's row, from the pool or from the chunks that did not reach it; its `table` says which."""
    for table in ("documents", "chunks"):
        row = view.row(table, DOCUMENT, "document_id = ?", document_id)
        if row is not None:
            return row | {"table": table}
    return None


def passages(view: RunView, document_id: str) -> list[Passage]:
    """Textbook, pages, chunk and the judgement on it."""
    row = document(view, document_id)
    if row is None:
        return [Passage(name="document", title="Document", note=f"document {document_id} is gone from the store")]
    if view.graph.records[row["artifact_key"]].phase == ADDED:
        return [_added(row)]
    return [_source(view, row), _chunk(view, row), *_judgements(view, row)]


def _added(row: dict[str, Any]) -> Passage:
    return Passage(
        name="document",
        title="Row of the pool: a problem that is given" if row["text"] else "Blank row of the pool",
        artifact=row["artifact_key"],
        facts=pick(row, ("document_id", "source_id", "num_tokens", "domain", "prompt_type")),
        texts={"text": row["text"]} if row["text"] else {},
    )


def _registered(view: RunView, source_id: str) -> dict[str, Any] | None:
    """A textbook's registry entry; another copy of the book may have been rejected under the same identifier."""
    entries = view.rows("sources", SOURCE, "source_id = ?", source_id)
    return min(entries, key=lambda row: row["status"] != "admitted", default=None)


def _source(view: RunView, row: dict[str, Any]) -> Passage:
    source = _registered(view, row["source_id"])
    if source is None:
        note = _unregistered(view, row["source_id"])
        return Passage(name="source", title="Textbook", facts={"source_id": row["source_id"]}, note=note)
    facts = {name: source[name] for name in SOURCE if source[name] not in (None, "")}
    return Passage(name="source", title="Textbook", artifact=source["artifact_key"], facts=facts)


def _unregistered(view: RunView, source_id: str) -> str:
    """Reason for a source without a registry entry."""
    if not source_id:
        return "the document names no source"
    if not view.graph.holding("sources"):
        return "the run read no registry of sources: its pool is documents alone, without a build's sources.parquet"
    return "the registry of the run's pool has no such source"


def _chunk(view: RunView, row: dict[str, Any]) -> Passage:
    facts = pick(row, DOCUMENT[:-1]) | {"in_pool": row["table"] == "documents", **_pages(view, row)}
    return Passage(
        name="document",
        title="Chunk of the textbook",
        artifact=row["artifact_key"],
        facts=facts,
        texts={"text": row["text"]},
    )


def _pages(view: RunView, row: dict[str, Any]) -> dict[str, Any]:
    """The pages of the book that a chunk lies on, counted from 1, where the converter knows them."""
    columns = ("num_pages", "converter", "page_starts", "sha256")
    page = view.row("pages", columns, "source_id = ? and reason = ''", row["source_id"])
    if page is None:
        return {}
    found = {"converter": page["converter"], "markdown_sha256": page["sha256"], "num_pages": page["num_pages"]}
    starts = page["page_starts"] or []
    if not starts:
        return found
    first, last = bisect_right(starts, row["start"]), bisect_right(starts, row["end"] - 1)
    return {"page": first if first == last else f"{first}-{last}"} | found


def _judgements(view: RunView, row: dict[str, Any]) -> list[Passage]:
    columns = ("keep", "reason", "decided_by", "response")
    found = view.rows("judgements", columns, "document_id = ?", row["document_id"])
    if not found:
        return []
    matches = ("shard", "record", "record_id", "longest_run", "containment_document", "matched")
    overlaps = view.rows("overlaps", matches, "document_id = ?", row["document_id"])
    # What was decided last stands: after chunking the judge, after the judge the overlap rule of the pool.
    order = list(view.graph.records)
    last = max(found, key=lambda row: order.index(row["artifact_key"]))
    return [
        Passage(
            name="judgement",
            title="Why the chunk was kept" if last["keep"] else "Why the chunk was dropped",
            artifact=last["artifact_key"],
            facts=pick(last, ("keep", "decided_by", "reason")) | {"overlaps_found": len(overlaps)},
            texts={"judge": last["response"]} if last["response"] else {},
            rows=[pick(overlap, matches) for overlap in overlaps],
        )
    ]


def of_document(view: RunView, document_id: str) -> Answer:
    """Story of a chunk in a run."""
    written = drawn(view, [document_id])
    keys = dict.fromkeys(row["artifact_key"] for row in written)
    updates = {user.key: user for key in keys for user in view.graph.users(key, "update_generator")}
    columns = ("rollout_id", "reward", "advantage", "trained")
    rewards = view.rows("generator_scores", columns, "document_id = ?", document_id, of=updates.values())
    entered = Passage(
        name="rewards",
        title="Rewards and advantages of the generator",
        rows=[{"iteration": updates[row["artifact_key"]].iteration, **pick(row, columns)} for row in rewards],
        note="" if rewards else "none: no update of the generator read it",
    )
    iterations, questions = {row["iteration"] for row in written}, [row for row in written if row["question_id"]]
    headline = f"drawn in {len(iterations)} iterations; {len(written)} texts, {len(questions)} of them questions"
    return view.answer("document", document_id, headline, [*passages(view, document_id), _texts(written), entered])


def of_source(view: RunView, source_id: str) -> Answer:
    """Story of a textbook in a run."""
    chunks = view.rows("chunks", ("document_id", "header_path"), "source_id = ?", source_id)
    pool = {row["document_id"] for row in view.rows("documents", ("document_id",), "source_id = ?", source_id)}
    questions = Counter(row["document_id"] for row in drawn(view, sorted(pool)) if row["question_id"] is not None)
    found = _registered(view, source_id) or {"artifact_key": ""}
    facts = {name: value for name, value in found.items() if name != "artifact_key"}
    rows = [
        {
            "document_id": row["document_id"],
            "in_pool": row["document_id"] in pool,
            "questions": questions[row["document_id"]],
            "header_path": row["header_path"],
        }
        for row in chunks
    ]
    headline = f"{len(pool)} of {len(chunks)} chunks in the pool; {questions.total()} questions were written from them"
    told = [
        Passage(name="source", title="Textbook", artifact=found["artifact_key"], facts=facts),
        Passage(name="documents", title="Its chunks", rows=rows),
    ]
    return view.answer("source", source_id, headline, told)


def drawn(view: RunView, document_ids: list[str]) -> Rows:
    """Every text the generator wrote from these documents, with the question it became and what that scored."""
    records = {record.key: record for record in view.graph.of("generate_questions")}
    columns = ("rollout_id", "group_id", "verdict", "malformed_reason")
    texts = view.rows("rollouts", columns, "list_contains(?, group_id)", document_ids, of=records.values())
    asked = ("question_id", "rollout_id", "document_id")
    became = view.rows("questions", asked, "list_contains(?, document_id)", document_ids, of=records.values())
    # A row that carries its question gives it without a text of the generator.
    texts += [
        row | {"group_id": row["document_id"], "verdict": GIVEN, "malformed_reason": ""}
        for row in became
        if not row["rollout_id"]
    ]
    questions = {(row["artifact_key"], row["rollout_id"] or row["document_id"]): row["question_id"] for row in became}
    scored = [user for key in records for user in view.graph.users(key, "score_influence")]
    columns = ("question_id", "score", "status", "solver_accuracy")
    wanted = sorted(set(questions.values()))
    rows = view.rows("scores", columns, "list_contains(?, question_id)", wanted, of=scored)
    scores = {row["question_id"]: row for row in rows}
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
                **{name: score.get(name) for name in columns[1:]},
                "artifact_key": row["artifact_key"],
            }
        )
    return sorted(found, key=lambda row: (row["iteration"], row["rollout_id"]))


def _texts(written: Sequence[dict[str, Any]]) -> Passage:
    names = ("iteration", "rollout_id", "verdict", "question_id", "status", "score", "solver_accuracy")
    return Passage(
        name="texts",
        title="What the generator wrote from it",
        rows=[pick(row, names) for row in written],
        note="" if written else "never drawn in this run",
    )
