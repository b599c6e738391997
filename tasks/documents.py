"""Stages of documents: the configured question sets, and the steps from textbook files to judged chunks.

Textbooks are processed in the groups in which they were downloaded: each stage of a group makes an artifact that
depends on this group alone. Within a group, finished items survive a killed process.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from corpus.chunk import front_matter
from corpus.chunk import judge as judging
from corpus.chunk.chunk import Discarded
from corpus.chunk.cut import ConvertedBook, cut_books
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.split import RULE, Count, by_rule
from corpus.formats import pool_digest, read_documents
from corpus.model_reply import ATTEMPTS, ModelCall
from corpus.pool import read_sources, registry_of
from corpus.read import convert as converting
from corpus.read import doubt, embedded
from corpus.read.books import convert as converting_books
from corpus.read.convert import SourceFile
from corpus.read.converters import rapidocr
from corpus.read.file_kinds import file_of
from corpus.read.page import ConversionJob
from infuser_core.config.recorded import recorded
from infuser_core.errors import DocumentError
from infuser_core.evaluation.anchors import NamedModel, anchor_digest, anchor_folder, named_model, token_counter
from infuser_core.evaluation.answering import template_digest
from infuser_core.evaluation.benchmarks.parts import validation
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, is_seeded, load_questions, values_of
from infuser_core.prompts.templates import load_or_shipped
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Document, Judgement, Page, Question, Source
from infuser_core.store.pieces import Items, Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system.hub import fetch_address
from infuser_core.system.sealed import digest_of
from tasks.run import Run, current_run
from tasks.stage import stage
from tasks.textbooks import UNFINISHED, attempt_key
from tasks.work import Work

VERSION = 20
"""Version of the stages from textbook files to judged chunks."""
QUESTIONS_VERSION = 15
"""Version of the stages that load question sets."""
GIVEN_VERSION = 1
JUDGED_TOGETHER = 256
"""Chunks judged before their judgements are saved: at most this work is lost in a crash."""


@stage("questions")
def reference_questions(run: Run, part: str) -> Work:
    """Load the dev or the validation questions."""
    source = run.config.data.dev if part == "dev" else run.config.data.validation
    evaluated = run.config.evaluate.benchmarks

    def produce(workspace: Path, progress: Progress) -> Outcome:
        questions = load_questions(source, seed=run.config.seed, evaluated=evaluated)
        return Outcome(
            tables={"reference_questions": Table(row_type=Question, rows=questions)},
            summary={"part": part, "questions": len(questions)},
        )

    content = content_of(source, evaluated=evaluated)
    # Files enter the key by content: their paths and the run's seed do not matter.
    values = {"source": values_of(source), "content": content}
    recipe = run.recipe("questions", QUESTIONS_VERSION, values, {}, seed=run.config.seed if is_seeded(source) else 0)
    return Work(recipe=recipe, produce=produce)


@stage("questions")
def benchmark_questions(run: Run) -> Work:
    """Load the questions of the configured benchmarks, which the overlap audit searches for in the documents."""
    loaded = {b.label or b.name: find_benchmark(b.name)(b) for b in run.config.evaluate.benchmarks}

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = [
            replace(question, question_id=f"{label}/{question.question_id}")
            for label, questions in loaded.items()
            for question in questions
        ]
        return Outcome(
            tables={"audited_questions": Table(row_type=Question, rows=rows)},
            summary={"part": "benchmarks", "questions": len(rows)},
        )

    content = {label: validation.content_digest(questions) for label, questions in loaded.items()}
    return Work(recipe=run.recipe("questions", QUESTIONS_VERSION, {"benchmarks": content}, {}), produce=produce)


@stage("convert")
def convert_textbooks(run: Run, sources: ArtifactRef, download: ArtifactRef, *, attempt: int = 0) -> Work:
    """Convert one group's book files to Markdown. A restart continues with the files that are not converted."""
    config = run.config.corpus.convert
    group = _group(run, sources, download)
    # Name and version of the converter for pandoc's book formats enter the key of a group with such a book.
    is_source = any(converting_books.is_book(Path(name)) for name in run.store.manifest(download).files)
    formats = {"formats": converting_books.name()} if is_source else {}
    helpers = [
        name for name, trouble in converting.helper_troubles(ConversionJob(settings=config)).items() if not trouble
    ]
    # Name and version of the converter for scans enter the key once it is installed.
    scans = {"scans": rapidocr.name()} if converting.SCANS in helpers else {}
    values = {
        "settings": config,
        "version": embedded.CONVERTER,
        "helped": config.helper in helpers,
        # Books enter the key by content: catalogue data does not matter.
        "books": [[source.source_id, source.sha256] for source in group],
        **formats,
        **scans,
        **attempt_key(attempt),
    }
    recipe = run.recipe("convert", VERSION, values, {"download": download})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        folder = run.store.verified_folder(download)
        pieces = Pieces(run.store.partial(recipe), Page)
        # Workers in other processes cannot call this one's function.
        page_progress = progress if run.workers.has_threads else no_progress
        job = ConversionJob(settings=config, work=run.store.partial(recipe).resolve(), progress=page_progress)
        converted = {page.source_id: page for page in pieces.rows()}

        def keep(page: Page) -> None:
            converted[page.source_id] = page
            if not page.reason:
                pieces.add([page])
            progress(len(converted), len(group), 0)

        missing = [source for source in group if source.source_id not in converted]
        books = [SourceFile(path=file_of(folder, row.sha256).resolve(), source_id=row.source_id) for row in missing]
        converting.convert(books, job, run.workers, keep)
        pages = [converted[source.source_id] for source in group]
        rejected = sum(bool(page.reason) for page in pages)
        return Outcome(
            tables={"pages": Table(row_type=Page, rows=pages)},
            summary={
                "converted": len(pages) - rejected,
                "rejected": rejected,
                # A conversion that exceeded its time or memory may succeed later.
                UNFINISHED: sum(page.reason.startswith("unreadable:") for page in pages),
            },
        )

    return Work(recipe=recipe, produce=produce)


