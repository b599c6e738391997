"""Document stages: the questions that a run is given, and from the textbooks' files to judged chunks.

Textbooks are worked on in the groups in which they were downloaded: each stage of a group is an artifact of its own,
made from that group's alone. Within a group, what is finished outlives a killed process, so it loses one item at most.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from corpus.chunk import front_matter
from corpus.chunk import judge as judging
from corpus.chunk.chunk import Discarded
from corpus.chunk.cut import ConvertedBook, cut_books
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.split import RULE, Count, by_rule
from corpus.formats import content_of_pool, documents_in
from corpus.model_reply import ATTEMPTS, ModelCall
from corpus.pool import read_sources, registry_of
from corpus.read import convert as converting
from corpus.read import embedded
from corpus.read.books import convert as converting_books
from corpus.read.convert import SourceFile
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
from infuser_core.protocols import Progress
from infuser_core.schemas import Document, Judgement, Page, Question, Source
from infuser_core.store.pieces import Items, Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system.hub import fetched
from infuser_core.system.sealed import digest_of
from tasks.run import Run, current_run
from tasks.stage import stage
from tasks.textbooks import UNFINISHED, later
from tasks.work import Work

VERSION = 15
GIVEN_VERSION = 1
JUDGED_TOGETHER = 256
"""Chunks judged before their judgements are kept: what a killed process can lose."""


@stage("questions")
def reference_questions(run: Run, part: str) -> Work:
    """The dev or the validation set, as an artifact."""
    source = run.config.data.dev if part == "dev" else run.config.data.validation
    evaluated = run.config.evaluate.benchmarks

    def produce(workspace: Path, progress: Progress) -> Outcome:
        questions = load_questions(source, seed=run.config.seed, evaluated=evaluated)
        return Outcome(
            tables={"reference_questions": Table(row_type=Question, rows=questions)},
            summary={"part": part, "questions": len(questions)},
        )

    content = content_of(source, evaluated=evaluated)
    # A file enters by content: neither its place nor the run's seed changes anything.
    values = {"source": values_of(source), "content": content}
    recipe = run.recipe("questions", VERSION, values, {}, seed=run.config.seed if is_seeded(source) else 0)
    return Work(recipe=recipe, produce=produce)


@stage("questions")
def benchmark_questions(run: Run) -> Work:
    """The questions of the configured benchmarks, which the overlap audit looks for in the documents."""
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
    return Work(recipe=run.recipe("questions", VERSION, {"benchmarks": content}, {}), produce=produce)


@stage("convert")
def convert_textbooks(run: Run, sources: ArtifactRef, download: ArtifactRef, *, attempt: int = 0) -> Work:
    """One group's files to Markdown. What was converted before a kill is not converted again."""
    config = run.config.corpus.convert
    group = _group(run, sources, download)
    helped = not converting.helper_trouble(ConversionJob(settings=config))
    values = {
        "settings": config,
        "version": embedded.CONVERTER,
        "helped": helped,
        # The books enter by content: what a catalogue says of them converts nothing again.
        "books": [[source.source_id, source.sha256] for source in group],
        **_readers(run.store.manifest(download).files),
        **later(attempt),
    }
    recipe = run.recipe("convert", VERSION, values, {"download": download})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        folder = run.store.verified_folder(download)
        pieces = Pieces(run.store.partial(recipe), Page)
        job = ConversionJob(settings=config, work=run.store.partial(recipe).resolve())
        made = {page.source_id: page for page in pieces.rows()}

        def keep(page: Page) -> None:
            made[page.source_id] = page
            if not page.reason:
                pieces.add([page])
            progress(len(made), len(group), 0)

        ahead = [source for source in group if source.source_id not in made]
        books = [SourceFile(path=file_of(folder, row.sha256).resolve(), source_id=row.source_id) for row in ahead]
        converting.convert(books, job, run.workers, keep)
        pages = [made[source.source_id] for source in group]
        rejected = sum(bool(page.reason) for page in pages)
        return Outcome(
            tables={"pages": Table(row_type=Page, rows=pages)},
            summary={
                "converted": len(pages) - rejected,
                "rejected": rejected,
                # A process that was ended for its time or memory may succeed another time.
                UNFINISHED: sum(page.reason.startswith("unreadable:") for page in pages),
            },
        )

    return Work(recipe=recipe, produce=produce)


def _readers(files: Iterable[str]) -> dict[str, str]:
    """The converter of books' sources with its version, for a group that has such a book."""
    return {"formats": converting_books.name()} if any(converting_books.is_book(Path(name)) for name in files) else {}


