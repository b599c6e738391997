"""Running heads and page numbers are told by their place; code and prose that recur stay; what goes is recorded."""

from collections import Counter
from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book
from reportlab.pdfgen.canvas import Canvas

from corpus.read.embedded import Reading, ReadingConfig, convert

Placed = tuple[float, float, str, str]
"""Left edge, baseline, font and text."""


def book(path: Path, pages: list[list[Placed]]) -> Reading:
    canvas = Canvas(str(path))
    for page in pages:
        for x, y, font, text in page:
            canvas.setFont(font, 10)
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=4000, min_page_chars=5))


def prose(number: int, top: float = 700, rows: int = 12) -> list[Placed]:
    """Different words on every page."""
    words = f"harbor{number} carries timber over the ridge and down to the valley {number} where kiln"
    return [(72, top - 12 * row, "Times-Roman", f"{words} {number}x{row} waits") for row in range(rows)]


@pytest.mark.parametrize("last", ["}", "return result;", "end", "public:", "</simulation>"])
@pytest.mark.parametrize("apart", [12, 24])
def test_a_last_line_of_code_stays_however_often_it_recurs(tmp_path, last, apart):
    pages = []
    for number in range(12):
        rows = 8 + number % 4
        code = [(90, 690 - 12 * (rows + row), "Courier", f"call(a{number}, {row});") for row in range(3)]
        pages.append([*prose(number, rows=rows), *code, (90, code[-1][1] - apart, "Courier", last)])
    made = book(tmp_path / "a.pdf", pages)
    assert made.markdown.count(last) == 12 and not made.removed


def test_the_answer_below_a_call_is_no_page_number(tmp_path):
    pages = []
    for number in range(8):
        foot = [
            (520, 60, "{}"),
            (300, 60, "Draft"),
            (72, 60, "Copyright of the port"),
            (72, 48, "All rights"),
            (72, 36, "of it"),
        ]
    pages = [
        [*prose(number), *((x, y, "Times-Roman", text.format(number + 1)) for x, y, text in foot)]
        for number in range(8)
    ]
    reading = book(tmp_path / "a.pdf", pages)
    assert "Copyright" not in reading.markdown and "Draft" not in reading.markdown
    assert sum(row.text == "Copyright of the port" for row in reading.removed) == 8
