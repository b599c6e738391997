"""The fast reading of a page equals the plain one, and every character can be traced to its page."""

from bisect import bisect_right

import pypdfium2
import pypdfium2.raw as raw
import pytest
from corpus_books import BookPlan, write_book
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from corpus.read import pdf
from corpus.read.characters import BROKEN_WORD, clean, codes_of
from corpus.read.converters import pdfium
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.garble import math_garbled, meaningless
from corpus.read.page import ConversionJob

PROSE = "The harbor carries timber over the ridge and down to the valley where the kiln of a potter is waiting. "


@pytest.mark.parametrize("columns", [1, 2])
def test_headings_lie_on_the_page_that_prints_them(tmp_path, columns):
    write_book(tmp_path / "a.pdf", BookPlan(columns=columns))
    page = pdfium.convert(tmp_path / "a.pdf", "book", ConversionJob())
    with pypdfium2.PdfDocument(tmp_path / "a.pdf") as document:
        printed = [" ".join(document[index].get_textpage().get_text_range().split()) for index in range(len(document))]
    assert len(page.page_starts) == page.num_pages == len(printed) == len(page.math_garbled)
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


def test_formulas_that_came_out_as_debris_score_high_and_prose_low():
    assert math_garbled(PROSE) < 0.1
    assert math_garbled("\ud835\udf15 [ ( 2 / ) ] \u03c1 e + | u 2 = \u2212 \u2207 q x j f v \u222b d t") > 0.6
    assert math_garbled("") == 0.0 and math_garbled("\u6c34 \u706b \u6728 \u91d1") == 0.0
    assert math_garbled("1 12 2. 3 a of in . . . . . | |") == 0.0


def test_characters_without_meaning_are_counted():
    assert meaningless("abc") == 0.0
    assert meaningless("ab\ue000\ufffd") == 0.5
    assert meaningless(" \n") == 0.0


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