def _group(run: Run, sources: ArtifactRef, download: ArtifactRef) -> list[Source]:
    """Registry rows of the downloaded books of one group that have a file."""
    downloaded = {row.source_id for row in run.store.rows(download, "downloaded", Source)}
    return [row for row in run.store.rows(sources, "sources", Source) if row.sha256 and row.source_id in downloaded]


def has_structure_model(run: str) -> bool:
    """Whether a model, not rules, finds where the teaching text of books begins and ends."""
    corpus = current_run(run).config.corpus
    return corpus.structure == "model" and corpus.chunk.mode != "langchain"


def asks_model(run: str) -> bool:
    """Whether building the pool needs a model, to find the structure of books or to judge chunks."""
    corpus = current_run(run).config.corpus
    return (
        has_structure_model(run) or (corpus.judge or current_run(run).config.anchor).type not in judging.WITHOUT_MODEL
    )


@stage("structure")
def find_structure(run: Run, pages: ArtifactRef) -> Work:
    """Find the first chapter and the end of one group's books, by the judge's model, or by rules if it fails."""
    template = load_or_shipped("find_boundaries", profile=run.config.prompts)
    model = _judge_model(run)
    options = {"attempts": ATTEMPTS, "tokens": front_matter.MAX_TOKENS, "shown": front_matter.HEADINGS_PER_PROMPT}
    values = {"prompt": template_digest(template), **options, **model.identity}
    recipe = run.recipe("structure", VERSION, values, {"pages": pages})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        converted = _converted(run, pages)
        rows = Items(run.store.partial(recipe), BookBounds)
        calls = Items(run.store.partial(recipe), ModelCall)
        for count, page in enumerate(converted, 1):
            if rows.get(page.source_id) is None:
                bounds, call = front_matter.find_bounds(page, model.chat(), template)
                calls.keep(page.source_id, call)
                rows.keep(page.source_id, [bounds])
            progress(count, len(converted), 0)
        bounds_rows = rows.all([page.source_id for page in converted])
        return Outcome(
            tables={
                "structure_bounds": Table(row_type=BookBounds, rows=bounds_rows),
                "structure_calls": Table(row_type=ModelCall, rows=calls.all([page.source_id for page in converted])),
            },
            summary={"books": len(bounds_rows), "by_rules": sum(bool(row.problem) for row in bounds_rows)},
        )

    return Work(recipe=recipe, produce=produce)


