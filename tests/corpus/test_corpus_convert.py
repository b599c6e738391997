"""The embedded converter gives headings and whole paragraphs; every character has its page, and hostile files are rejected."""

import codecs
from bisect import bisect_right
from pathlib import Path

import corpus_hostile as hostile
import pypdfium2
import pypdfium2.raw as raw
import pytest
from corpus_books import BookPlan, write_book
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import PageBreak, Paragraph, Preformatted, SimpleDocTemplate

from corpus.read import convert as converting
from corpus.read import pdf
from corpus.read.characters import BROKEN_WORD, clean, codes_of
from corpus.read.convert import convert_text
from corpus.read.converters import pdfium
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.file_kinds import is_text, pdf_fault
from corpus.read.page import ConversionJob
from infuser_core.system.child import Limits

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


PROSE = "The harbor carries timber over the ridge and down to the valley where the kiln of a potter is waiting. "


@pytest.mark.parametrize("columns", [1, 2])
def test_headings_lie_on_the_page_that_prints_them(tmp_path, columns):
    write_book(tmp_path / "a.pdf", BookPlan(columns=columns))
    page = pdfium.convert(tmp_path / "a.pdf", "book", ConversionJob())
    with pypdfium2.PdfDocument(tmp_path / "a.pdf") as document:
        printed = [" ".join(document[index].get_textpage().get_text_range().split()) for index in range(len(document))]
    assert len(page.page_starts) == page.num_pages == len(printed)
    assert page.page_starts == sorted(page.page_starts) and page.page_starts[0] == 0
    for line in page.markdown.split("\n"):
        if line.startswith("#"):
            start = page.markdown.index(line)
            first, last = (bisect_right(page.page_starts, place) - 1 for place in (start, start + len(line) - 1))
            assert first == last and line.lstrip("# ") in printed[first]


def test_pages_without_text_have_the_place_of_the_next_one(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for number in range(4):
        if number != 1:
            canvas.drawString(72, 700, f"Page number {number} says that the harbor carries timber over the ridge.")
        canvas.showPage()
    canvas.save()
    made = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=10))
    assert made.page_starts[1] == made.page_starts[2] and made.num_empty == 1
    assert made.markdown[made.page_starts[2] :].startswith("Page number 2")


def plain_codes(textpage) -> list[int]:
    """Character by character, as PDFium's own interface has it."""
    return [raw.FPDFText_GetUnicode(textpage, index) for index in range(raw.FPDFText_CountChars(textpage))]


@pytest.mark.parametrize("face", ["serif", "cjk"])
def test_reading_a_page_at_once_gives_the_same_characters(tmp_path, face):
    write_book(tmp_path / "a.pdf", BookPlan(face=face, chapters=1))
    with pypdfium2.PdfDocument(tmp_path / "a.pdf") as document:
        for index in range(len(document)):
            textpage = document[index].get_textpage()
            pairs = zip(codes_of(textpage), plain_codes(textpage), strict=True)
            assert all(one == other or {one, other} <= BROKEN_WORD for one, other in pairs)


@pytest.mark.parametrize("turns", [0, 90, 180, 270])
def test_a_page_printed_sideways_reads_like_an_upright_one(tmp_path, turns):
    lines = [f"Row {row:02} carries timber over the ridge and down to the valley of the kiln" for row in range(20)]
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=A4)
    canvas.translate(A4[0] / 2, A4[1] / 2)
    canvas.rotate(turns)
    for row, line in enumerate(lines):
        canvas.drawString(-200, 150 - 14 * row, line)
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    assert " ".join(text.split()) == " ".join(lines)


def test_halves_of_a_sign_beyond_the_basic_plane_are_put_together():
    assert clean("\ud835\udf15 x") == "\U0001d715 x"
    assert clean("\udc00 alone").endswith(" alone")
    assert clean("soft\u00adly \u00a0 and\x01 \u200bthin") == "softly and thin"


def test_bookmarks_say_where_they_point(tmp_path):
    book = write_book(tmp_path / "a.pdf", BookPlan())
    outline = pdf.read_pdf(str(tmp_path / "a.pdf")).outline
    assert [(entry.level, entry.title) for entry in outline] == book.headings
    assert all(entry.page >= 1 and entry.y and 0 < entry.y < A4[1] for entry in outline)


@pytest.mark.parametrize("content", [b"# A\r\n\r\ntext\n", "\u6c34 # \u706b\n".encode(), b"\xef\xbb\xbf# A\n"])
def test_text_is_kept_save_for_the_byte_order_mark_and_the_form_of_line_ends(tmp_path, content):
    (tmp_path / "a.md").write_bytes(content)
    page = convert_text(tmp_path / "a.md", "book")
    plain = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    assert page.markdown.encode() == plain and page.page_starts == [0]


