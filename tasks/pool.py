"""Pool stages: what judge and overlap audit leave of the chunks, as the pool of a run or as a folder to export."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from corpus import build as building
from corpus.build import Built
from corpus.chunk.chunk import Discarded, unconverted_texts
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.split import DESCRIPTION
from corpus.find.catalogue import Offer
from corpus.find.intake import Item, without_twins
from corpus.find.queries import Query
from corpus.find.registry import REJECTED, Coverage
from corpus.find.search import Failure, Ranking
from corpus.find.topics import Assignment, Merge
from corpus.model_reply import ModelCall
from corpus.pool import MARKDOWN, SEARCH, markdown_name, write_table
from corpus.report import Told
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
from tasks.documents import judge_name, kept
from tasks.run import Run
from tasks.stage import stage
from tasks.textbooks import numbered
from tasks.work import Work

VERSION = 2
BUILT_VERSION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """Documents that overlap with data they must be apart from, by identifier, with the reason."""

    dropped: Mapping[str, str]
    """Those that the pool goes without."""
    stopping: Annotated[Mapping[str, str], Mark.NEUTRAL] = field(default_factory=dict)
    """Those that end the run."""


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
    """The document pool D_doc of all groups; audits enter by their effect: one that finds nothing changes no pool."""
    rules = run.config.corpus.overlap
    asked, foreign = matched(run, audits), matched(run, references)
    dropped = {**(foreign if rules.reference_matched == "drop" else {}), **(asked if rules.matched == "drop" else {})}
    stopping = {**(asked if rules.matched == "stop" else {}), **(foreign if rules.reference_matched == "stop" else {})}
    inputs = {"sources": sources, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    values = Overlapping(dropped=dropped, stopping=stopping)

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


def matched(run: Run, audits: Sequence[ArtifactRef]) -> dict[str, str]:
    """Document to reason, for pairs that match: the longest of each."""
    rows = [row for ref in audits for row in run.store.rows(ref, "overlaps", Overlap) if row.matched]
    return {row.document_id: building.overlap_reason(row) for row in sorted(rows, key=lambda row: row.longest_run)}


def _empty(
    run: Run, pages: Sequence[ArtifactRef], chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]
) -> DocumentError:
    """Reason for an empty pool, and the stage at which it was lost."""
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
            f"{_nearest(run, chunks, sizes)}",
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


def _nearest(run: Run, chunks: Sequence[ArtifactRef], sizes: ChunkSettings) -> str:
    """Lengths next to the limits of a chunk; empty where no span was left out for its length."""
    spans = [row for ref in chunks for row in run.store.rows(ref, "discarded", Discarded) if row.num_tokens]
    short = [row.num_tokens for row in spans if row.num_tokens < sizes.min_tokens]
    long = [row.num_tokens for row in spans if row.num_tokens > sizes.max_tokens]
    told = [f"the longest below has {max(short)}"] * bool(short) + [f"the shortest above {min(long)}"] * bool(long)
    return f": {', '.join(told)}" if told else ""


_TAXONOMY: Mapping[str, type] = {
    "topics": Topic,
    "topic_assignments": Assignment,
    "topic_merges": Merge,
    "topic_calls": ModelCall,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Artifacts of a search in catalogues."""

    topics: ArtifactRef
    """Pairs that were searched for."""
    searches: Sequence[ArtifactRef]
    """Offers, group by group."""
    chosen: ArtifactRef
    """Candidates."""
    downloads: Sequence[ArtifactRef]
    """Their files, group by group."""
    sources: ArtifactRef
    """Their registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Artifacts of one group of books."""

    pages: ArtifactRef
    """Their Markdown."""
    bounds: ArtifactRef | None
    """Where teaching begins and ends, where a model said so."""
    chunks: ArtifactRef
    """Candidates for the pool."""
    judgements: ArtifactRef
    """Which of them are kept."""


@stage("built_pool")
def built_pool(
    run: Run,
    items: Sequence[Item],
    found: Found | None,
    groups: Sequence[Group],
    comparison: ArtifactRef | None,
    build: BuildSettings,
) -> Work:
    """The folder that `infuser corpus build` exports: tables, Markdown, report, and what a search found."""
    judge, tokenizer = judge_name(run), _tokenizer(run)
    inputs: dict[str, ArtifactRef | None] = {"comparison": comparison}
    if found is not None:
        inputs |= {"topics": found.topics, "chosen": found.chosen, "sources": found.sources}
        inputs |= numbered("search", found.searches)
    for number, group in enumerate(groups):
        inputs |= {f"pages{number}": group.pages, f"bounds{number}": group.bounds}
        inputs |= {f"chunks{number}": group.chunks, f"judgements{number}": group.judgements}
    rules = run.config.corpus.overlap
    values = {
        "given": [[asdict(item.source), item.given, item.stage] for item in items],
        "told": [judge, tokenizer, run.config.corpus.structure],
        "audit": [rules.matched, rules.reference_matched, build.absent] if build.audited else [],
    }

    def produce(workspace: Path, progress: Progress) -> Outcome:
        every = without_twins([*items, *_offered(run, found)])
        audit: dict[str, Any] | None = None
        findings: list[Overlap] | None = None
        dropped: dict[str, tuple[str, str, str]] = {}
        if build.audited:
            findings = run.store.rows(comparison, "overlaps", Overlap) if comparison else []
            audit = _audit(run, comparison, groups)
            dropped = building.overlapping(findings, audit.pop("questions"), rules)
            audit |= {"absent": build.absent, "dropped_documents": len(dropped)}
        told = Told(judge=judge, tokenizer=tokenizer, audit=audit, **_search_tables(run, found, workspace))
        books = {item.source.source_id: item for item in every if not item.stage}
        built = _in_order(every, _made(run, groups, books, workspace, progress))
        facts = building.write(workspace, (one.minus(dropped) for one in built), findings, told)
        return Outcome(tables={}, summary={name: facts[name] for name in ("documents", "sources", "discarded")})

    return Work(recipe=run.recipe("built_pool", BUILT_VERSION, values, inputs), produce=produce)


