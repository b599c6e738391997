"""Printed line numbers of a listing are no part of its code; numbers that a table or a program prints stay."""

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.read.embedded import ReadingConfig, convert

PROSE = "The harbor carries the timber of the valley to the furnace, and the jetty receives the copper."
CODE = ["begin", "    x := 3;", "", "    plot(x); wait(2)", "end;"]


def read(path, rows, *, first=1, number=("Helvetica", 6), code=("Courier", 10), gap=5.0):
    """Print the rows with their numbers, which end `gap` points to the left of the code, and read the page."""
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    for row in range(20):
        canvas.drawString(72, 760 - 12 * row, PROSE)
    for row, text in enumerate(rows):
        y = 500 - 12 * row
        canvas.setFont(*number)
        canvas.drawRightString(100 - gap, y, str(first + row))
        canvas.setFont(*code)
        canvas.drawString(100 + 6 * (len(text) - len(text.lstrip())), y, text.lstrip())
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=9))


@pytest.mark.parametrize("number", [("Helvetica", 6), ("Helvetica", 10), ("Courier-Bold", 7)])
@pytest.mark.parametrize("first", [1, 8])
def test_line_numbers_of_a_listing_are_left_out_and_its_lines_stay_in_one_block(tmp_path, number, first):
    reading = read(tmp_path / "a.pdf", CODE, number=number, first=first)
    assert "```\nbegin\n    x := 3;\n\n    plot(x); wait(2)\nend;\n```" in reading.markdown
    assert [row.text for row in reading.removed if row.reason == "line_number"] == [
        str(first + row) for row in range(len(CODE))
    ]


def test_the_number_of_a_listing_of_one_line_is_known_by_the_style_of_the_others(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    y = 760
    for rows in (["a", "b", "c"], ["solve(u);"]):
        canvas.setFont("Times-Roman", 10)
        for _ in range(8):
            canvas.drawString(72, y, PROSE)
            y -= 12
        for row, text in enumerate(rows, 1):
            canvas.setFont("Helvetica", 6)
            canvas.drawString(84, y, str(row))
            canvas.setFont("Courier", 10)
            canvas.drawString(95, y, text)
            y -= 12
    canvas.save()
    assert "\n\nsolve(u);\n" in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=9)).markdown


@pytest.mark.parametrize(
    ("number", "code", "gap"),
    [
        (("Courier", 10), ("Courier", 10), 5.0),
        (("Helvetica", 10), ("Courier", 10), 14.0),
        (("Helvetica", 6), ("Times-Roman", 10), 5.0),
    ],
)
def test_row_names_of_an_output_and_numbers_in_tables_and_prose_stay(tmp_path, number, code, gap):
    rows = ["first thing", "second thing", "third thing", "fourth thing"]
    reading = read(tmp_path / "a.pdf", rows, number=number, code=code, gap=gap)
    assert not reading.removed
