"""Embedded converter: a born-digital PDF to Markdown by its text layer, parsed inside a limited process."""

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.read import garble
from corpus.read.file_kinds import count_pages, pdf_fault
from corpus.read.printed import Printed, Removed
from infuser_core import child
from infuser_core.errors import DocumentError

if TYPE_CHECKING:
    from corpus.read.markdown import Marked
    from infuser_core.schemas import Page

CONVERTER = "embedded-23"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig:
    """Thresholds for running heads, paragraphs and usable pages."""

    running_head_repeats: int = 3
    """Pages on which a text must stand at the edge to count as a running head."""
    min_page_chars: int = 100
    """A page with fewer characters has no usable text layer."""
    max_empty_share: float = 0.8
    """Share of such pages above which the source is rejected as needs_ocr."""
    max_meaningless: float = 0.2
    """Share of characters without a Unicode meaning above which the source is rejected as garbled."""
    paragraph_gap: float = 1.3
    """Distance of two lines that separates paragraphs, in units of the usual line distance."""
    max_pages: int = 4000
    """Pages a source may have; more is no textbook."""
    use_outline: bool = True
    """Whether bookmarks are read; without them headings are recognised by their fonts alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertConfig:
    """Settings of the embedded PDF converter."""

    reading: ReadingConfig = field(default_factory=ReadingConfig)
    """Limits for a heading, a paragraph, a usable page."""
    limits: child.Limits = field(default_factory=child.Limits)
    """Limits of the process that parses the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result of converting one file."""

    markdown: str
    """The book; empty when it was refused."""
    page_starts: list[int]
    """Offset at which each page's text begins, in characters."""
    math_garbled: list[float]
    """Per page, the share of tokens that are debris of formulas."""
    removed: list[Removed]
    """Printed lines that are not in the Markdown."""
    num_pages: int
    """Pages of the file."""
    num_empty: int
    """Pages without a usable text layer."""
    reason: str
    """Why it was refused; empty otherwise."""


def convert_pdf(path: Path, source_id: str, config: ConvertConfig) -> "Page":
    """The source's text as Markdown, or a rejected page with its reason. The file is parsed in a limited process."""
    # Imported here: rows and the run's settings are not for the limited process, which imports this module too.
    from corpus.read.page import page_of, reason_of

    if fault := pdf_fault(path):
        return page_of(source_id, converter=CONVERTER, reason=fault)
    try:
        made = child.call(
            "corpus.read.embedded:convert_file", {"path": str(path), **asdict(config.reading)}, config.limits
        )
    except DocumentError as error:
        return page_of(source_id, converter=CONVERTER, reason=reason_of(error))
    return page_of(
        source_id,
        made["markdown"],
        num_pages=made["num_pages"],
        converter=CONVERTER,
        reason=made["reason"],
        page_starts=made["page_starts"],
        math_garbled=made["math_garbled"],
        removed=[Removed(**row) for row in made["removed"]],
        chosen=f"text layer on {made['num_pages'] - made['num_empty']} of {made['num_pages']} pages",
    )


def convert_file(path: str, **options: Any) -> dict[str, Any]:
    """Entry of the limited process: `Reading` as plain values for `ReadingConfig(**options)`."""
    return asdict(convert(path, ReadingConfig(**options)))


def convert(path: str, config: ReadingConfig) -> Reading:
    """The file's text as Markdown, or the reason why there is none."""
    # Imported here: PDFium is for the limited process.
    from corpus.read import pdf

    num_pages = count_pages(path)
    if num_pages > config.max_pages:
        return _refused(num_pages, 0, f"too_long: {num_pages} pages, at most {config.max_pages} are converted")
    printed = pdf.read(path)
    sizes = [sum(len(piece.text) for piece in page) for page in printed.pages]
    empty = sum(size < config.min_page_chars for size in sizes)
    if printed.unreadable and len(printed.unreadable) == num_pages:
        return _refused(num_pages, empty, "unreadable: no page could be loaded")
    if sum(sizes) < config.min_page_chars or empty > config.max_empty_share * num_pages:
        reason = f"needs_ocr: {empty} of {num_pages} pages have under {config.min_page_chars} characters"
        return _refused(num_pages, empty, reason)
    share = garble.meaningless("".join(piece.text for page in printed.pages for piece in page))
    if share > config.max_meaningless:
        return _refused(num_pages, empty, f"garbled: {share:.0%} of the characters have no Unicode meaning")
    return _read(printed, config, empty)


def _refused(num_pages: int, empty: int, reason: str) -> Reading:
    return Reading(
        markdown="", page_starts=[], math_garbled=[], removed=[], num_pages=num_pages, num_empty=empty, reason=reason
    )


def _read(printed: Printed, config: ReadingConfig, empty: int) -> Reading:
    made, removed = markdown(printed, config)
    edges = [*made.page_starts, len(made.markdown)]
    scores = [garble.math_garbled(made.markdown[start:end]) for start, end in pairwise(edges)]
    return Reading(
        markdown=made.markdown,
        page_starts=made.page_starts,
        math_garbled=scores,
        removed=removed,
        num_pages=len(printed.pages),
        num_empty=empty,
        reason="",
    )


def markdown(printed: Printed, config: ReadingConfig) -> tuple["Marked", list[Removed]]:
    """The Markdown, and what is left out: reading order, running heads, headings, paragraphs, print, one step each."""
    # Imported here, with all their patterns: a plan knows the converter and converts nothing.
    from corpus.read import headings, lines, paragraphs, running_heads
    from corpus.read.formulas.stacks import marked_texts
    from corpus.read.markdown import print_texts

    outline = printed.outline if config.use_outline else []
    pages: list[list[lines.Line]] = []
    counted: list[Removed] = []
    for index, (page, labels) in enumerate(zip(printed.pages, printed.labels, strict=True)):
        kept, numbers = lines.without_line_numbers(page)
        pages.append(lines.lines_of(kept, index))
        counted += [Removed(page=index, text=piece.text, reason="line_number") for piece in numbers]
        counted += [Removed(page=index, text=piece.text, reason="label") for piece in labels]
    titles = headings.titles_of(outline)
    cleaned, removed = running_heads.without_running_heads(
        pages, min_repeats=config.running_head_repeats, titles=titles
    )
    body = lines.body_size(cleaned)
    noted = [lines.with_note_marks(page, body) for page in cleaned]
    marked = headings.mark_headings(noted, outline)
    texts = paragraphs.texts_of(marked, paragraph_gap=config.paragraph_gap, body=body)
    return print_texts(marked_texts(texts, body), len(pages)), sorted([*counted, *removed], key=lambda row: row.page)
