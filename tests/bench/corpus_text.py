"""How fast and how well books become chunks: conversion, headings, chunking, text lost, memory.

    .venv/bin/python tests/bench/corpus_text.py                     # printed test books only
    .venv/bin/python tests/bench/corpus_text.py BOOK.pdf...         # and real ones, a row for each
    .venv/bin/python tests/bench/corpus_text.py --big 100 --json    # a single line of 100 MB

Rates are CPU seconds of one core. Headings are scored against the file's own bookmarks by the letters and digits of their
titles, section number ignored: recall over bookmarks that point to a page, precision over headings in the Markdown.
`withheld` converts the same file as if it had no bookmarks.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Row, shown

from corpus.chunk.blocks import BlockType, scan
from corpus.chunk.chunk import chunk_page
from corpus.chunk.langchain_chunk import NOWHERE, chunk_langchain
from corpus.read import pdf
from corpus.read.embedded import Reading, ReadingConfig, convert
from corpus.read.lines import title_key
from corpus.read.page import page_of
from infuser_core.config.corpus import ChunkSettings
from infuser_core.schemas import Page

DENSE = 12
"""An outline with fewer entries than one in so many pages names parts of the book only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Headings of one conversion against the bookmarks."""

    hits: int
    """Bookmarks that are headings."""
    wanted: int
    """Bookmarks that point to a page."""
    found: int
    """Headings in the Markdown."""

    def __str__(self) -> str:
        return f"{self.recall:.3f} / {self.precision:.3f}"

    @property
    def recall(self) -> float:
        return self.hits / self.wanted if self.wanted else 0.0

    @property
    def precision(self) -> float:
        return self.hits / self.found if self.found else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BookResult:
    """One PDF."""

    name: str
    """File name."""
    reading: Reading
    """Its conversion."""
    seconds: float
    """CPU time of the conversion."""
    bookmarks: int
    """Bookmarks that point to a page."""
    given: Score
    """Headings with the outline."""
    withheld: Score
    """Headings by fonts alone."""


def by_characters(text: str) -> int:
    """The cheap counter: four characters a token, as English text has."""
    return (len(text) + 3) // 4


def score(markdown: str, titles: Sequence[str]) -> Score:
    found = Counter(title_key(block.title) for block in scan(markdown) if block.kind is BlockType.HEADING)
    wanted = Counter(titles)
    return Score(hits=(found & wanted).total(), wanted=wanted.total(), found=found.total())


def measure_book(path: Path) -> BookResult:
    start = time.process_time()
    given = convert(str(path), ReadingConfig(max_pages=4000))
    seconds = time.process_time() - start
    withheld = convert(str(path), ReadingConfig(max_pages=4000, use_outline=False))
    outline = pdf.read_pdf(str(path)).outline
    titles = [title_key(entry.title) for entry in outline if entry.page >= 0 and title_key(entry.title)]
    scores = [score(made.markdown, titles) for made in (given, withheld)]
    return BookResult(
        name=path.name, reading=given, seconds=seconds, bookmarks=len(titles), given=scores[0], withheld=scores[1]
    )


def printed_books(folder: Path) -> list[Path]:
    """Test books in every face, one and two columns."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from corpus_books import FACES, BookPlan, write_book

    paths = []
    for face in sorted(FACES):
        for columns in (1, 2):
            paths.append(folder / f"printed-{face}-{columns}.pdf")
            write_book(paths[-1], BookPlan(face=face, columns=columns, chapters=6, sections=6))
    return paths


def pooled(label: str, books: Sequence[BookResult]) -> Iterator[Row]:
    """Speed over all pages; headings over all bookmarks of the files that have a full outline."""
    pages, seconds = sum(book.reading.num_pages for book in books), sum(book.seconds for book in books)
    yield Row(
        name=f"converter, {label}", value=pages / seconds, unit="pages/s", target=">= 40", detail=f"{pages} pages"
    )
    dense = [book for book in books if book.bookmarks * DENSE >= book.reading.num_pages]
    for which, least in (("given", (">= 0.9", ">= 0.85")), ("withheld", (">= 0.7", ""))):
        scores = [getattr(book, which) for book in dense]
        total = Score(
            hits=sum(s.hits for s in scores), wanted=sum(s.wanted for s in scores), found=sum(s.found for s in scores)
        )
        detail = f"{total.wanted} bookmarks of {len(dense)} books"
        name = f"headings, {label}, outline {which}"
        yield Row(name=f"{name}: recall", value=total.recall, unit="", target=least[0], detail=detail)
        yield Row(name=f"{name}: precision", value=total.precision, unit="", target=least[1], detail=detail)