def _group(run: Run, sources: ArtifactRef, download: ArtifactRef) -> list[Source]:
    """The books of one download that have a file, as the registry has them."""
    fetched = {row.source_id for row in run.store.rows(download, "downloaded", Source)}
    return [row for row in run.store.rows(sources, "sources", Source) if row.sha256 and row.source_id in fetched]


def has_structure_model(run: str) -> bool:
    """Whether a model finds where the teaching text begins and ends."""
    corpus = current_run(run).config.corpus
    return corpus.structure == "model" and corpus.chunk.mode != "langchain"


def asks_model(run: str) -> bool:
    """Whether a model is asked about any book: for its structure, or to judge its chunks."""
    corpus = current_run(run).config.corpus
    return (
        has_structure_model(run) or (corpus.judge or current_run(run).config.anchor).type not in judging.WITHOUT_MODEL
    )


@stage("structure")
def find_structure(run: Run, pages: ArtifactRef) -> Work:
    """First chapter and end marker of one group's books, by the judge's model; by rules where it has no answer."""
    template = load_or_shipped("find_boundaries", profile=run.config.prompts)
    speaker = _speaker(run)
    asking = {"attempts": ATTEMPTS, "tokens": front_matter.MAX_TOKENS, "shown": front_matter.HEADINGS_PER_PROMPT}
    values = {"prompt": template_digest(template), **asking, **speaker.identity}
    recipe = run.recipe("structure", VERSION, values, {"pages": pages})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        converted = _converted(run, pages)
        rows = Items(run.store.partial(recipe), BookBounds)
        calls = Items(run.store.partial(recipe), ModelCall)
        for done, page in enumerate(converted, 1):
            if rows.get(page.source_id) is None:
                bounds, said = front_matter.find_bounds(page, speaker.chat(), template)
                calls.keep(page.source_id, said)
                rows.keep(page.source_id, [bounds])
            progress(done, len(converted), 0)
        every = rows.all([page.source_id for page in converted])
        return Outcome(
            tables={
                "structure_bounds": Table(row_type=BookBounds, rows=every),
                "structure_calls": Table(row_type=ModelCall, rows=calls.all([page.source_id for page in converted])),
            },
            summary={"books": len(every), "by_rules": sum(bool(row.problem) for row in every)},
        )

    return Work(recipe=recipe, produce=produce)


def _converted(run: Run, pages: ArtifactRef) -> list[Page]:
    return [page for page in run.store.rows(pages, "pages", Page) if not page.reason]


def _speaker(run: Run) -> NamedModel:
    """The judge's model."""
    source = run.config.corpus.judge or run.config.anchor
    assert source.type != "rules" and source.type != "none", source
    return named_model(source, run.config.engine, run.pool, label="judge")


@stage("chunk")
def chunk_textbooks(
    run: Run, sources: ArtifactRef, download: ArtifactRef, pages: ArtifactRef, bounds: ArtifactRef | None
) -> Work:
    """Token-bounded chunks along the headings of one group; every discarded span is a judgement with its reason."""
    corpus = run.config.corpus
    tokenizer, load = _tokenizer(run)
    domains = {source.source_id: source.discipline for source in _group(run, sources, download)}
    values = {
        # The tokenizer enters by content.
        "chunk": recorded(corpus.chunk, without=("tokenizer",)),
        "structure": corpus.structure,
        "matter": front_matter.RULES,
        "tokenizer": tokenizer,
        "domains": domains,
    }
    recipe = run.recipe("chunk", VERSION, values, {"pages": pages, "bounds": bounds})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        found = {row.source_id: row for row in run.store.rows(bounds, "structure_bounds", BookBounds)} if bounds else {}
        converted = _converted(run, pages)
        documents, judgements, spans = (
            Items(run.store.partial(recipe), kind) for kind in (Document, Judgement, Discarded)
        )
        ahead = [
            ConvertedBook(page=page, domain=domains[page.source_id], bounds=found.get(page.source_id))
            for page in converted
            if documents.get(page.source_id) is None
        ]
        for count, (place, book) in enumerate(cut_books(ahead, corpus, load, run.workers), 1):
            name = ahead[place].page.source_id
            spans.keep(name, book.discarded)
            judgements.keep(name, book.judgements)
            documents.keep(name, book.candidates)
            progress(len(converted) - len(ahead) + count, len(converted), 0)
        names = [page.source_id for page in converted]
        chunks, discarded = documents.all(names), judgements.all(names)
        return Outcome(
            tables={
                "chunks": Table(row_type=Document, rows=chunks),
                "judgements": Table(row_type=Judgement, rows=discarded),
                # It follows from the chunks and the pages; a built pool shows it.
                "discarded": Table(row_type=Discarded, rows=spans.all(names), volatile=True),
            },
            summary={"chunks": len(chunks), "discarded": len(discarded)},
        )

    return Work(recipe=recipe, produce=produce)


