"""Cut converted books into chunks, several books at a time in worker processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from corpus.chunk import front_matter
from corpus.chunk.chunk import Discarded, chunk_page, discarded_spans
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.judge import ruled_out
from corpus.chunk.langchain_chunk import chunk_langchain
from corpus.chunk.split import Count
from infuser_core.config.corpus import CorpusSettings
from infuser_core.schemas import Document, Judgement, Page
from infuser_core.system.worker_pool import Task, WorkerPool

LEAST_CHARS = 100_000
"""Total characters of the books below which no workers are used: starting them would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedBook:
    """A converted book that is to be cut into chunks."""

    page: Page
    domain: str
    bounds: BookBounds | None = None
    """Start and end of its teaching text, if a model chose them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookChunks:
    """The chunks of a book: candidates for the pool, and discarded spans."""

    candidates: list[Document]
    discarded: list[Discarded]
    """All other spans of the text; together with the candidates they cover it without gaps or overlap."""
    judgements: list[Judgement]
    """The reason for each chunk that a rule discarded."""


def cut_books(
    books: Sequence[ConvertedBook], settings: CorpusSettings, load_counter: Callable[[], Count], workers: WorkerPool
) -> Iterator[tuple[int, BookChunks]]:
    """Cut the books; yields the position in `books` and the chunks of each, as they are finished.

    `load_counter` loads the token counter in the worker.
    """
    begin = partial(_open_cutter, settings, load_counter)
    if workers.size > 1 and sum(len(book.page.markdown) for book in books) >= LEAST_CHARS:
        yield from workers.each(Task(name="chunking", begin=begin, item=attrgetter("page.source_id")), books)
        return
    with begin() as cut_book:
        yield from enumerate(map(cut_book, books))


@contextmanager
def _open_cutter(
    settings: CorpusSettings, load_counter: Callable[[], Count]
) -> Iterator[Callable[[ConvertedBook], BookChunks]]:
    count, rules = load_counter(), settings.chunk

    def cut_book(book: ConvertedBook) -> BookChunks:
        page = book.page
        if rules.mode == "langchain":
            rows = chunk_langchain(page, count, rules, book.domain)
        else:
            spans = front_matter.exclude(page, book.bounds) if settings.structure != "off" else []
            rows = chunk_page(page, count, rules, book.domain, excluded=spans)
        return BookChunks(
            candidates=[row.document for row in rows if row.discard is None],
            discarded=discarded_spans(page, rows),
            judgements=ruled_out(rows),
        )

    yield cut_book
