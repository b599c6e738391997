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
        foot = [(300.0, 40.0, "Times-Roman", str(number + 1))]
        rows = 10 + number
        pages.append([*prose(number, rows=rows), (72, 700 - 12 * rows, "Courier", "gap> Dimension( A );"), *foot])
        pages[-1].append((72, 688 - 12 * rows, "Courier", "3"))
    made = book(tmp_path / "a.pdf", pages)
    assert made.markdown.count("\n3\n") == 8
    assert [(row.page, row.text, row.reason) for row in made.removed] == [
        (number, str(number + 1), "page_number") for number in range(8)
    ]


def test_a_sentence_that_ends_many_pages_stays(tmp_path):
    said = "Only available if optional support was enabled when it was compiled."
    pages = [[*prose(n, rows=9 + n), (72, 700 - 12 * (9 + n), "Times-Roman", said)] for n in range(6)]
    assert book(tmp_path / "a.pdf", pages).markdown.count(said) == 6


def test_lines_that_stand_alone_on_top_of_many_pages_stay_where_nothing_says_heads(tmp_path):
    words = ["timber", "amber", "lagoon", "ridge", "valley", "kiln", "beach", "jetty", "ingot", "moss", "fern", "loam"]
    tops: list[list[Placed]] = [[(72, 730, "Times-Roman", f"Hence the {word} is carried:")] for word in words]
    foot: list[list[Placed]] = [[(300, 40, "Times-Roman", str(number + 1))] for number in range(12)]
    pages = [[*top, *prose(number), *foot[number]] for number, top in enumerate(tops)]
    made = book(tmp_path / "a.pdf", pages)
    assert made.markdown.count("Hence the ") == 12 and {row.reason for row in made.removed} == {"page_number"}


def test_heads_of_left_and_right_pages_and_of_chapters_go(tmp_path):
    pages = []
    for number in range(20):
        left = number % 2
        head = f"{number + 7} A Reader of Woods" if left else f"Chapter {number // 5} on kilns {number + 7}"
        pages.append([(72 if left else 300, 760, "Times-Italic", head), *prose(number)])
    made = book(tmp_path / "a.pdf", pages)
    assert [row.reason for row in made.removed] == ["running_head"] * 20
    assert "Reader of Woods" not in made.markdown and "on kilns" not in made.markdown


def test_every_letter_is_in_the_markdown_or_recorded(tmp_path):
    for columns in (1, 2):
        path = tmp_path / f"{columns}.pdf"
        write_book(path, BookPlan(columns=columns))
        made = convert(str(path), ReadingConfig(max_pages=4000))
        assert made.removed
        kept = Counter(c for c in made.markdown + "".join(row.text for row in made.removed) if c.isalnum())
        assert not letters(path) - kept


def letters(path: Path) -> Counter[str]:
    """Letters and digits of a file as PDFium gives them, read apart from the converter."""
    import pypdfium2

    with pypdfium2.PdfDocument(str(path)) as document:
        text = "".join(page.get_textpage().get_text_range() for page in document)
    return Counter(c for c in text if c.isalnum())


def test_a_head_that_is_larger_than_the_text_goes_and_the_word_above_a_title_stays(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for number in range(12):
        head = [(72.0, 760.0, "Notes of a Harbor", 12.0)]
        if number % 3 == 0:
            head = [(72.0, 740.0, "CHAPTER", 20.0)]
        for x, y, text, size in [*head, *((x, y, text, 8.0) for x, y, _, text in prose(number))]:
            canvas.setFont("Times-Roman", size)
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    made = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=5))
    assert {row.text for row in made.removed} == {"Notes of a Harbor"} and len(made.removed) == 8
    assert made.markdown.count("CHAPTER") == 4


def test_a_head_whose_number_is_larger_than_its_title_goes(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for number in range(9):
        for x, y, text, size in [(72, 750, "Harbors", 9), (500, 750, str(number + 1), 10)]:
            canvas.setFont("Times-Roman", size)
            canvas.drawString(x, y, text)
        for x, y, font, text in prose(number):
            canvas.setFont(font, 10)
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    assert len(convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=5)).removed) == 9


def test_a_page_number_that_is_larger_than_the_text_goes(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    for number in range(1, 9):
        for x, y, font, text in prose(number):
            canvas.setFont(font, 10)
            canvas.drawString(x, y, text)
        canvas.setFont("Times-Roman", 11.5)
        canvas.drawString(300, 60, str(number))
        canvas.showPage()
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000))
    assert [row.text for row in made.removed] == [str(number) for number in range(1, 9)]


def test_a_listing_that_is_continued_on_the_next_page_is_one(tmp_path):
    code = [(72, 560 - 12 * row, "Courier", f"call(a, {row});") for row in range(6)]
    rest = [(72, 680 - 12 * row, "Courier", f"call(b, {row});") for row in range(6)]
    onward, back = "(continues on next page)", "(continued from previous page)"
    pages = [
        [*prose(1, rows=10), *code, (400, 480, "Times-Roman", onward)],
        [(72, 700, "Times-Roman", back), *rest, *prose(2, top=580)],
    ]
    made = book(tmp_path / "a.pdf", pages)
    assert made.markdown.count("```") == 2 and "call(a, 5);\ncall(b, 0);" in made.markdown, made.markdown
    assert [(row.text, row.reason) for row in made.removed] == [(onward, "running_head"), (back, "running_head")]


def test_a_foot_of_three_lines_with_several_parts_is_no_text(tmp_path):
    parts = [
        (520, 60, "{}"),
        (300, 60, "Draft"),
        (72, 60, "Copyright of the port"),
        (72, 48, "All rights"),
        (72, 36, "a"),
    ]
    pages = [
        [*prose(number), *((x, y, "Times-Roman", text.format(number + 1)) for x, y, text in parts)]
        for number in range(8)
    ]
    reading = book(tmp_path / "a.pdf", pages)
    assert "Copyright" not in reading.markdown and "Draft" not in reading.markdown
    assert sum(row.text.startswith("Copyright of the port") for row in reading.removed) == 8