def _tokenizer(run: Run) -> str:
    """The token counter, in words."""
    source = run.config.corpus.chunk.tokenizer or run.config.anchor
    return DESCRIPTION if source.type == "rules" else f"the tokenizer of {anchor_folder(source).name}"


def _offered(run: Run, found: Found | None) -> list[Item]:
    """The catalogues' entries, each with its registry row."""
    if found is None:
        return []
    before = run.store.rows(found.chosen, "candidates_sources", Source)
    after = run.store.rows(found.sources, "sources", Source)
    subdomains = {
        row.source_id: row.subdomain
        for row in reversed(run.store.rows(found.chosen, "coverage", Coverage))
        if row.source_id
    }
    return [
        Item(
            source=row,
            path=None,
            given=row.download_url or row.source_url,
            subdomain=subdomains.get(row.source_id, ""),
            stage="" if row.sha256 else "search" if candidate.status == REJECTED else "download",
        )
        for candidate, row in zip(before, after, strict=True)
    ]


def _in_order(every: Sequence[Item], made: Iterator[Built]) -> Iterator[Built]:
    """Outcomes in the order of the items, which is that of the groups but for items that never reached one."""
    ahead: dict[str, Built] = {}
    for item in every:
        while not item.stage and item.source.source_id not in ahead:
            one = next(made)
            ahead[one.item.source.source_id] = one
        yield Built(item=item) if item.stage else ahead.pop(item.source.source_id)


def _made(
    run: Run, groups: Sequence[Group], books: Mapping[str, Item], workspace: Path, progress: Progress
) -> Iterator[Built]:
    """Outcome of each book; its Markdown is written into the workspace."""
    for done, group in enumerate(groups, 1):
        chunks = run.store.rows(group.chunks, "chunks", Document)
        left = run.store.rows(group.chunks, "discarded", Discarded)
        verdicts = run.store.rows(group.judgements, "judgements", Judgement)
        bounds = run.store.rows(group.bounds, "structure_bounds", BookBounds) if group.bounds else []
        by = {row.source_id: f"{row.decided_by}: {row.problem}" if row.problem else row.decided_by for row in bounds}
        for page in run.store.rows(group.pages, "pages", Page):
            name = page.source_id
            if not page.reason:
                durable.write(workspace / MARKDOWN / markdown_name(name), page.markdown)
            built = Built(
                item=books[name],
                page=page,
                documents=[row for row in chunks if row.source_id == name],
                discarded=[*unconverted_texts(page), *(row for row in left if row.source_id == name)],
                num_chars=len(page.markdown),
                structure="" if page.reason else by.get(name, _structure(run)),
                sizes=run.config.corpus.chunk,
            )
            yield built.judged(verdicts)
        progress(done, len(groups), 0)


def _structure(run: Run) -> str:
    """The cutter of front and back matter where no model was asked."""
    corpus = run.config.corpus
    return "" if corpus.structure == "off" or corpus.chunk.mode == "langchain" else "rules"


def _audit(run: Run, comparison: ArtifactRef | None, groups: Sequence[Group]) -> dict[str, Any]:
    if comparison is not None:
        return dict(json.loads(run.store.path(comparison, COMPARISON).read_text()))
    mode = run.config.corpus.overlap.mode
    documents = sum(run.store.manifest(group.judgements).summary["kept"] for group in groups)
    return {"mode": mode, "documents": documents, "controls": [], "references": [], "questions": []}


def _search_tables(run: Run, found: Found | None, workspace: Path) -> dict[str, Any]:
    """Write what was asked and offered; returns what the report says of it."""
    if found is None:
        return {}
    tables: list[tuple[str, type, Sequence[ArtifactRef], str]] = [
        ("queries", Query, found.searches, "search_queries"),
        ("offers", Offer, found.searches, "offers"),
        ("rankings", Ranking, found.searches, "rankings"),
        ("model_calls", ModelCall, found.searches, "search_calls"),
        ("failures", Failure, found.searches, "search_failures"),
        *((name, kind, [found.topics], name) for name, kind in _TAXONOMY.items()),
    ]
    rows: dict[str, list[Any]] = {}
    for name, kind, refs, table in tables:
        rows[name] = []
        for ref in refs:
            rows[name] += run.store.rows(ref, table, kind)
        write_table(workspace / SEARCH / f"{name}.parquet", rows[name], kind)
    coverage = run.store.rows(found.chosen, "coverage", Coverage)
    return {"failures": rows["failures"], "coverage": coverage}
