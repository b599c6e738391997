"""Data read from a PDF: positioned pieces of text by page, bookmarks, and text that was left out of the Markdown."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text on one line without a wide gap. Lengths and positions are in points, from the page's lower left corner."""

    text: str
    """Text with runs of spaces collapsed, except for inner spaces in a monospaced font."""
    x0: float
    """Left edge."""
    x1: float
    """Right edge."""
    y: float
    """Baseline."""
    size: float
    """Font size."""
    font: str
    """Name of the middle character's font, without the subset tag."""
    bold: bool
    mono: bool
    """Whether the font is monospaced."""
    broken: bool = False
    """Whether the last word was divided by a hyphen, which is not in the text."""
    run: bool = False
    """Whether the line also has pieces on other baselines, such as scripts."""
    tall: bool = False
    """Whether it begins or ends with a bracket much taller than its font size."""
    slanted: bool = False
    """Whether the last character is in italics or a font of mathematical letters; known only if `run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A thin horizontal line on a page, such as a fraction bar. Positions are in points."""

    x0: float
    x1: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineEntry:
    """One bookmark of the PDF."""

    level: int
    """1 for the highest."""
    title: str
    page: int
    """Index of the page that the bookmark points to; -1 if it points nowhere."""
    y: float | None = None
    """Height on that page, points; None if the bookmark has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfContent:
    """Text and bookmarks of a PDF."""

    pages: list[list[Piece]]
    """Pieces per page in the order of the file's drawing commands."""
    labels: list[list[str]]
    """Texts per page within a drawing or in another direction than the page's text; they are not in `pages`."""
    outline: list[OutlineEntry]
    unreadable: int
    """Number of pages that PDFium could not load; they are empty in `pages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedText:
    """Text of a source that a converter left out of the Markdown."""

    page: int
    """Page index, 0-based; -1 if unknown."""
    text: str
    """The text as printed; for a picture its caption or name."""
    reason: str
    """Kind of text, such as running_head, page_number, line_number, image or label (in a drawing or rotated)."""
