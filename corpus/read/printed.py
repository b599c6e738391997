"""Content of a PDF: positioned pieces of text by page, and its bookmarks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text on one line without a wide gap. Lengths and positions are in points, from the page's lower left corner."""

    text: str
    """Text with blanks collapsed, except for inner blanks of a typewriter font."""
    x0: float
    """Left edge."""
    x1: float
    """Right edge."""
    y: float
    """Baseline."""
    size: float
    """Font size."""
    font: str
    """Name of the font of its middle character, without the subset tag."""
    bold: bool
    mono: bool
    """Whether the font is a typewriter font."""
    broken: bool = False
    """Whether its last word was divided by a hyphen, which the text no longer has."""
    run: bool = False
    """Whether other pieces of its line are on other baselines."""
    slanted: bool = False
    """Whether its last character is in italics or a font of mathematical letters; known for runs only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A thin horizontal line, in points."""

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
    """Page index it points to; -1 if it points nowhere."""
    y: float | None = None
    """Height on that page, points; None if the bookmark has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfContent:
    """Content of a PDF."""

    pages: list[list[Piece]]
    """Pieces per page in the order of the file's drawing commands."""
    labels: list[list[str]]
    """Texts per page within a drawing or along another edge of the page; they are not in `pages`."""
    outline: list[OutlineEntry]
    unreadable: int
    """Number of pages that PDFium could not load; they are empty in `pages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedText:
    """Printed text that the converter left out of the Markdown."""

    page: int
    """Page index, 0-based."""
    text: str
    """The line as printed."""
    reason: str
    """running_head, page_number, line_number or label (of a drawing, or along another edge of the page)."""
