"""The fast reading of a page's characters equals the plain one, upright or sideways."""

import pypdfium2
import pypdfium2.raw as raw
import pytest
from corpus_books import BookPlan, write_book
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from corpus.read import pdf
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.pdf import BROKEN_WORD, clean


def plain_codes(textpage) -> list[int]:
    """Character by character, as PDFium's own interface has it."""
    return [raw.FPDFText_GetUnicode(textpage, index) for index in range(raw.FPDFText_CountChars(textpage))]


@pytest.mark.parametrize("face", ["serif", "cjk"])
def test_reading_a_page_at_once_gives_the_same_characters(tmp_path, face):
    write_book(tmp_path / "a.pdf", BookPlan(face=face, chapters=1))
    with pypdfium2.PdfDocument(tmp_path / "a.pdf") as document:
        for index in range(len(document)):
            textpage = document[index].get_textpage()
            pairs = zip(pdf.codes_of(textpage), plain_codes(textpage), strict=True)
            assert all(one == other or {one, other} <= BROKEN_WORD for one, other in pairs)


def test_some_pages_of_a_book_are_read_like_the_whole_book(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan())
    whole = pdf.read(str(tmp_path / "a.pdf"))
    part = pdf.read(str(tmp_path / "a.pdf"), first=2, last=5)
    assert part.pages == whole.pages[2:5] and part.outline == whole.outline


@pytest.mark.parametrize("turns", [0, 90, 180, 270])
def test_a_page_printed_sideways_reads_like_an_upright_one(tmp_path, turns):
    lines = [f"Row {row:02} carries timber over the ridge and down to the valley of the kiln" for row in range(20)]
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=A4)
    canvas.translate(A4[0] / 2, A4[1] / 2)
    canvas.rotate(turns)
    for row, line in enumerate(lines):
        canvas.drawString(-200, 150 - 14 * row, line)
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig()).markdown
    assert " ".join(text.split()) == " ".join(lines)


def test_halves_of_a_sign_beyond_the_basic_plane_are_put_together():
    assert clean("\ud835\udf15 x") == "\U0001d715 x"
    assert clean("\udc00 alone").endswith(" alone")
    assert clean("soft\u00adly \u00a0 and\x01 \u200bthin") == "softly and thin"


def test_bookmarks_say_where_they_point(tmp_path):
    book = write_book(tmp_path / "a.pdf", BookPlan())
    outline = pdf.read(str(tmp_path / "a.pdf")).outline
    assert [(entry.level, entry.title) for entry in outline] == book.headings
    assert all(entry.page >= 1 and entry.y and 0 < entry.y < A4[1] for entry in outline)