def chunk_rows(label: str, pages: Sequence[Page]) -> Iterator[Row]:
    """Chunker speed at the paper's bounds, and what each splitter loses."""
    config = ChunkSettings()
    size = sum(len(page.markdown.encode()) for page in pages) / 1e6
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return by_characters(text)

    start = time.process_time()
    ours = [row for page in pages for row in chunk_page(page, count, config, "d")]
    seconds = time.process_time() - start
    ink = sum(_ink(page.markdown) for page in pages)
    detail = f"{size:.1f} MB, every character counted {counted / sum(len(p.markdown) for p in pages):.1f} times"
    yield Row(name=f"chunker, {label}", value=size / seconds, unit="MB/s", target=">= 3", detail=detail)
    for name, small in (("ours, merge", "merge"), ("ours, drop", "drop")):
        mode = ChunkSettings(small_sections=small)
        rows = (
            ours if small == "merge" else [row for page in pages for row in chunk_page(page, by_characters, mode, "d")]
        )
        kept = sum(_ink(row.document.text) for row in rows if row.discard is None)
        rest = sum(_ink(row.document.text) for row in rows if row.discard is not None)
        yield Row(
            name=f"text in no chunk, {label}: {name}", value=1 - kept / ink, unit="", detail=_lost(kept + rest, ink)
        )
    start = time.process_time()
    results = [chunk_langchain(page, by_characters, config, "d") for page in pages]
    seconds = time.process_time() - start
    rows = [row for result in results for row in result]
    kept = sum(_ink(row.document.text) for row in rows if row.discard is None)
    rest = sum(_ink(row.document.text) for row in rows if row.discard is not None)
    located = sum(row.document.start != NOWHERE for row in rows) / max(len(rows), 1)
    detail = (
        f"{_lost(kept + rest, ink)}; {located:.0%} of its chunks are slices of the source; {size / seconds:.1f} MB/s"
    )
    yield Row(name=f"text in no chunk, {label}: langchain splitter", value=1 - kept / ink, unit="", detail=detail)


def _ink(text: str) -> int:
    return sum(map(len, text.split()))


def _lost(rows: int, ink: int) -> str:
    return f"{1 - rows / ink:.2%} neither kept nor recorded"


def big_rows(megabytes: int) -> Iterator[Row]:
    """A single line of so many megabytes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--line", str(megabytes)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    detail = f"{found['chunks']} chunks, {found['seconds']:.1f} s"
    yield Row(
        name=f"one line of {megabytes} MB: chunker", value=megabytes / found["seconds"], unit="MB/s", detail=detail
    )
    yield Row(name=f"one line of {megabytes} MB: peak memory", value=found["peak"] / 1e6, unit="MB")


def chunk_line(megabytes: int) -> dict[str, float]:
    """Run inside that process."""
    sentence = "The harbor carries timber over the ridge and to the valley. "
    page = page_of("line", sentence * (megabytes * 10**6 // len(sentence)), num_pages=1, converter="bench", reason="")
    start = time.process_time()
    rows = chunk_page(page, by_characters, ChunkSettings(), "d")
    seconds = time.process_time() - start
    return {"chunks": len(rows), "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def book_row(book: BookResult) -> Row:
    """One real book; its recall and precision stand in the detail."""
    scores = f"recall / precision {book.given}, outline withheld {book.withheld}" if book.bookmarks else "no outline"
    pages = book.reading.num_pages
    detail = book.reading.reason or f"{pages} pages, {book.bookmarks} bookmarks: {scores}"
    return Row(name=f"converter, {book.name}", value=pages / book.seconds, unit="pages/s", detail=detail)


def rows(books: Sequence[Path], megabytes: int, progress: Callable[[str], None]) -> Iterator[Row]:
    """Everything: printed test books, real ones, a single line of so many megabytes."""
    with tempfile.TemporaryDirectory() as temporary:
        for label, paths in (("printed", printed_books(Path(temporary))), ("real", books)):
            measured = []
            for path in paths:
                progress(path.name)
                measured.append(measure_book(path))
            if label == "real":
                yield from map(book_row, measured)
            converted = [book for book in measured if not book.reading.reason]
            if converted:
                yield from pooled(label, converted)
                texts = [book.reading.markdown for book in converted]
                pages = [page_of("b", text, num_pages=1, converter="bench", reason="") for text in texts]
                yield from chunk_rows(label, pages)
    progress(f"a line of {megabytes} MB")
    yield from big_rows(megabytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    yield Row(name="books to chunks: peak memory", value=peak, unit="MB")


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("books", nargs="*", type=Path, help="real PDF files")
    parser.add_argument("--big", type=int, default=10, help="length of the single-line file, MB")


def said(what: str) -> None:
    """Progress for people."""
    print(f"text: {what} ...", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    """Run everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each measure instead of a table")
    parser.add_argument("--line", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.line:
        print(json.dumps(chunk_line(given.line)))
        return 0
    return shown(rows(given.books, given.big, said), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
