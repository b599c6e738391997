"""Conversion of a source to Markdown: by its text layer where that is sound, by a converter that looks where it is not.

A converter of PDFs is one file of `corpus/read/converters`, found by its name: `convert(path, source_id, job)` returns
a page and raises DocumentError where the converter itself cannot work, `trouble(job)` says beforehand why it cannot.

Many sources are converted by a pool of workers: the text layers on every core, what needs a look on every accelerator.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from corpus.read.books.convert import convert_book, is_book
from corpus.read.books.library import suffix_of
from corpus.read.books.tree import decoded
from corpus.read.converters import pdfium
from corpus.read.file_kinds import MARKDOWN, PDF, is_text
from corpus.read.formats.markdown import FENCED
from corpus.read.garble import GARBLED_PAGE, PAGE_CHARS, debris
from corpus.read.page import Job, Kept, Removed, page_of
from infuser_core.engines.worker_pool import Task, WorkerPool
from infuser_core.errors import DocumentError
from infuser_core.plugins import Registry
from infuser_core.schemas import Page

CONVERTERS = Registry(kind="converter", package="corpus.read.converters", outside="my_package.my_converter")
NEEDS_A_LOOK = ("needs_ocr", "garbled", "debris")
"""Reasons that a converter which looks at the printed page can help with."""
MAX_GARBLED_PAGES = 0.25
"""Share of pages with garbled formulas above which such a converter is preferred."""
TEXT = "text-2"
"""Name of the converter of files that are Markdown or plain text already."""
SETTINGS = re.compile(
    r"\A---[ \t]*\n(?=[\w-]+[ \t]*:)(?P<keys>(?:(?!---|\.\.\.)[^\n]*\n)*)(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
"""Settings for a site generator at the beginning of a file; as Markdown they would be a heading."""
TITLE = re.compile(r"^title[ \t]*:[ \t]*['\"]?(?P<title>[^\n]*?)['\"]?[ \t]*$", re.MULTILINE)
INLINE = re.compile(r"`[^`\n]+`")
"""Code within text."""
MAX_BYTES = 1 << 30


def _converter(name: str) -> Any:
    return CONVERTERS.find(name)[0]


def help_trouble(job: Job) -> str:
    """Reason for which nobody looks at pages without a good text layer; empty when somebody does."""
    helper = job.settings.helper
    if job.settings.type != "auto" or not helper:
        return "it is switched off"
    return str(_converter(helper).trouble(job))


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """A file to convert."""

    path: Path
    """The file; all machines see it there."""
    source_id: str
    """Its source."""
    seen: Page | None = None
    """Page of its text layer, once that is read."""
    why: str = ""
    """The doubt about that page for which a second look would help; empty where none would."""


def convert(books: Sequence[Book], job: Job, workers: WorkerPool, keep: Callable[[Page], None]) -> None:
    """A page per book as Markdown by the converter that suits it; `chosen` says why. `keep` is told each when it is
    there. Nothing raises for a bad file.

    Raises DocumentError when a converter is asked for by name and cannot work.
    """
    named = partial(Task, name="conversion", item=_name_of, apart=False)
    doubtful = []
    for _, book in workers.each(named(begin=partial(_opened, _text_layer, job), accelerator=_is_asked(job)), books):
        if book.why and not help_trouble(job):
            doubtful.append(book)
        else:
            keep(_decided(book, job))
    for _, page in workers.each(named(begin=partial(_opened, _decided, job), accelerator=True), doubtful):
        keep(page)


def _name_of(book: Book) -> str:
    return book.source_id


@contextmanager
def _opened(work: Callable[[Book, Job], Any], job: Job) -> Iterator[Callable[[Book], Any]]:
    """Work of a worker pool on one book, and what its converter keeps from book to book."""
    with Kept() as kept:
        own = replace(job, kept=kept)
        yield lambda book: work(book, own)


def kept_suffix(path: Path) -> str:
    """Suffix under which a file is kept, and by which its converter is chosen: PDF, Markdown or a book's format."""
    return MARKDOWN if is_text(path) else suffix_of(path.name) or PDF


def _is_asked(job: Job) -> bool:
    """Whether a converter is asked for by name: it sees every PDF."""
    return job.settings.type not in ("auto", "pdfium")


