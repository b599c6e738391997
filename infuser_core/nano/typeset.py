"""Sets headings and paragraphs on PDF pages: running heads, page numbers, outline; the same bytes at every run."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from reportlab.lib.utils import simpleSplit
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = 420.0, 595.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 372.0, 520.0, 76.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a kind of line is set."""

    font: str
    """Standard PDF font, never embedded."""
    size: float
    """Points."""
    leading: float
    """Distance of two baselines, points."""
    after: float
    """Space below the block, points."""


STYLES = {
    "chapter": Style(font="Helvetica-Bold", size=18, leading=24, after=14),
    "section": Style(font="Helvetica-Bold", size=13, leading=17, after=4),
    "body": Style(font="Times-Roman", size=11, leading=14, after=14),
    "line": Style(font="Times-Roman", size=11, leading=14, after=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One printed line."""

    text: str
    """Text."""
    style: Style
    """How it is set."""
    y: float
    """Baseline above the lower edge, points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of the outline."""

    level: int
    """0 for chapters, 1 for sections."""
    title: str
    """Text of the heading."""
    page: int
    """Page index in the book, 0-based."""
    top: float
    """Upper edge of the heading, points."""


def pages_for(num_lines: int) -> int:
    """Pages that a titled list of this many lines takes."""
    title, line = STYLES["chapter"], STYLES["line"]
    first = math.floor((TOP - BOTTOM - title.leading - title.after) / line.leading)
    later = math.floor((TOP - BOTTOM) / line.leading)
    return 1 + max(0, math.ceil((num_lines - first) / later))


class Pages:
    """A run of pages, filled from the top; a block is never divided between two pages."""

    def __init__(self, *, first_page: int) -> None:
        self.pages: list[list[Placed]] = []
        self.marks: list[Mark] = []
        self._first_page = first_page
        self._y = TOP

    def new_page(self) -> None:
        """Go on at the top of a fresh page."""
        self.pages.append([])
        self._y = TOP

    def put(self, block: Sequence[tuple[str, str]], *, mark: int | None = None) -> int:
        """Set (style name, text) paragraphs together; a mark puts the first into the outline. Returns the page."""
        lines = []
        for name, text in block:
            style = STYLES[name]
            wrapped = simpleSplit(text, style.font, style.size, RIGHT - LEFT)
            lines += [(line, style, style.after if i == len(wrapped) - 1 else 0.0) for i, line in enumerate(wrapped)]
        if self._y - sum(style.leading for _, style, _ in lines) < BOTTOM:
            self.new_page()
        page = self._first_page + len(self.pages) - 1
        if mark is not None:
            self.marks.append(Mark(level=mark, title=block[0][1], page=page, top=self._y))
        for text, style, after in lines:
            self._y -= style.leading
            self.pages[-1].append(Placed(text=text, style=style, y=self._y))
            self._y -= after
        return page


def print_pdf(parts: Sequence[Pages], *, title: str, author: str) -> bytes:
    """All pages in order. Every page but the first has two head lines and two foot lines."""
    buffer = io.BytesIO()
    # invariant: no clock and no random identifier reaches the file.
    canvas = Canvas(buffer, pagesize=(WIDTH, HEIGHT), invariant=1, pageCompression=1)
    canvas.setTitle(title)
    canvas.setAuthor(author)
    canvas.setSubject("Textbook of the INFUSER micro-world")
    canvas.setCreator("infuser nano")
    marks = [mark for part in parts for mark in part.marks]
    for number, lines in enumerate(page for part in parts for page in part.pages):
        for i, mark in enumerate(marks):
            if mark.page == number:
                canvas.bookmarkPage(f"m{i}", fit="XYZ", left=0, top=mark.top, zoom=0)
                canvas.addOutlineEntry(mark.title, f"m{i}", level=mark.level, closed=mark.level == 0)
        for line in lines:
            canvas.setFont(line.style.font, line.style.size)
            canvas.drawString(LEFT, line.y, line.text)
        if number:
            _running(canvas, title, author, number + 1)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _running(canvas: Canvas, title: str, author: str, number: int) -> None:
    canvas.setFont("Helvetica", 8)
    canvas.drawString(LEFT, 560, title)
    canvas.drawString(LEFT, 548, author)
    canvas.drawString(LEFT, 46, "First edition")
    canvas.drawCentredString(WIDTH / 2, 34, str(number))