def _converted(run: Run, pages: ArtifactRef) -> list[Page]:
    return [page for page in run.store.rows(pages, "pages", Page) if not page.reason]


def _judge_model(run: Run) -> NamedModel:
    """The model that judges chunks."""
    source = run.config.corpus.judge or run.config.anchor
    assert source.type != "rules" and source.type != "none", source
    return named_model(source, run.config.engine, run.pool, label="judge")


@stage("chunk")
def chunk_textbooks(
    run: Run, sources: ArtifactRef, download: ArtifactRef, pages: ArtifactRef, bounds: ArtifactRef | None
) -> Work:
    """Cut one group's books along headings into chunks of bounded length; discarded spans get a reason."""
    corpus = run.config.corpus
    tokenizer, load = _tokenizer(run)
    domains = {source.source_id: source.discipline for source in _group(run, sources, download)}
    values = {
        # The tokenizer enters the key by content.
        "chunk": recorded(corpus.chunk, without=("tokenizer",)),
        "structure": corpus.structure,
        "matter": front_matter.RULES,
        "doubt": doubt.RULES,
        "tokenizer": tokenizer,
        "domains": domains,
    }
    recipe = run.recipe("chunk", VERSION, values, {"pages": pages, "bounds": bounds})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        bounds_of = (
            {row.source_id: row for row in run.store.rows(bounds, "structure_bounds", BookBounds)} if bounds else {}
        )
        converted = _converted(run, pages)
        documents, judgements, spans = (
            Items(run.store.partial(recipe), kind) for kind in (Document, Judgement, Discarded)
        )
        missing = [
            ConvertedBook(page=page, domain=domains[page.source_id], bounds=bounds_of.get(page.source_id))
            for page in converted
            if documents.get(page.source_id) is None
        ]
        for count, (index, book) in enumerate(cut_books(missing, corpus, load, run.workers), 1):
            name = missing[index].page.source_id
            spans.keep(name, book.discarded)
            judgements.keep(name, book.judgements)
            documents.keep(name, book.candidates)
            progress(len(converted) - len(missing) + count, len(converted), 0)
        names = [page.source_id for page in converted]
        chunks, discarded = documents.all(names), judgements.all(names)
        return Outcome(
            tables={
                "chunks": Table(row_type=Document, rows=chunks),
                "judgements": Table(row_type=Judgement, rows=discarded),
                # Volatile: can be derived from chunks and pages; shown by a built pool.
                "discarded": Table(row_type=Discarded, rows=spans.all(names), volatile=True),
            },
            summary={"chunks": len(chunks), "discarded": len(discarded)},
        )

    return Work(recipe=recipe, produce=produce)


def _tokenizer(run: Run) -> tuple[str, Callable[[], Count]]:
    """Token counter: its identity (rule or digest of the model's files), and a function that loads it."""
    source = run.config.corpus.chunk.tokenizer or run.config.anchor
    if source.type == "rules":
        return RULE, by_rule
    folder = anchor_folder(source)
    return anchor_digest(folder), partial(token_counter, folder)


