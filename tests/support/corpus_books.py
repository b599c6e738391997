"""Printed books for the tests and the benchmark: born-digital PDF files whose headings are known."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, PageBreak, PageTemplate, Paragraph, Preformatted, Table

WORDS = [
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "inlet",
    "jetty",
    "kiln",
    "lagoon",
    "meadow",
    "nectar",
    "orchard",
    "pasture",
    "quarry",
    "ridge",
    "saddle",
    "timber",
    "upland",
    "valley",
    "willow",
    "yarrow",
    "anchor",
    "beacon",
    "copper",
    "dynamo",
    "engine",
    "furnace",
    "girder",
    "hammer",
    "ingot",
    "joiner",
    "carries",
    "divides",
    "follows",
    "gathers",
    "measures",
    "observes",
    "produces",
    "receives",
    "separates",
    "supports",
    "and",
    "the",
    "of",
    "with",
    "under",
    "over",
]
CJK = (
    "\u6c34\u706b\u6728\u91d1\u571f\u5c71\u5ddd\u65e5\u6708\u661f"
    "\u7530\u91ce\u98a8\u96e8\u96ea\u82b1\u9ce5\u9b5a\u99ac\u725b"
)
FACES = {
    "serif": ("Times-Roman", "Helvetica-Bold", (20, 14, 11.5)),
    "sans": ("Helvetica", "Helvetica", (22, 16, 13)),
    "bold": ("Times-Roman", "Times-Bold", (14, 10.5, 10.5)),
    "cjk": ("STSong-Light", "STSong-Light", (20, 15, 12.5)),
}
"""Body face, title face, and the sizes of chapters, sections and subsections, points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPlan:
    """What a book is like."""

    face: str = "serif"
    """Key of FACES."""
    columns: int = 1
    """Columns of text."""
    outline: int = 3
    """Levels of titles that have bookmarks."""
    numbered: bool = True
    """Whether titles carry section numbers."""
    chapters: int = 4
    """Chapters."""
    sections: int = 4
    """Sections of a chapter; every other one has two subsections."""
    seed: int = 0
    """Seed of its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedBook:
    """A book that was written."""

    headings: list[tuple[int, str]]
    """Level, 1 for the highest, and title of every heading in order."""
    paragraphs: list[str]
    """Every paragraph in order."""


class _Template(BaseDocTemplate):
    """Bookmarks the titles."""

    outline = 3

    def afterFlowable(self, flowable: Flowable) -> None:
        level = getattr(flowable, "level", None)
        if level is not None and level < self.outline:
            name = f"mark{id(flowable)}"
            self.canv.bookmarkPage(name, fit="XYZ", left=0, top=self.frame._y + 24)
            self.canv.addOutlineEntry(flowable.getPlainText(), name, level)


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Flowables of a book under way."""

    plan: BookPlan
    """What the book is like."""
    rng: Random
    """Source of its words."""
    story: list[Flowable] = field(default_factory=list)
    """Flowables so far."""
    headings: list[tuple[int, str]] = field(default_factory=list)
    """Titles so far."""
    paragraphs: list[str] = field(default_factory=list)
    """Paragraphs so far."""

    def sentence(self) -> str:
        if self.plan.face == "cjk":
            return "".join(self.rng.choice(CJK) for _ in range(self.rng.randint(12, 30))) + "\u3002"
        words = [self.rng.choice(WORDS) for _ in range(self.rng.randint(8, 16))]
        return " ".join(words).capitalize() + "."

    def title(self, level: int, number: str) -> None:
        if self.plan.face == "cjk":
            words = "".join(self.rng.choice(CJK) for _ in range(6))
        else:
            words = " ".join(self.rng.choice(WORDS[:30]) for _ in range(3)).capitalize()
        text = f"{number} {words}" if self.plan.numbered else words
        _, face, sizes = FACES[self.plan.face]
        size = sizes[level]
        style = ParagraphStyle(
            f"title{level}", fontName=face, fontSize=size, leading=1.2 * size, spaceBefore=8, spaceAfter=6
        )
        flowable = Paragraph(text, style)
        flowable.level = level
        flowable.keepWithNext = 1
        self.story.append(flowable)
        self.headings.append((level + 1, text))

    def text(self, count: int = 2) -> None:
        face = FACES[self.plan.face][0]
        wrap = {"wordWrap": "CJK"} if self.plan.face == "cjk" else {}
        style = ParagraphStyle("body", fontName=face, fontSize=10, leading=12.5, spaceAfter=7, alignment=4, **wrap)
        joint = "" if self.plan.face == "cjk" else " "
        for _ in range(count):
            text = joint.join(self.sentence() for _ in range(self.rng.randint(4, 8)))
            self.story.append(Paragraph(text, style))
            self.paragraphs.append(text)

    def chapter(self, number: int) -> None:
        self.story.append(PageBreak())
        self.title(0, f"{number}")
        self.text()
        for section in range(1, self.plan.sections + 1):
            self.title(1, f"{number}.{section}")
            self.text()
            for part in range(1, 3 if section % 2 else 1):
                self.title(2, f"{number}.{section}.{part}")
                self.text(3)


def write_book(path: Path, plan: BookPlan) -> PrintedBook:
    """Write the book; the same bytes for the same plan."""
    if plan.face == "cjk":
        pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    writer = _Writer(plan=plan, rng=Random(plan.seed))
    cover = ParagraphStyle("cover", fontName=FACES[plan.face][0], fontSize=10, leading=12)
    writer.story.append(
        Paragraph("Printed for the tests of a reader of books, without any other purpose at all.", cover)
    )
    for number in range(1, plan.chapters + 1):
        writer.chapter(number)
    template = _Template(str(path), pagesize=A4, invariant=1)
    template.outline = plan.outline
    width, height = A4
    gap = 18
    wide = (width - 140 - gap * (plan.columns - 1)) / plan.columns
    frames = [Frame(70 + column * (wide + gap), 70, wide, height - 150) for column in range(plan.columns)]
    template.addPageTemplates([PageTemplate(frames=frames, onPage=_furniture)])
    template.build(writer.story)
    return PrintedBook(headings=writer.headings, paragraphs=writer.paragraphs)


def _furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
    canvas.setFont("Helvetica", 8)
    canvas.drawString(70, A4[1] - 45, "A Reader of Woods and Metals")
    canvas.drawRightString(A4[0] - 70, A4[1] - 45, str(document.page))


def listing(text: str) -> Preformatted:
    """A listing in a typewriter face."""
    return Preformatted(text, ParagraphStyle("code", fontName="Courier", fontSize=9, leading=11, spaceAfter=8))


def table(rows: list[list[str]]) -> Table:
    """A table without lines."""
    return Table(rows, style=[("FONT", (0, 0), (-1, -1), "Times-Roman", 10)])
