"""The embedded converter gives headings and whole paragraphs, and nothing of the page furniture."""

from pathlib import Path

import pytest
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import PageBreak, Paragraph, Preformatted, SimpleDocTemplate

from corpus.read.converters import pdfium
from corpus.read.page import ConversionJob

BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=10, leading=12, spaceAfter=8)
TITLES = [
    ParagraphStyle("chapter", fontName="Helvetica-Bold", fontSize=18, leading=22, spaceAfter=10),
    ParagraphStyle("section", fontName="Helvetica-Bold", fontSize=13, leading=16, spaceBefore=8, spaceAfter=6),
]
SENTENCE = "The small wug number {n} walks along the shore and collects a surprising amount of rather heavy stones."


def paragraph(seed: int, sentences: int = 6) -> str:
    return " ".join(SENTENCE.format(n=seed * 100 + i) for i in range(sentences))


class Book(SimpleDocTemplate):
    """Writes an outline entry for every title when `outline` is set."""

    outline = True

    def afterFlowable(self, flowable):
        level = getattr(flowable, "level", None)
        if level is not None and self.outline:
            name = f"mark{id(flowable)}"
            self.canv.bookmarkPage(name)
            self.canv.addOutlineEntry(flowable.getPlainText(), name, level)


def title(text: str, level: int) -> Paragraph:
    flowable = Paragraph(text, TITLES[level])
    flowable.level = level
    return flowable


def furniture(canvas: Canvas, document: SimpleDocTemplate) -> None:
    canvas.setFont("Helvetica", 8)
    canvas.drawString(72, 810, "On Wugs")
    canvas.drawRightString(520, 810, f"page {document.page}")
    canvas.drawCentredString(300, 30, str(document.page))


def build(path: Path, story: list, *, outline: bool = True) -> None:
    book = Book(str(path), invariant=1)
    book.outline = outline
    book.build(story, onFirstPage=furniture, onLaterPages=furniture)


def chapters() -> list:
    story: list = [Paragraph("A line of introduction that stands before everything else in this book.", BODY)]
    for chapter in range(3):
        story += [PageBreak(), title(f"Chapter {chapter + 1}: Wugs", 0)]
        for section in range(6):
            seed = chapter * 10 + section
            story += [title(f"Section on matter {seed}", 1), Paragraph(paragraph(seed, 9), BODY)]
    return story


def converted(path: Path) -> str:
    page = pdfium.convert(path, "book", ConversionJob())
    assert page.status == "converted", page.reason
    return page.markdown


@pytest.mark.parametrize("outline", [True, False])
def test_sections_come_out_as_heading_and_one_line(tmp_path, outline):
    build(tmp_path / "a.pdf", chapters(), outline=outline)
    text = converted(tmp_path / "a.pdf")
    for chapter in range(3):
        assert f"\n\n# Chapter {chapter + 1}: Wugs\n\n" in text
        for section in range(6):
            seed = chapter * 10 + section
            assert f"\n\n## Section on matter {seed}\n\n{paragraph(seed, 9)}\n" in text
    assert "On Wugs" not in text and "\n4\n" not in text


def test_two_paragraphs_stay_two_and_contents_lines_are_no_headings(tmp_path):
    large = ParagraphStyle("toc", parent=BODY, fontSize=13, leading=16)
    story = [title("Contents", 0), Paragraph("1.1 Section on matter ........ 7", large), PageBreak()]
    story += [title("Wugs", 0), Paragraph(paragraph(1), BODY), Paragraph(paragraph(2), BODY)]
    build(tmp_path / "a.pdf", story)
    text = converted(tmp_path / "a.pdf")
    assert f"# Wugs\n\n{paragraph(1)}\n\n{paragraph(2)}\n" in text
    assert [line for line in text.split("\n") if line.startswith("#")] == ["# Contents", "# Wugs"]


def test_hyphenated_words_are_joined(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    lines = [
        "A word that is too long for its line is divi-",
        "ded and goes on below, as one would expect of",
        "it.",
        paragraph(1, 1),
    ]
    for row, line in enumerate(lines):
        canvas.drawString(72, 700 - 14 * row, line)
    canvas.save()
    assert "is divided and goes on below" in converted(tmp_path / "a.pdf")


def test_printed_markup_is_escaped_and_listings_are_fenced(tmp_path):
    code = ParagraphStyle("code", fontName="Courier", fontSize=9, leading=11, spaceAfter=8)
    story = [title("Code", 0), Paragraph("# no heading but a sentence that begins with a number sign.", BODY)]
    story += [Paragraph(paragraph(1), BODY), Preformatted("# comment\ndef wug():\n    return 1", code)]
    build(tmp_path / "a.pdf", story)
    text = converted(tmp_path / "a.pdf")
    assert "\n\\# no heading" in text
    assert "```\n# comment\ndef wug():\n    return 1\n```" in text


def test_a_file_without_text_needs_ocr(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for _ in range(3):
        canvas.rect(100, 100, 200, 200, fill=1)
        canvas.showPage()
    canvas.save()
    page = pdfium.convert(tmp_path / "a.pdf", "book", ConversionJob())
    assert page.status == "rejected" and page.reason.startswith("needs_ocr: 3 of 3") and page.markdown == ""


def test_a_damaged_file_is_a_rejected_row(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 nonsense")
    page = pdfium.convert(tmp_path / "a.pdf", "book", ConversionJob())
    assert page.status == "rejected" and page.reason.startswith("truncated")


def test_running_heads_that_say_something_else_on_every_page_are_known_by_their_place(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(8):
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 810, f"{'abcdefgh'[page] * 3}quatic wugs")
        canvas.setFont("Helvetica", 10)
        canvas.drawString(
            72,
            770,
            f"A line {'abcdefgh'[page] * 4} of text that stands apart on top of one page in two."
            if page % 2
            else SENTENCE,
        )
        for row in range(4):
            canvas.drawString(72, (740 if page % 2 else 758) - 12 * row, paragraph(page * 10 + row, 1))
        canvas.showPage()
    canvas.save()
    text = converted(tmp_path / "a.pdf")
    assert "quatic" not in text and text.count("stands apart on top") == 4


def test_running_heads_that_change_with_the_chapter_go_with_their_page_number(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(6):
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 810, f"Chapter {page}: {'ABCDEF'[page]}quatic wugs {page + 11}")
        canvas.setFont("Helvetica", 10)
        for row in range(4):
            canvas.drawString(72, 700 - 12 * row, paragraph(page * 10 + row, 1))
        canvas.showPage()
    canvas.save()
    assert "quatic" not in converted(tmp_path / "a.pdf")
