"""Stages that fill a document pool with accepted chunks: for a run, or as a folder that is exported."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from corpus import build as building
from corpus.build import BuiltSource
from corpus.chunk.chunk import Discarded, unconverted_texts
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.split import DESCRIPTION
from corpus.find.catalogue import Offer
from corpus.find.named_sources import SourceItem, reject_duplicate_items
from corpus.find.queries import Query
from corpus.find.registry import REJECTED, Coverage
from corpus.find.search import FailedQuery, Ranking
from corpus.find.topics import Assignment, Merge
from corpus.model_reply import ModelCall
from corpus.pool import MARKDOWN, SEARCH, markdown_name, write_table
from corpus.report import ReportInputs
from corpus.settings import BuildSettings
from infuser_core.config.corpus import ChunkSettings
from infuser_core.config.recorded import Mark
from infuser_core.errors import DocumentError
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.protocols import Progress
from infuser_core.schemas import Document, Judgement, Overlap, Page, Source, Topic
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system import durable
from tasks.audits import COMPARISON
from tasks.documents import accepted_chunks, judge_name
from tasks.run import Run
from tasks.stage import stage
from tasks.textbooks import numbered
from tasks.work import Work

VERSION = 2
BUILT_VERSION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """Documents that overlap with other data, with the reasons, by id."""

    dropped: Mapping[str, str]
    """Documents that the pool leaves out."""
    stopping: Annotated[Mapping[str, str], Mark.NEUTRAL] = field(default_factory=dict)
    """Documents that stop the run."""


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
    """Build the document pool (the paper's D_doc) from all book groups. Its key has the overlaps, not the audits."""
    rules = run.config.corpus.overlap
    with_questions, with_references = matches_of(run, audits), matches_of(run, references)
    dropped = {
        **(with_references if rules.reference_matched == "drop" else {}),
        **(with_questions if rules.matched == "drop" else {}),
    }
    stopping = {
        **(with_questions if rules.matched == "stop" else {}),
        **(with_references if rules.reference_matched == "stop" else {}),
    }
    inputs = {"sources": sources, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    values = Overlapping(dropped=dropped, stopping=stopping)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        if stopping:
            name = min(stopping)
            raise DocumentError(
                f"{len(stopping)} documents overlap, e.g. {name} {stopping[name]}",
                hint="look at them with `infuser sql`, or set corpus.overlap.matched or reference_matched to drop",
            )
        documents = accepted_chunks(run, chunks, judgements)
        pool = [document for document in documents if document.document_id not in dropped]
        if not pool:
            raise _empty_pool_error(run, pages, chunks, judgements)
        rows = [
            Judgement(document_id=row.document_id, keep=False, reason=reason, decided_by="overlap", response="")
            for row in sorted(documents, key=attrgetter("document_id"))
            if (reason := dropped.get(row.document_id))
        ]
        return Outcome(
            tables={
                "documents": Table(row_type=Document, rows=pool),
                "judgements": Table(row_type=Judgement, rows=rows),
            },
            summary={"documents": len(pool), "dropped": len(rows)},
        )

    return Work(recipe=run.recipe("pool", VERSION, values, inputs), produce=produce)


def matches_of(run: Run, audits: Sequence[ArtifactRef]) -> dict[str, str]:
    """Reasons why documents overlap, by id, from the longest match of each."""
    rows = [row for ref in audits for row in run.store.rows(ref, "overlaps", Overlap) if row.matched]
    return {row.document_id: building.overlap_reason(row) for row in sorted(rows, key=lambda row: row.longest_run)}


def _empty_pool_error(
    run: Run, pages: Sequence[ArtifactRef], chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]
) -> DocumentError:
    """Make the error for an empty pool; it names the stage that rejected the last chunk."""
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
            f"no chunk of {len(books) - len(rejected)} textbooks fits {sizes.min_tokens}..{sizes.max_tokens} tokens"
            f"{_nearest_lengths(run, chunks, sizes)}",
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


def _nearest_lengths(run: Run, chunks: Sequence[ArtifactRef], sizes: ChunkSettings) -> str:
    """Text with the lengths of discarded spans nearest to the limits of a chunk; empty if there are none."""
    spans = [row for ref in chunks for row in run.store.rows(ref, "discarded", Discarded) if row.num_tokens]
    short = [row.num_tokens for row in spans if row.num_tokens < sizes.min_tokens]
    long = [row.num_tokens for row in spans if row.num_tokens > sizes.max_tokens]
    lengths = [f"the longest below has {max(short)}"] * bool(short) + [f"the shortest above {min(long)}"] * bool(long)
    return f": {', '.join(lengths)}" if lengths else ""


_TAXONOMY: Mapping[str, type] = {
    "topics": Topic,
    "topic_assignments": Assignment,
    "topic_merges": Merge,
    "topic_calls": ModelCall,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSearch:
    """Artifacts of a search for books in catalogues."""

    topics: ArtifactRef
    searches: Sequence[ArtifactRef]
    """Offers of the catalogues, by group of topics."""
    choice: ArtifactRef
    """Admitted and rejected candidates."""
    downloads: Sequence[ArtifactRef]
    """Downloaded files, by group of sources."""
    sources: ArtifactRef
    """Registry of all candidates, with digests or reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookGroup:
    """Artifacts of one group of books, from pages to judgements."""

    pages: ArtifactRef
    bounds: ArtifactRef | None
    """Bounds of the teaching text that a model found, or None."""
    chunks: ArtifactRef
    judgements: ArtifactRef


@stage("built_pool")
def built_pool(
    run: Run,
    items: Sequence[SourceItem],
    search: CatalogueSearch | None,
    groups: Sequence[BookGroup],
    comparison: ArtifactRef | None,
    build: BuildSettings,
) -> Work:
    """Make the folder that `infuser corpus build` exports: tables, Markdown, report, and search results."""
    judge, tokenizer = judge_name(run), _tokenizer_name(run)
    inputs: dict[str, ArtifactRef | None] = {"comparison": comparison}
    if search is not None:
        inputs |= {"topics": search.topics, "chosen": search.choice, "sources": search.sources}
        inputs |= numbered("search", search.searches)
    for number, group in enumerate(groups):
        inputs |= {f"pages{number}": group.pages, f"bounds{number}": group.bounds}
        inputs |= {f"chunks{number}": group.chunks, f"judgements{number}": group.judgements}
    rules = run.config.corpus.overlap
    values = {
        "given": [[asdict(item.source), item.input, item.stage] for item in items],
        "told": [judge, tokenizer, run.config.corpus.structure],
        "audit": [rules.matched, rules.reference_matched, build.absent] if build.audited else [],
    }

    def produce(workspace: Path, progress: Progress) -> Outcome:
        all_items = reject_duplicate_items([*items, *_offered_items(run, search)])
        audit: dict[str, Any] | None = None
        findings: list[Overlap] | None = None
        dropped: dict[str, tuple[str, str, str]] = {}
        if build.audited:
            findings = run.store.rows(comparison, "overlaps", Overlap) if comparison else []
            audit = _audit_facts(run, comparison, groups)
            dropped = building.overlapping_documents(findings, audit.pop("questions"), rules)
            audit |= {"absent": build.absent, "dropped_documents": len(dropped)}
        report_facts = ReportInputs(
            judge=judge, tokenizer=tokenizer, audit=audit, **_search_tables(run, search, workspace)
        )
        books = {item.source.source_id: item for item in all_items if not item.stage}
        outcomes = _in_order_of(all_items, _built_books(run, groups, books, workspace, progress))
        facts = building.write_pool(workspace, (book.drop(dropped) for book in outcomes), findings, report_facts)
        return Outcome(tables={}, summary={name: facts[name] for name in ("documents", "sources", "discarded")})

    return Work(recipe=run.recipe("built_pool", BUILT_VERSION, values, inputs), produce=produce)


def _tokenizer_name(run: Run) -> str:
    """Description of the token counter for reports."""
    source = run.config.corpus.chunk.tokenizer or run.config.anchor
    return DESCRIPTION if source.type == "rules" else f"the tokenizer of {anchor_folder(source).name}"


def _offered_items(run: Run, search: CatalogueSearch | None) -> list[SourceItem]:
    """Items of a build that come from catalogues, with their registry rows."""
    if search is None:
        return []
    before = run.store.rows(search.choice, "candidates_sources", Source)
    after = run.store.rows(search.sources, "sources", Source)
    subdomains = {
        row.source_id: row.subdomain
        for row in reversed(run.store.rows(search.choice, "coverage", Coverage))
        if row.source_id
    }
    return [
        SourceItem(
            source=row,
            path=None,
            input=row.download_url or row.source_url,
            subdomain=subdomains.get(row.source_id, ""),
            stage="" if row.sha256 else "search" if candidate.status == REJECTED else "download",
        )
        for candidate, row in zip(before, after, strict=True)
    ]


def _in_order_of(items: Sequence[SourceItem], books: Iterator[BuiltSource]) -> Iterator[BuiltSource]:
    """Sort built books in the order of the items; items rejected before conversion are in no group."""
    ahead: dict[str, BuiltSource] = {}
    for item in items:
        while not item.stage and item.source.source_id not in ahead:
            book = next(books)
            ahead[book.item.source.source_id] = book
        yield BuiltSource(item=item) if item.stage else ahead.pop(item.source.source_id)


def _built_books(
    run: Run, groups: Sequence[BookGroup], books: Mapping[str, SourceItem], workspace: Path, progress: Progress
) -> Iterator[BuiltSource]:
    """Yield the result of each book, and write its Markdown into the workspace."""
    for number, group in enumerate(groups, 1):
        chunks = run.store.rows(group.chunks, "chunks", Document)
        spans = run.store.rows(group.chunks, "discarded", Discarded)
        verdicts = run.store.rows(group.judgements, "judgements", Judgement)
        bounds = run.store.rows(group.bounds, "structure_bounds", BookBounds) if group.bounds else []
        deciders = {
            row.source_id: f"{row.decided_by}: {row.problem}" if row.problem else row.decided_by for row in bounds
        }
        for page in run.store.rows(group.pages, "pages", Page):
            name = page.source_id
            if not page.reason:
                durable.write(workspace / MARKDOWN / markdown_name(name), page.markdown)
            built = BuiltSource(
                item=books[name],
                page=page,
                documents=[row for row in chunks if row.source_id == name],
                discarded=[*unconverted_texts(page), *(row for row in spans if row.source_id == name)],
                num_chars=len(page.markdown),
                structure="" if page.reason else deciders.get(name, _default_structure(run)),
                sizes=run.config.corpus.chunk,
            )
            yield built.apply_verdicts(verdicts)
        progress(number, len(groups), 0)


def _default_structure(run: Run) -> str:
    """Name of the method that finds front and back matter if no model does."""
    corpus = run.config.corpus
    return "" if corpus.structure == "off" or corpus.chunk.mode == "langchain" else "rules"


def _audit_facts(run: Run, comparison: ArtifactRef | None, groups: Sequence[BookGroup]) -> dict[str, Any]:
    if comparison is not None:
        return dict(json.loads(run.store.path(comparison, COMPARISON).read_text()))
    mode = run.config.corpus.overlap.mode
    documents = sum(run.store.manifest(group.judgements).summary["kept"] for group in groups)
    return {"mode": mode, "documents": documents, "controls": [], "references": [], "questions": []}


def _search_tables(run: Run, search: CatalogueSearch | None, workspace: Path) -> dict[str, Any]:
    """Write the tables of a search into the workspace; returns failures and coverage for the report."""
    if search is None:
        return {}
    tables: list[tuple[str, type, Sequence[ArtifactRef], str]] = [
        ("queries", Query, search.searches, "search_queries"),
        ("offers", Offer, search.searches, "offers"),
        ("rankings", Ranking, search.searches, "rankings"),
        ("model_calls", ModelCall, search.searches, "search_calls"),
        ("failures", FailedQuery, search.searches, "search_failures"),
        *((name, kind, [search.topics], name) for name, kind in _TAXONOMY.items()),
    ]
    rows: dict[str, list[Any]] = {}
    for name, kind, refs, table in tables:
        rows[name] = []
        for ref in refs:
            rows[name] += run.store.rows(ref, table, kind)
        write_table(workspace / SEARCH / f"{name}.parquet", rows[name], kind)
    coverage = run.store.rows(search.choice, "coverage", Coverage)
    return {"failures": rows["failures"], "coverage": coverage}
