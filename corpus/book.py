"""Read and chunk one book from a script, without a run or a store."""

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from corpus.chunk.chunk import Discarded
from corpus.chunk.cut import ConvertedBook, cut_books
from corpus.chunk.judge import judge_by_rules
from corpus.chunk.split import by_rule
from corpus.find.named_sources import gather_sources
from corpus.find.web_config import WebConfig
from corpus.read.convert import TEXT, SourceFile, convert
from corpus.read.page import ConversionJob, page_of
from infuser_core.config.corpus import ChunkSettings, ConvertSettings, CorpusSettings
from infuser_core.config.overlays import parse_settings
from infuser_core.errors import DocumentError, UsageError
from infuser_core.schemas import Document, Page
from infuser_core.store.tables import ArrowTable, as_arrow
from infuser_core.system.worker_pool import LocalPool
from infuser_core.terminal import live_console

SIZES = ChunkSettings()
"""Default sizes of chunks, those of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookSpan:
    """A span of a book's text: a chunk to write questions from, or text that is left out."""

    document_id: str
    """Identifier of the chunk; empty for text that is left out."""
    header_path: str
    """Ancestor headings, joined by " > "."""
    start: int
    """Offset of the first character in the Markdown."""
    end: int
    """Offset one past the last character."""
    num_tokens: int
    stage: str
    """structure, chunk or judge; empty for a chunk."""
    reason: str
    """front_matter, back_matter, too_short, too_long, a reason to doubt it, or the judge's rule; empty for a chunk."""
    text: str


def read_book(source: str | Path, *, converter: str = "auto") -> Page:
    """Convert a book to Markdown: a file, a folder with the files of one book, or an http(s) address.

    `converter` is `auto`, or the name of a converter of PDFs such as pdfium or marker. The page's `markdown` is the
    whole text, `page_starts` the offsets of the printed pages, `chosen` the reason for the converter.

    Raises UsageError if the source is not one book, ConfigError for an unknown converter, and DocumentError with the
    reason if the book cannot be read.
    """
    job = ConversionJob(settings=parse_settings(ConvertSettings, {"type": converter}, where="read_book"))
    with tempfile.TemporaryDirectory() as name, closing(LocalPool(1)) as workers, live_console("read") as console:
        folder = Path(name)
        items = gather_sources([str(source)], folder / "pool", folder, WebConfig(), progress=console.progress)
        if len(items) != 1:
            raise UsageError(f"{source}: {len(items)} books", hint="name one of them; `infuser corpus build` reads all")
        (item,) = items
        if item.path is None:
            raise DocumentError(f"{source}: {item.source.reason}", hint="name another file of the book")
        pages: list[Page] = []
        convert([SourceFile(path=item.path, source_id=item.source.source_id)], job, workers, pages.append)
    if pages[0].reason:
        raise DocumentError(f"{source}: {pages[0].reason}", hint="docs/books.md says what reads which files")
    return pages[0]


def chunk_book(
    book: Page | str,
    *,
    min_tokens: int = SIZES.min_tokens,
    max_tokens: int = SIZES.max_tokens,
    count: Callable[[str], int] | None = None,
) -> ArrowTable:
    """Cut a book, or its Markdown, along its headings into chunks of `min_tokens` to `max_tokens` tokens.

    `count` returns the tokens of a text; by default a rule counts them, without a tokenizer. Returns all spans of the
    text in order, in the columns of BookSpan: `reason` is empty for a chunk to write questions from, and otherwise says
    why this span is left out: front matter, too short, or a rule of the judge.

    Raises ConfigError if the bounds of the length are not valid.
    """
    page = book if isinstance(book, Page) else page_of("text", book, converter=TEXT)
    sizes = {"min_tokens": min_tokens, "max_tokens": max_tokens}
    settings = CorpusSettings(chunk=parse_settings(ChunkSettings, sizes, where="chunk_book"))
    with closing(LocalPool(1)) as workers:
        ((_, chunks),) = cut_books([ConvertedBook(page=page, domain="")], settings, lambda: count or by_rule(), workers)
        verdicts = judge_by_rules(chunks.candidates, workers)
    reasons = {row.document_id: row.reason for row in verdicts if not row.keep}
    spans = [
        *(_span(row, page, document_id=row.document_id) for row in chunks.candidates if row.document_id not in reasons),
        *(
            _span(row, page, stage="judge", reason=reasons[row.document_id])
            for row in chunks.candidates
            if row.document_id in reasons
        ),
        *(_span(row, page, stage=row.stage, reason=row.reason) for row in chunks.discarded if row.is_span),
    ]
    return as_arrow(sorted(spans, key=attrgetter("start")), BookSpan)


def _span(
    row: Document | Discarded, page: Page, *, document_id: str = "", stage: str = "", reason: str = ""
) -> BookSpan:
    return BookSpan(
        document_id=document_id,
        header_path=row.header_path,
        start=row.start,
        end=row.end,
        num_tokens=row.num_tokens,
        stage=stage,
        reason=reason,
        text=page.markdown[row.start : row.end],
    )