@stage("judge")
def judge_chunks(run: Run, chunks: ArtifactRef) -> Work:
    """Judge which of one group's chunks teach something. A restart continues with the remaining chunks."""
    source = run.config.corpus.judge or run.config.anchor
    if source.type in judging.WITHOUT_MODEL:
        name, decide = judging.WITHOUT_MODEL[source.type]

        def produce_by_rules(workspace: Path, progress: Progress) -> Outcome:
            return _judgements(name, decide(run.store.rows(chunks, "chunks", Document), run.workers, progress))

        recipe = run.recipe("judge", VERSION, {"model": name}, {"chunks": chunks})
        return Work(recipe=recipe, produce=produce_by_rules)
    template = load_or_shipped("judge_chunk", profile=run.config.prompts)
    model, tokens = _judge_model(run), run.config.corpus.judge_tokens
    options = {"attempts": ATTEMPTS, "suffixes": judging.SUFFIXES}
    values = {"prompt": template_digest(template), "tokens": tokens, **options, **model.identity}
    recipe = run.recipe("judge", VERSION, values, {"chunks": chunks})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = run.store.rows(chunks, "chunks", Document)
        pieces = Pieces(run.store.partial(recipe), Judgement)
        finished = pieces.rows()
        verdicts = finished
        if len(finished) < len(documents):
            verdicts = judging.judge_by_model(
                documents,
                model.chat(),
                template,
                tokens,
                batch=JUDGED_TOGETHER,
                finished=finished,
                keep=pieces.add,
                progress=progress,
            )
        return _judgements(model.name, verdicts)

    return Work(recipe=recipe, produce=produce)


def judge_name(run: Run) -> str:
    """Name of the judge (model or rules) in reports."""
    source = run.config.corpus.judge or run.config.anchor
    return judging.WITHOUT_MODEL[source.type][0] if source.type in judging.WITHOUT_MODEL else _judge_model(run).name


def _judgements(judge: str, rows: Sequence[Judgement]) -> Outcome:
    accepted = sum(row.keep for row in rows)
    return Outcome(
        tables={"judgements": Table(row_type=Judgement, rows=rows)},
        summary={"judge": judge, "kept": accepted, "dropped": len(rows) - accepted},
    )


def accepted_chunks(run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]) -> list[Document]:
    """Chunks that the judge accepted, of all these groups."""
    documents: list[Document] = []
    for group, verdicts in zip(chunks, judgements, strict=True):
        names = {row.document_id for row in run.store.rows(verdicts, "judgements", Judgement) if row.keep}
        documents += [row for row in run.store.rows(group, "chunks", Document) if row.document_id in names]
    return documents


def has_registry(place: str) -> bool:
    """Whether a pool at a path or address includes the registry of its sources."""
    return registry_of(fetch_address(place)) is not None


@stage("sources")
def read_registry(run: Run, place: str) -> Work:
    """Store the source registry and page maps of an existing pool, for lineage; no stage uses them."""
    folder = registry_of(fetch_address(place))
    assert folder is not None, f"{place} has no registry"
    read = read_sources(folder)
    tables = {
        "sources": Table(row_type=Source, rows=[row.entry() for row in read]),
        "pages": Table(row_type=Page, rows=[row.page() for row in read if row.markdown]),
    }

    def produce(workspace: Path, progress: Progress) -> Outcome:
        admitted = sum(row.status == "admitted" for row in read)
        return Outcome(tables=tables, summary={"admitted": admitted, "rejected": len(read) - admitted})

    # The registry enters the key by content: the pool's location does not matter.
    values = {"registry": digest_of({name: [asdict(row) for row in table.rows] for name, table in tables.items()})}
    return Work(recipe=run.recipe("sources", GIVEN_VERSION, values, {}), produce=produce)


@stage("given_pool")
def read_pool(run: Run, place: str) -> Work:
    """Load the documents of an existing pool as accepted chunks, which the audit checks like any others."""
    path = fetch_address(place)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = read_documents(path)
        if not documents:
            raise DocumentError(f"corpus.pool = {path}: no documents in it", hint="name another pool")
        rows = judging.keep_with(documents, reason="in the pool that was given", decided_by="given")
        return Outcome(
            tables={
                "chunks": Table(row_type=Document, rows=documents),
                "judgements": Table(row_type=Judgement, rows=rows),
            },
            summary={"kept": len(documents), "dropped": 0},
        )

    # The pool enters the key by content: its path does not matter.
    values = {"content": pool_digest(path)}
    return Work(recipe=run.recipe("given_pool", GIVEN_VERSION, values, {}), produce=produce)
