"""Chunks of whole books, cut by a pool of workers: candidates, and what a rule keeps out of the pool."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from corpus.chunk import chunk as chunking
from corpus.chunk import front_matter
from corpus.chunk.chunk import Discarded
from corpus.chunk.front_matter import BookBounds
from corpus.chunk.judge import ruled_out
from corpus.chunk.langchain_chunk import chunk_langchain
from corpus.chunk.split import Count
from infuser_core.config.corpus import CorpusSettings
from infuser_core.engines.worker_pool import Task, WorkerPool
from infuser_core.schemas import Document, Judgement, Page

LEAST_CHARS = 100_000
"""Text below which a book is cut here: a process takes longer to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A converted book."""

    page: Page
    """Its Markdown."""
    domain: str
    """Domain that its documents carry."""
    bounds: BookBounds | None = None
    """Where a model found that its teaching text begins and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A book's text in chunks, and the spans that are none."""

    kept: list[Document]
    """Candidates for the pool."""
    ruled: list[Judgement]
    """Why the other spans are none."""
    left: list[Discarded]
    """These spans; with the candidates they tile the text."""


def cut(
    texts: Sequence[Text], settings: CorpusSettings, tokens: Callable[[], Count], workers: WorkerPool
) -> Iterator[tuple[int, Cut]]:
    """Place and chunks of each book, as they end. `tokens` loads the token counter, where the work is done."""
    begin = partial(_cutter, settings, tokens)
    if workers.size > 1 and sum(len(text.page.markdown) for text in texts) >= LEAST_CHARS:
        yield from workers.each(Task(name="chunking", begin=begin, item=_name_of), texts)
        return
    with begin() as work:
        yield from enumerate(map(work, texts))


def _name_of(text: Text) -> str:
    return text.page.source_id


@contextmanager
def _cutter(settings: CorpusSettings, tokens: Callable[[], Count]) -> Iterator[Callable[[Text], Cut]]:
    yield partial(_cut, settings=settings, count=tokens())


def _cut(text: Text, *, settings: CorpusSettings, count: Count) -> Cut:
    page, rules = text.page, settings.chunk
    if rules.mode == "langchain":
        rows = chunk_langchain(page, count, rules, text.domain)
    else:
        spans = front_matter.exclude(page, text.bounds) if settings.structure != "off" else []
        rows = chunking.chunk(page, count, rules, text.domain, excluded=spans)
    return Cut(
        kept=[row.document for row in rows if row.discard is None],
        ruled=ruled_out(rows),
        left=chunking.left_out(page, rows),
    )