def _text_layer(book: Book, job: Job) -> Book:
    """The book with its page before a second look, and the doubt for which one would help."""
    is_marked, asked = is_text(book.path) or is_book(book.path), _is_asked(job)
    if is_text(book.path):
        page = convert_text(book.path, book.source_id)
    elif is_marked:
        page = convert_book(book.path, book.source_id, job.limits)
    else:
        page = (_converter(job.settings.type) if asked else pdfium).convert(book.path, book.source_id, job)
    page = _in_a_language(page, fenced=is_marked)
    return replace(book, seen=page, why="" if is_marked or asked else _doubt(page))


def _decided(book: Book, job: Job) -> Page:
    """The page, or where it is in doubt that of the converter which looks, if there is one.

    Without one, a rejected page says which it needs.
    """
    page = book.seen
    assert page
    if not book.why:
        return page
    trouble = help_trouble(job)
    if not trouble:
        try:
            made: Page = _converter(job.settings.helper).convert(book.path, book.source_id, job)
            trouble = made.reason
        except DocumentError as error:
            trouble = str(error)
    if not trouble:
        return replace(made, chosen=f"{job.settings.helper}: {book.why}")
    helper = job.settings.helper or "a converter that looks"
    if page.reason:
        return replace(page, reason=f"{page.reason}; needs {helper}: {trouble}")
    return replace(page, chosen=f"{page.chosen}; {book.why}, but {helper} could not help: {trouble}")


def _in_a_language(page: Page, *, fenced: bool = False) -> Page:
    """The page; rejected where its text is debris of a wrong font map or a wrong encoding.

    Code is in no language: with `fenced` the author has marked it, and it is left out.
    """
    if page.reason:
        return page
    text, starts = (INLINE.sub("", FENCED.sub("", page.markdown)), []) if fenced else (page.markdown, page.page_starts)
    edges = [*(starts if len(starts) > 1 else range(0, len(text), PAGE_CHARS)), len(text)]
    reason = debris([text[start:end] for start, end in pairwise(edges)])
    return (
        page_of(page.source_id, num_pages=page.num_pages, converter=page.converter, reason=reason) if reason else page
    )


def _doubt(page: Page) -> str:
    """Reason for which the text layer is not good enough; empty when it is, or when no converter could help."""
    if page.reason:
        return page.reason if page.reason.startswith(NEEDS_A_LOOK) else ""
    bad = sum(score >= GARBLED_PAGE for score in page.math_garbled)
    if bad > MAX_GARBLED_PAGES * max(len(page.math_garbled), 1):
        return f"{bad} of {page.num_pages} pages have garbled formulas"
    return ""


def convert_text(path: Path, source_id: str) -> Page:
    """The file as it is, save for a byte order mark and with line feeds as line ends: readers of text files change the
    others, and offsets would no longer fit. What is no UTF-8 text is a rejected page that names the byte."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        reason = f"too_long: {size} bytes, at most {MAX_BYTES} are read"
        return page_of(source_id, converter=TEXT, reason=reason)
    raw = path.read_bytes()
    try:
        text = decoded(raw, strict=True)
    except UnicodeDecodeError as error:
        reason = (
            f"not_utf8: byte 0x{raw[error.start]:02x} at offset {error.start} ({error.reason}); convert it with iconv"
        )
        return page_of(source_id, converter=TEXT, reason=reason)
    settings = SETTINGS.match(text)
    text = SETTINGS.sub(_titled, text)
    reason = "" if text.strip() else "empty: the file has no text"
    if "\x00" in text:
        reason = f"not_text: a zero byte at character {text.index(chr(0))}"
    return page_of(
        source_id,
        "" if reason else text,
        num_pages=1,
        converter=TEXT,
        reason=reason,
        page_starts=[] if reason else [0],
        chosen="text: the file is Markdown already",
        removed=[Removed(text=settings["keys"], reason="settings", page=-1)] if settings else [],
    )


def _titled(settings: re.Match[str]) -> str:
    """The title of a file's settings as its heading."""
    named = TITLE.search(settings["keys"])
    return f"# {named['title']}\n\n" if named and named["title"] else ""
