"""Conversion of a born-digital PDF's text layer to Markdown. Runs only in resource-limited child processes."""

from dataclasses import asdict, dataclass, field
from typing import Any

from corpus.read.doubt import share_leftward
from corpus.read.file_kinds import count_pages
from corpus.read.printed import PdfContent, RemovedText

CONVERTER = "embedded-30"
MAX_EMPTY_SHARE = 0.8
"""Share of pages without a usable text layer above which the source is rejected as needs_ocr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig:
    """Limits that a PDF and its text layer must meet, and whether bookmarks are read."""

    min_page_chars: int = 100
    """A page with fewer characters has no usable text layer."""
    max_pages: int
    """Largest number of pages of a source; a textbook does not have more."""
    max_leftward: float = 0.1
    """Share of letters of right-to-left scripts above which the source is rejected: lines are read from the left."""
    use_outline: bool = True
    """Whether bookmarks are read; without them headings are recognised by their fonts alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result of converting one PDF: its Markdown, or the reason for its rejection."""

    num_pages: int
    num_empty: int = 0
    """Pages without a usable text layer."""
    reason: str = ""
    """Why the file was rejected; empty otherwise."""
    markdown: str = ""
    """Empty for a rejected file."""
    page_starts: list[int] = field(default_factory=list)
    """Offset at which each page's text begins, in characters."""
    removed: list[RemovedText] = field(default_factory=list)
    """Printed lines that are not in the Markdown."""


def convert_file(path: str, **options: Any) -> dict[str, Any]:
    """Convert a PDF in the resource-limited process: takes fields of `ReadingConfig`, returns those of `Reading`."""
    return asdict(convert(path, ReadingConfig(**options)))


def convert(path: str, config: ReadingConfig) -> Reading:
    """Convert a PDF's text layer to Markdown, or return the reason for rejecting the file."""
    # Imported here, as below: planning needs only the converter's name and version.
    from corpus.read import pdf

    num_pages = count_pages(path)
    if num_pages > config.max_pages:
        reason = f"too_long: {num_pages} pages, at most {config.max_pages} are converted"
        return Reading(num_pages=num_pages, reason=reason)
    content = pdf.read_pdf(path)
    sizes = [sum(len(piece.text) for piece in page) for page in content.pages]
    num_empty = sum(size < config.min_page_chars for size in sizes)
    if reason := _text_layer_fault(content, sizes, num_empty, config):
        return Reading(num_pages=num_pages, num_empty=num_empty, reason=reason)
    return render_content(content, num_empty, use_outline=config.use_outline)


def _text_layer_fault(content: PdfContent, sizes: list[int], empty: int, config: ReadingConfig) -> str:
    """Return why the text layer is not usable; empty if it is."""
    num_pages = len(sizes)
    if content.unreadable and content.unreadable == num_pages:
        return "unreadable: no page could be loaded"
    if sum(sizes) < config.min_page_chars or empty > MAX_EMPTY_SHARE * num_pages:
        return f"needs_ocr: {empty} of {num_pages} pages have under {config.min_page_chars} characters"
    text = "".join(piece.text for page in content.pages for piece in page)
    if (share := share_leftward(text)) > config.max_leftward:
        most = f"at most {config.max_leftward:.0%} may be in a PDF; use the book's EPUB, HTML or LaTeX"
        return f"right_to_left: {share:.0%} of the letters are written from right to left, {most}"
    return ""


def render_content(content: PdfContent, num_empty: int, *, use_outline: bool) -> Reading:
    """Render the pages: reading order, running heads, headings, paragraphs and Markdown, one step each."""
    from corpus.read import headings, lines, paragraphs, running_heads
    from corpus.read.formulas.stacks import mark_garbled_blocks
    from corpus.read.line_numbers import split_line_numbers
    from corpus.read.markdown import render_blocks

    outline = content.outline if use_outline else []
    pages: list[list[lines.PdfLine]] = []
    removed: list[RemovedText] = []
    texts, line_numbers = split_line_numbers(content.pages)
    rows = zip(texts, lines.gutters_of(texts), line_numbers, content.labels, strict=True)
    for index, (page, middle, numbers, labels) in enumerate(rows):
        pages.append(lines.lines_of(page, index, middle))
        removed += [RemovedText(page=index, text=piece.text, reason="line_number") for piece in numbers]
        removed += [RemovedText(page=index, text=label, reason="label") for label in labels]
    text_pages, heads = running_heads.split_running_heads(pages, headings.titles_of(outline))
    body = lines.body_size(text_pages)
    note_pages = [lines.resolve_note_marks(page, body) for page in text_pages]
    blocks = paragraphs.blocks_of(headings.mark_headings(note_pages, outline), body)
    text, starts = render_blocks(mark_garbled_blocks(blocks, body), len(pages))
    return Reading(
        num_pages=len(pages),
        num_empty=num_empty,
        markdown=text,
        page_starts=starts,
        removed=sorted([*removed, *heads], key=lambda row: row.page),
    )
