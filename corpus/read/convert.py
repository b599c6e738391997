"""Conversion of a source to Markdown: from its text layer if that is sound, otherwise by a visual converter.

A visual converter, such as marker, reads the printed page. Each PDF converter is a module in `corpus/read/converters`,
found by its name: `convert(path, source_id, job)` returns a page and raises DocumentError if the converter itself
cannot work; `trouble(job)` returns that reason in advance.

A pool of workers converts many sources: text layers on every core, files that need a visual converter on every
accelerator.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from corpus.read.books.convert import convert_book, is_book
from corpus.read.books.library import suffix_of
from corpus.read.books.tree import decode_text
from corpus.read.converters import pdfium
from corpus.read.doubt import LARGE_LOSS, Doubt, Doubtful, doubt_by_page
from corpus.read.file_kinds import MARKDOWN, PDF, is_text
from corpus.read.formats.markdown import STYLE, clean_markup
from corpus.read.page import ConversionJob, RemovedText, SharedResources, page_of
from infuser_core.errors import DocumentError
from infuser_core.plugins import Registry
from infuser_core.schemas import Page
from infuser_core.system.worker_pool import Task, WorkerPool

CONVERTERS = Registry(kind="converter", package="corpus.read.converters", outside="my_package.my_converter")
NEEDS_OCR = "needs_ocr"
"""Reason for the rejection of a file that a visual converter may read."""
SCANS = "rapidocr"
"""Visual converter for books without a usable text layer that needs no network and no accelerator."""
TEXT = "text-3"
"""Name and version of the converter of files that are Markdown or plain text already."""
SETTINGS = re.compile(
    r"\A---[ \t]*\n(?=[\w-]+[ \t]*:)(?P<keys>(?:(?!---|\.\.\.)[^\n]*\n)*)(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
"""Front matter of a site generator, which would be a heading in Markdown."""
TITLE = re.compile(r"^title[ \t]*:[ \t]*['\"]?(?P<title>[^\n]*?)['\"]?[ \t]*$", re.MULTILINE)
MAX_BYTES = 1 << 30


def helper_troubles(job: ConversionJob) -> dict[str, str]:
    """Visual converters that may read a file, the preferred one first, and why each cannot; empty if it can.

    They are the helper of the settings and, as it reads scans without further settings, `rapidocr`.
    """
    helper = job.settings.helper
    if job.settings.type != "auto" or not helper:
        return {helper or "a converter that looks": "it is switched off"}
    return {name: str(CONVERTERS.find(name)[0].trouble(job)) for name in dict.fromkeys((helper, SCANS))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file to convert, and the result of reading its text layer."""

    path: Path
    """Path on every machine."""
    source_id: str
    page: Page | None = None
    """Page made from the text layer; None before that is read."""
    doubt: str = ""
    """Fault of that page that a visual converter may fix; empty if there is none."""


def _helpers_of(book: SourceFile, job: ConversionJob) -> dict[str, str]:
    """The visual converters for a book with this doubt, as by `helper_troubles`.

    `rapidocr` reads no formulas: it does not replace a text that is readable apart from these.
    """
    has_formulas = book.doubt.startswith(Doubtful.FORMULA)
    return {name: trouble for name, trouble in helper_troubles(job).items() if not has_formulas or name != SCANS}


def convert(books: Sequence[SourceFile], job: ConversionJob, workers: WorkerPool, keep: Callable[[Page], None]) -> None:
    """Convert each book to a page row with Markdown by the converter that suits it, and pass every row to `keep`.

    A row's `chosen` says why its converter was chosen. A bad file gives a rejected row and raises nothing.
    Raises DocumentError if a converter is requested by name and cannot work.
    """
    task = partial(Task, name="conversion", item=attrgetter("source_id"), apart=False)
    doubtful = []
    read_layers = partial(_with_resources, _read_text_layer, job)
    for _, book in workers.each(task(begin=read_layers, accelerator=_is_requested_by_name(job)), books):
        if book.doubt and book.page and not all(_helpers_of(book, job).values()):
            doubtful.append(book)
        else:
            keep(_choose_page(book, job))
    for _, page in workers.each(task(begin=partial(_with_resources, _choose_page, job), accelerator=True), doubtful):
        keep(page)


@contextmanager
def _with_resources(
    work: Callable[[SourceFile, ConversionJob], Any], job: ConversionJob
) -> Iterator[Callable[[SourceFile], Any]]:
    """Yield a function that applies `work` to a book; all books of a worker share resources, such as servers."""
    with SharedResources() as resources:
        worker_job = replace(job, resources=resources)
        yield lambda book: work(book, worker_job)


