"""The document pool: what the judge kept and, as configured, what the overlap audit leaves of it."""

from collections.abc import Sequence
from pathlib import Path

from infuser_core.engines.protocols import Progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Judgement, Overlap, Page
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.run import Run, current
from tasks.stage import stage
from tasks.work import Work

VERSION = 2
CONTROL = "control:"
"""Planted pairs are named so, and match nothing real."""


@stage("pool")
def fill_pool(
    run: Run,
    sources: ArtifactRef | None,
    pages: Sequence[ArtifactRef],
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    audits: Sequence[ArtifactRef],
    references: Sequence[ArtifactRef],
) -> Work:
    """The document pool D_doc of all groups; a pool that was given has no sources.

    Audits enter by their effect: one that finds nothing changes no pool.
    """
    rules = run.config.corpus.overlap
    asked, foreign = matched(run, audits), matched(run, references)
    dropped = {**(foreign if rules.reference_matched == "drop" else {}), **(asked if rules.matched == "drop" else {})}
    stopping = {**(asked if rules.matched == "stop" else {}), **(foreign if rules.reference_matched == "stop" else {})}
    inputs = {"sources": sources, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    values = {"dropped": dropped, **({"stopping": stopping} if stopping else {})}

    def produce(workspace: Path, progress: Progress) -> Outcome:
        if stopping:
            name = min(stopping)
            raise DocumentError(
                f"{len(stopping)} documents overlap, e.g. {name} {stopping[name]}",
                hint="look at them with `infuser sql`, or set corpus.overlap.matched or reference_matched to drop",
            )
        documents = kept(run, chunks, judgements)
        pool = [document for document in documents if document.document_id not in dropped]
        if not pool:
            raise _empty(run, pages, chunks, judgements)
        rows = [
            Judgement(document_id=row.document_id, keep=False, reason=reason, decided_by="overlap", response="")
            for row, reason in ((row, dropped.get(row.document_id)) for row in sorted(documents, key=_name))
            if reason
        ]
        return Outcome(
            tables={
                "documents": Table(row_type=Document, rows=pool),
                "judgements": Table(row_type=Judgement, rows=rows),
            },
            summary={"documents": len(pool), "dropped": len(rows)},
        )

    return Work(recipe=run.recipe("pool", VERSION, values, inputs), produce=produce)


def _name(document: Document) -> str:
    return document.document_id


def numbered(name: str, refs: Sequence[ArtifactRef]) -> dict[str, ArtifactRef]:
    """Inputs of several groups."""
    return {f"{name}{number}": ref for number, ref in enumerate(refs)}


def kept(run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]) -> list[Document]:
    """The chunks of some groups that the judge kept."""
    found: list[Document] = []
    for group, verdicts in zip(chunks, judgements, strict=True):
        names = {row.document_id for row in run.store.rows(verdicts, "judgements", Judgement) if row.keep}
        found += [row for row in run.store.rows(group, "chunks", Document) if row.document_id in names]
    return found


def given(run: str) -> str:
    """The pool that the settings name, in place of one that is built; empty for none."""
    return current(run).config.corpus.pool


def matched(run: Run, audits: Sequence[ArtifactRef]) -> dict[str, str]:
    """Document to reason, for real pairs that match; planted controls are none."""
    found: dict[str, str] = {}
    for ref in audits:
        for row in run.store.rows(ref, "overlaps", Overlap):
            if row.matched and not row.reference_id.startswith(CONTROL):
                found[row.document_id] = f"overlaps {row.reference_id}, run of {row.longest_run} words"
    return found


def _empty(
    run: Run, pages: Sequence[ArtifactRef], chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]
) -> DocumentError:
    """Why nothing is left, and at which stage it was lost."""
    books = [page for ref in pages for page in run.store.rows(ref, "pages", Page)]
    rejected = [page for page in books if page.reason]
    if books and len(rejected) == len(books):
        return DocumentError(
            f"none of {len(books)} textbooks could be converted: {rejected[0].source_id}: {rejected[0].reason}",
            hint="scanned books need the marker converter (corpus.convert.type)",
        )
    sizes = run.config.corpus.chunk
    if not any(run.store.manifest(ref).rows["chunks"] for ref in chunks):
        return DocumentError(
            f"no chunk of {len(books) - len(rejected)} textbooks fits {sizes.min_tokens}..{sizes.max_tokens} tokens",
            hint="change corpus.chunk.min_tokens or max_tokens",
        )
    if not any(run.store.manifest(ref).summary["kept"] for ref in judgements):
        total = sum(run.store.manifest(ref).rows["chunks"] for ref in chunks)
        return DocumentError(
            f"the judge kept none of {total} chunks", hint='`infuser sql "select reason, count(*) from judgements"`'
        )
    return DocumentError(
        "every chunk that the judge kept overlaps with a question or a reference",
        hint="set corpus.overlap.matched or reference_matched to report, and look at `overlaps` with `infuser sql`",
    )
