"""Two columns are read one after the other, however the file draws them."""

from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book
from reportlab.pdfgen.canvas import Canvas

from corpus.read.embedded import ReadingConfig, convert

LEFT = [f"Line {n:02} of the left column that is filled with words up to" for n in range(30)]
RIGHT = [f"Row {n:02} of the right column which has as many words as the" for n in range(30)]


def draw(path: Path, *, by_row: bool, title: bool) -> None:
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    if title:
        canvas.drawString(
            72,
            760,
            "One sentence runs over the whole width of the page, above both of the columns, from left to right.",
        )
    places = [(72, 700 - 14 * n, text) for n, text in enumerate(LEFT)]
    others = [(345, 700 - 14 * n, text) for n, text in enumerate(RIGHT)]
    order = [item for pair in zip(places, others, strict=True) for item in pair] if by_row else places + others
    for x, y, text in order:
        canvas.drawString(x, y, text)
    canvas.save()


@pytest.mark.parametrize("title", [True, False])
@pytest.mark.parametrize("by_row", [True, False])
def test_columns_come_out_one_after_the_other(tmp_path, by_row, title):
    draw(tmp_path / "a.pdf", by_row=by_row, title=title)
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig()).markdown
    places = [text.index(line) for line in [*LEFT, *RIGHT]]
    assert places == sorted(places)
    assert not title or text.index("One sentence") < places[0]


def test_paragraphs_of_a_two_column_book_are_whole(tmp_path):
    book = write_book(tmp_path / "a.pdf", BookPlan(columns=2))
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig()).markdown
    whole = [paragraph for paragraph in book.paragraphs if f"\n{paragraph}\n" in text]
    assert len(whole) >= 0.9 * len(book.paragraphs)
    assert "A Reader of Woods" not in text


def test_a_two_column_table_is_no_page_of_two_columns(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for row in range(12):
        canvas.drawString(72, 700 - 14 * row, f"key {row}")
        canvas.drawString(330, 700 - 14 * row, f"value {row}")
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(min_page_chars=10)).markdown
    assert "| key 3 | value 3 |" in text and text.index("value 3") < text.index("key 4")


@pytest.mark.parametrize("left", [30, 90])
def test_numbers_that_count_the_lines_in_the_margin_are_dropped_and_others_stay(tmp_path, left):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for row in range(20):
        canvas.drawString(left, 700 - 14 * row, str(120 + row))
        canvas.drawString(
            72 if left < 72 else 150, 700 - 14 * row, f"The harbor carries {LEFT[row][5:7]} loads of timber"
        )
        if left > 72:
            canvas.drawString(72, 700 - 14 * row, "no")
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig()).markdown
    assert ("127" in text) == (left > 72) and "07 loads of timber" in text
