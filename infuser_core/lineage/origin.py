"""From the textbook to the chunk: the first passages of a question's story."""

from bisect import bisect_right
from typing import Any

from infuser_core.lineage.answer import Passage
from infuser_core.lineage.sight import Sight

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