def test_utf16_with_its_mark_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes("# Kiln\n".encode("utf-16"))
    assert convert_text(tmp_path / "a.txt", "book").markdown == "# Kiln\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"caf\xe9 au lait", "not_utf8: byte 0xe9 at offset 3"),
        (b"ok \xf0\x9f", "not_utf8: byte 0xf0 at offset 3"),
        (b"a\x00b", "not_text: a zero byte at character 1"),
        (b" \n\t", "empty: "),
    ],
)
def test_what_is_no_text_is_rejected_with_its_reason(tmp_path, content, reason):
    (tmp_path / "a.md").write_bytes(content)
    page = convert_text(tmp_path / "a.md", "book")
    assert page.status == "rejected" and page.reason.startswith(reason) and page.markdown == ""


def test_a_file_larger_than_allowed_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "MAX_BYTES", 99)
    (tmp_path / "a.md").write_bytes(b"x" * 100)
    assert convert_text(tmp_path / "a.md", "book").reason == "too_long: 100 bytes, at most 99 are read"


def test_the_name_says_text_but_a_pdf_stays_a_pdf(tmp_path):
    (tmp_path / "a.md").write_bytes(b"%PDF-1.7")
    (tmp_path / "b.MD").write_bytes(b"text")
    (tmp_path / "c.pdf").write_bytes(b"text")
    assert [is_text(tmp_path / name) for name in ("a.md", "b.MD", "c.pdf")] == [False, True, False]


class Small(ConversionJob):
    """A job whose limited processes get little memory."""

    limits = Limits(wall_seconds=60.0, cpu_seconds=30, memory_bytes=700 << 20)


def reason(path: Path) -> str:
    page = pdfium.convert(path, "book", Small())
    assert (page.status, page.markdown, page.page_starts) == ("rejected", "", []) and "\n" not in page.reason
    return page.reason


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty: "),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "not_pdf: the file begins with a web page"),
        (b"PK\x03\x04 a zip", "not_pdf: the file begins with b'PK"),
        (b"%PDF-1.7\n" + b"x" * 9000, "truncated: "),
        (b"%PDF-1.7\n" + bytes(range(256)) * 40 + b"\n%%EOF\n", "unreadable: "),
        (hostile.page_loop(), "unreadable: "),
        (hostile.deep_nesting(3000), "unreadable: "),
        (hostile.compression_bomb(400), "unreadable: needs more than 0.7 GB"),
    ],
    ids=["zero bytes", "web page", "zip", "no trailer", "noise", "page loop", "deep nesting", "compression bomb"],
)
def test_a_file_that_is_no_readable_pdf_says_why(tmp_path, content, said):
    (tmp_path / "a.pdf").write_bytes(content)
    assert reason(tmp_path / "a.pdf").startswith(said)


def test_a_book_cut_in_half_is_not_taken_for_a_short_book(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan())
    whole = (tmp_path / "a.pdf").read_bytes()
    (tmp_path / "a.pdf").write_bytes(whole[: len(whole) // 2])
    assert reason(tmp_path / "a.pdf").startswith("truncated: ")


def test_an_encrypted_file_needs_its_password(tmp_path):
    hostile.encrypted(tmp_path / "a.pdf")
    assert reason(tmp_path / "a.pdf").startswith("encrypted: ")


def test_more_pages_than_a_textbook_has_are_not_read(tmp_path):
    (tmp_path / "a.pdf").write_bytes(hostile.many_pages(5000))
    assert reason(tmp_path / "a.pdf") == "too_long: 5000 pages, at most 4000 are converted"


def test_very_many_pages_are_read_when_allowed(tmp_path):
    (tmp_path / "a.pdf").write_bytes(hostile.many_pages(300))
    assert convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=20)).num_pages == 300


def test_a_file_that_is_gone_is_a_reason_too(tmp_path):
    assert pdf_fault(tmp_path / "none.pdf") == "unreadable: No such file or directory"


def test_a_page_that_cannot_be_loaded_does_not_cost_the_book(tmp_path):
    objects = hostile.one_page(hostile.stream(b"BT /F1 10 Tf 50 700 Td (" + b"timber and copper " * 20 + b") Tj ET"))
    objects[1] = b"<< /Type /Pages /Kids [3 0 R 6 0 R] /Count 2 >>"
    (tmp_path / "a.pdf").write_bytes(hostile.raw_pdf([*objects, b"(no page)"]))
    page = pdfium.convert(tmp_path / "a.pdf", "book", Small())
    assert "timber and copper" in page.markdown and page.chosen == "text layer on 1 of 2 pages"
