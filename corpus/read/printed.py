"""Printed content of a PDF: positioned pieces of text, page by page, and its bookmarks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text on one line without a wide gap."""

    text: str
    """Text with blanks collapsed; inner blanks of a typewriter font are kept."""
    x0: float
    """Left edge, points."""
    x1: float
    """Right edge, points."""
    y: float
    """Baseline above the page's lower edge, points."""
    size: float
    """Font size, points."""
    font: str
    """Name of the font of its middle character, without the subset tag."""
    bold: bool
    """Whether it is set in bold."""
    mono: bool
    """Whether it is set in a typewriter font."""
    broken: bool = False
    """Whether its last word was divided by a hyphen, which the text no longer has."""
    run: bool = False
    """Whether other pieces of its line stand on other baselines."""
    slanted: bool = False
    """Whether its last character is in italics or a font of mathematical letters; known for runs only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A thin horizontal line."""

    x0: float
    """Left end, points."""
    x1: float
    """Right end, points."""
    y: float
    """Height above the page's lower edge, points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineEntry:
    """One bookmark of the PDF."""

    level: int
    """1 for the highest."""
    title: str
    """Title of the bookmark."""
    page: int
    """Page index it points to; -1 when it points nowhere."""
    y: float | None = None
    """Height on that page, points; None where the bookmark does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Printed content of a PDF."""

    pages: list[list[Piece]]
    """Pieces per page in the order of the file's drawing commands."""
    labels: list[list[str]]
    """Texts per page that stand within a drawing or along another edge of the page; they are not in `pages`."""
    outline: list[OutlineEntry]
    """Bookmarks in order."""
    unreadable: int
    """Number of pages that PDFium could not load; they are empty in `pages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Printed text that the converter left out of the Markdown."""

    page: int
    """Page index, 0-based."""
    text: str
    """The line as printed."""
    reason: str
    """running_head, page_number, line_number or label (of a drawing, or along another edge of the page)."""
