"""Conversion of a source to Markdown: by its text layer where that is sound, by a converter that looks where it is not.

A converter of PDFs is one file of `corpus/read/converters`, found by its name: `convert(path, source_id, job)` returns
a page and raises DocumentError where the converter itself cannot work, `trouble(job)` says beforehand why it cannot.

Many sources are converted by a crew's workers: the text layers on every core, what needs a look on every accelerator.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from corpus.read.books.convert import convert_book, is_book
from corpus.read.books.library import suffix_of
from corpus.read.converters import pdfium
from corpus.read.file_kinds import MARKDOWN, PDF, is_text
from corpus.read.formats.markdown import FENCED
from corpus.read.garble import GARBLED_PAGE, PAGE_CHARS, debris
from corpus.read.page import Job, Kept, Removed, page_of
from infuser_core.engines.crew import Crew, Task
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
    """Page of its text layer, where that is in doubt."""
    why: str = ""
    """The doubt."""


def convert(
    books: Sequence[Book],
    job: Job,
    crew: Crew,
    keep: Callable[[Page], None],
) -> None:
    """A page per book, as `convert_auto` makes it; `keep` is told each when it is there."""
    named = partial(Task, name="conversion", item=_name_of, apart=False)
    doubtful = []
    # A converter that is asked for by name sees every PDF.
    wanted = job.settings.type not in ("auto", "pdfium")
    for place, (page, why) in crew.each(named(begin=partial(_layers, job), accelerator=wanted), books):
        if why and not help_trouble(job):
            doubtful.append(replace(books[place], seen=page, why=why))
        else:
            keep(_decided(books[place], page, why, job))
    for _, page in crew.each(named(begin=partial(_looks, job), accelerator=True), doubtful):
        keep(page)


def _name_of(book: Book) -> str:
    return book.source_id


@contextmanager
def _layers(job: Job) -> Iterator[Callable[[Book], tuple[Page, str]]]:
    """Work of a crew: what a book's text layer gives."""
    with closing(Kept()) as kept:
        own = replace(job, kept=kept)
        yield lambda book: text_layer(book.path, book.source_id, own)


@contextmanager
def _looks(job: Job) -> Iterator[Callable[[Book], Page]]:
    """Work of a crew: a second look at what is in doubt."""

    with closing(Kept()) as kept:
        own = replace(job, kept=kept)

        def look(book: Book) -> Page:
            assert book.seen
            return _decided(book, book.seen, book.why, own)

        yield look


def kept_suffix(path: Path) -> str:
    """Suffix under which a file is kept, and by which its converter is chosen: PDF, Markdown or a book's format."""
    return MARKDOWN if is_text(path) else suffix_of(path.name) or PDF


def convert_auto(path: Path, source_id: str, job: Job) -> Page:
    """The source as Markdown by the converter that suits it; `chosen` says why. Nothing raises for a bad file.

    Raises DocumentError when a converter is asked for by name and cannot work.
    """
    page, why = text_layer(path, source_id, job)
    return _decided(Book(path=path, source_id=source_id), page, why, job)


def text_layer(path: Path, source_id: str, job: Job) -> tuple[Page, str]:
    """The page without a second look, and the doubt for which one would help; empty where none would."""
    if is_text(path):
        return _in_a_language(convert_text(path, source_id), fenced=True), ""
    if is_book(path):
        return _in_a_language(convert_book(path, source_id, job.limits), fenced=True), ""
    if job.settings.type not in ("auto", "pdfium"):
        return _in_a_language(_converter(job.settings.type).convert(path, source_id, job)), ""
    page = _in_a_language(pdfium.convert(path, source_id, job))
    return page, _doubt(page)


def _decided(book: Book, page: Page, why: str, job: Job) -> Page:
    """The page, or where it is in doubt that of the converter which looks, if there is one."""
    if not why:
        return page
    if trouble := help_trouble(job):
        return _without_help(page, why, trouble, job)
    helper = job.settings.helper
    try:
        made: Page = _converter(helper).convert(book.path, book.source_id, job)
    except DocumentError as error:
        return _without_help(page, why, str(error), job)
    if made.reason:
        return _without_help(page, why, made.reason, job)
    return replace(made, chosen=f"{helper}: {why}")


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


def _without_help(page: Page, why: str, trouble: str, job: Job) -> Page:
    """The page as it is; a rejected one says which converter it needs."""
    helper = job.settings.helper or "a converter that looks"
    if page.reason:
        return replace(page, reason=f"{page.reason}; needs {helper}: {trouble}")
    return replace(page, chosen=f"{page.chosen}; {why}, but {helper} could not help: {trouble}")


def convert_text(path: Path, source_id: str, *, max_bytes: int = MAX_BYTES) -> Page:
    """The file as it is, save for a byte order mark and with line feeds as line ends: readers of text files change the
    others, and offsets would no longer fit. What is no UTF-8 text is a rejected page that names the byte."""
    size = path.stat().st_size
    if size > max_bytes:
        reason = f"too_long: {size} bytes, at most {max_bytes} are read"
        return page_of(source_id, converter=TEXT, reason=reason)
    raw = path.read_bytes()
    try:
        text = _decoded(raw)
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


def _decoded(raw: bytes) -> str:
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    return raw.decode("utf-16" if wide else "utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