def _tokenizer(run: Run) -> tuple[str, Callable[[], Count]]:
    """The token counter: its rule or the digest of its model's files, and what loads it where chunks are cut."""
    source = run.config.corpus.chunk.tokenizer or run.config.anchor
    if source.type == "rules":
        return RULE, by_rule
    folder = anchor_folder(source)
    return anchor_digest(folder), partial(token_counter, folder)


@stage("judge")
def judge_chunks(run: Run, chunks: ArtifactRef) -> Work:
    """Judgement of one group's chunks: which teach something. What was judged before a kill is not judged again."""
    source = run.config.corpus.judge or run.config.anchor
    if source.type in judging.WITHOUT_MODEL:
        return _judged_without_model(run, chunks, *judging.WITHOUT_MODEL[source.type])
    template = load_or_shipped("judge_chunk", profile=run.config.prompts)
    speaker, tokens = _speaker(run), run.config.corpus.judge_tokens
    asking = {"attempts": ATTEMPTS, "suffixes": judging.SUFFIXES}
    values = {"prompt": template_digest(template), "tokens": tokens, **asking, **speaker.identity}
    recipe = run.recipe("judge", VERSION, values, {"chunks": chunks})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = run.store.rows(chunks, "chunks", Document)
        pieces = Pieces(run.store.partial(recipe), Judgement)
        finished = pieces.rows()
        verdicts = finished
        if len(finished) < len(documents):
            verdicts = judging.judge_by_model(
                documents,
                speaker.chat(),
                template,
                tokens,
                batch=JUDGED_TOGETHER,
                finished=finished,
                keep=pieces.add,
                progress=progress,
            )
        return _verdicts(speaker.name, verdicts)

    return Work(recipe=recipe, produce=produce)


def _judged_without_model(run: Run, chunks: ArtifactRef, name: str, decide: judging.Decide) -> Work:
    def produce(workspace: Path, progress: Progress) -> Outcome:
        return _verdicts(name, decide(run.store.rows(chunks, "chunks", Document), run.workers, progress))

    return Work(recipe=run.recipe("judge", VERSION, {"model": name}, {"chunks": chunks}), produce=produce)


def judge_name(run: Run) -> str:
    """Name of the judge in reports."""
    source = run.config.corpus.judge or run.config.anchor
    return judging.WITHOUT_MODEL[source.type][0] if source.type in judging.WITHOUT_MODEL else _speaker(run).name


def _verdicts(judge: str, rows: Sequence[Judgement]) -> Outcome:
    kept = sum(row.keep for row in rows)
    return Outcome(
        tables={"judgements": Table(row_type=Judgement, rows=rows)},
        summary={"judge": judge, "kept": kept, "dropped": len(rows) - kept},
    )


def kept(run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]) -> list[Document]:
    """The chunks of some groups that the judge kept."""
    found: list[Document] = []
    for group, verdicts in zip(chunks, judgements, strict=True):
        names = {row.document_id for row in run.store.rows(verdicts, "judgements", Judgement) if row.keep}
        found += [row for row in run.store.rows(group, "chunks", Document) if row.document_id in names]
    return found


def has_registry(place: str) -> bool:
    """Whether a pool carries the registry of its sources."""
    return registry_of(fetched(place)) is not None


@stage("sources")
def read_registry(run: Run, place: str) -> Work:
    """The registry and the page maps of a pool, as a run on catalogues has them of its books. No stage reads them."""
    folder = registry_of(fetched(place))
    assert folder is not None, f"{place} has no registry"
    read = read_sources(folder)
    tables = {
        "sources": Table(row_type=Source, rows=[row.entry() for row in read]),
        "pages": Table(row_type=Page, rows=[row.page() for row in read if row.markdown]),
    }

    def produce(workspace: Path, progress: Progress) -> Outcome:
        admitted = sum(row.status == "admitted" for row in read)
        return Outcome(tables=tables, summary={"admitted": admitted, "rejected": len(read) - admitted})

    # By content, as the documents: the pool's folder changes nothing.
    values = {"registry": digest_of({name: [asdict(row) for row in table.rows] for name, table in tables.items()})}
    return Work(recipe=run.recipe("sources", GIVEN_VERSION, values, {}), produce=produce)


@stage("given_pool")
def read_pool(run: Run, place: str) -> Work:
    """The documents of a pool as chunks that were kept: the audit then looks at them like at any others."""
    path = fetched(place)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = documents_in(path)
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

    # The pool enters by content: where it lies changes nothing.
    values = {"content": content_of_pool(path)}
    return Work(recipe=run.recipe("given_pool", GIVEN_VERSION, values, {}), produce=produce)