def storage_suffix(path: Path) -> str:
    """Suffix under which a file is stored, and which selects its converter: PDF, Markdown or a book's format."""
    return MARKDOWN if is_text(path) else suffix_of(path.name) or PDF


def _is_requested_by_name(job: ConversionJob) -> bool:
    """Whether the settings name a visual converter, which then converts every PDF."""
    return job.settings.type not in ("auto", "pdfium")


def _read_text_layer(book: SourceFile, job: ConversionJob) -> SourceFile:
    """Read a book's text layer: returns the book with its page, and the fault that a visual converter may fix."""
    is_marked, is_requested = is_text(book.path) or is_book(book.path), _is_requested_by_name(job)
    if is_text(book.path):
        page = convert_text(book.path, book.source_id)
    elif is_marked:
        page = convert_book(book.path, book.source_id, job.limits)
    else:
        converter: Any = CONVERTERS.find(job.settings.type)[0] if is_requested else pdfium
        page = converter.convert(book.path, book.source_id, job)
    return replace(book, page=page, doubt="" if is_marked or is_requested else _find_doubt(page))


def _choose_page(book: SourceFile, job: ConversionJob) -> Page:
    """Return the book's page, or that of the first helper that can convert the file if the first is doubtful.

    If none can, a rejected page names the converters that it needs.
    """
    page = book.page
    assert page
    if not book.doubt:
        return page
    troubles = _helpers_of(book, job)
    for helper in [name for name, trouble in troubles.items() if not trouble]:
        try:
            second: Page = CONVERTERS.find(helper)[0].convert(book.path, book.source_id, job)
            if not second.reason:
                return replace(second, chosen=f"{helper}: {book.doubt}")
            troubles[helper] = second.reason
        except DocumentError as error:
            troubles[helper] = str(error)
    if page.reason:
        needs = ", or ".join(f"{helper}: {trouble}" for helper, trouble in troubles.items())
        return replace(page, reason=f"{page.reason}; needs {needs}")
    failures = "".join(f", but {helper} could not help: {trouble}" for helper, trouble in troubles.items())
    return replace(page, chosen=f"{page.chosen}; {book.doubt}{failures}")


def _find_doubt(page: Page) -> str:
    """Return why the text layer is not good enough; empty if it is, or if no visual converter could help."""
    if page.reason:
        return page.reason if page.reason.startswith(NEEDS_OCR) else ""
    doubts = doubt_by_page(page.markdown, page.page_starts)
    characters = sum(doubt.characters for doubt in doubts)
    share = sum(doubt.characters for doubt in doubts if doubt.passages) / max(characters, 1)
    if share <= LARGE_LOSS:
        return ""
    passages = [passage for doubt in doubts for passage in doubt.passages]
    reason, passage = Doubt(characters=characters, passages=passages).heaviest
    return f"{reason}: on pages with {share:.0%} of the text, such as {' '.join(passage.split())[:60]!r}"


def convert_text(path: Path, source_id: str) -> Page:
    """Convert a file that is Markdown or plain text already.

    A byte order mark is removed and line ends become line feeds, so that offsets fit every reader. Only the title of
    front matter stays, as a heading. A file that is neither UTF-8 nor UTF-16 with a byte order mark gives a rejected
    page that names the byte.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        reason = f"too_long: {size} bytes, at most {MAX_BYTES} are read"
        return page_of(source_id, converter=TEXT, reason=reason)
    raw = path.read_bytes()
    try:
        text = decode_text(raw, strict=True)
    except UnicodeDecodeError as error:
        reason = (
            f"not_utf8: byte 0x{raw[error.start]:02x} at offset {error.start} ({error.reason}); convert it with iconv"
        )
        return page_of(source_id, converter=TEXT, reason=reason)
    settings = SETTINGS.match(text)
    if settings:
        title = TITLE.search(settings["keys"])
        heading = f"# {title['title']}\n\n" if title and title["title"] else ""
        text = heading + text[settings.end() :]
    pictures: list[str] = []
    # Without a tag, the text stays as its author wrote it.
    text = clean_markup(text, pictures) if STYLE.search(text) else text
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
        removed=[
            *([RemovedText(text=settings["keys"], reason="settings", page=-1)] if settings else []),
            *(RemovedText(text=name, reason="image", page=-1) for name in pictures),
        ],
    )
