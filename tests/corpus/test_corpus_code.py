"""Code of a PDF: underscores that are drawn, typewriter fonts that are not called so, arrows, numbered lines, tables."""

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas
from tex_fonts import write_page

from corpus.read import fonts
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.lines import lines_of
from corpus.read.printed import Piece

WIDE = 6.0
"""Advance of a character of Courier at 10 points."""


def read(path: Path) -> str:
    return convert(str(path), ReadingConfig(max_pages=4000, min_page_chars=1, max_meaningless=1.0)).markdown


def drawn(path: Path, texts: list[str]) -> str:
    """Lines in Courier whose underscores are rules on the baseline, as TeX's old fonts have them."""
    canvas = Canvas(str(path))
    canvas.setFont("Courier", 10)
    for row, text in enumerate(texts):
        y, start = 700 - 12 * row, 0
        for place, sign in enumerate(f"{text}_"):
            if sign != "_":
                continue
            part = text[start:place].rstrip()
            canvas.drawString(72 + WIDE * (start + len(part) - len(part.lstrip())), y, part.lstrip())
            if place < len(text):
                canvas.rect(72 + WIDE * place + 0.6, y, 4, 0.4, stroke=0, fill=1)
            start = place + 1
    canvas.save()
    return read(path)


@pytest.mark.parametrize("text", ["f(E,_) or g", "f(E, _) or g", "GT_ID_ALL", "a _b is", "draw_ it", "max_len = 3"])
def test_a_short_rule_is_an_underscore_with_the_blanks_beside_it(tmp_path, text):
    assert text in drawn(tmp_path / "a.pdf", [text, "and more words below"])


def test_an_underscore_does_not_divide_the_word_below_it(tmp_path):
    made = drawn(tmp_path / "a.pdf", ["the GT_ID_ALL is", "all fits_open and"])
    assert made == "```\nthe GT_ID_ALL is\nall fits_open and\n```\n"


@pytest.mark.parametrize("name", ["t1xtt", "t1xbtt", "t1xttsl", "CMTT10", "CMSLTT10", "CMITT10", "NimbusMonL-Regu"])
def test_typewriter_fonts_of_tex_are_known_by_name(name):
    assert fonts.MONO.search(name)


@pytest.mark.parametrize("name", ["t1xr", "CMR10", "CMMI12", "TeXGyreTermes-Regular", "NimbusRomNo9L"])
def test_other_fonts_of_tex_are_no_typewriter(name):
    assert not fonts.MONO.search(name)


def test_a_font_whose_letters_are_equally_wide_is_a_typewriter_font(tmp_path):
    lines = [("Text", 72.0, 700.0, b"Adu z = Bad"), ("Text", 82.0, 688.0, b"cab + wax = d")]
    assert read(write_page(tmp_path / "a.pdf", lines)) == "```\nAdu z = Bad\n  cab + wax = d\n```\n"


@pytest.mark.parametrize(
    ("texts", "mono"),
    [
        (["*(car x)", "\u21d2", "*7"], True),
        (["12:", "*return x;"], True),
        (["*car", "takes a pair"], False),
        (["\u21d2"], False),
    ],
)
def test_a_line_is_code_when_its_words_are(texts, mono):
    def piece(place: int, text: str) -> Piece:
        x0 = 72.0 + 60 * place
        return Piece(
            text=text.lstrip("*"), x0=x0, x1=x0 + 50, y=700, size=10, font="f", bold=False, mono=text[0] == "*"
        )

    (line,) = lines_of([piece(place, text) for place, text in enumerate(texts)], 0)
    assert line.mono is mono


def table(path: Path, code: set[int]) -> str:
    canvas = Canvas(str(path))
    for row in range(6):
        canvas.setFont("Courier" if row in code else "Times-Roman", 10)
        canvas.drawString(72, 700 - 12 * row, f"option {row}")
        canvas.drawString(250, 700 - 12 * row, f"value {row}")
    canvas.save()
    return read(path)


def test_a_row_of_code_does_not_divide_a_table_and_aligned_code_is_none(tmp_path):
    assert table(tmp_path / "a.pdf", {3}).count("\n") == 7
    assert table(tmp_path / "b.pdf", {0, 1, 2, 3, 4, 5}).startswith("```\noption 0  ")


def test_brackets_and_remarks_in_another_font_belong_to_their_listing(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    rows = ["int main(void)", "{", "return 0;", "// the end", "}"]
    for row, text in enumerate(rows):
        canvas.setFont("Courier" if text[0] not in "{}/" else "Times-Italic", 10)
        canvas.drawString(72, 700 - 12 * row, text)
        canvas.setFont("Times-Italic", 10)
        canvas.drawString(250, 700 - 12 * row, "/* no fault */" * (row == 2))
    canvas.save()
    lines = [line.strip() for line in read(tmp_path / "a.pdf").splitlines()]
    assert [line.split("  ")[0] for line in lines] == ["```", *rows, "```"] and "/* no fault */" in lines[3]
