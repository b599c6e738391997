"""Two columns are read one after the other, also where a line sticks out of its column or a page has listings only."""

from pathlib import Path

from reportlab.pdfgen.canvas import Canvas

from corpus.read.embedded import ReadingConfig, convert

LEFT = [f"Line {n:02} of the left column that is filled with words up to" for n in range(40)]
RIGHT = [f"Row {n:02} of the right column which has as many words as the" for n in range(40)]
CODE = ["while step:", *[f"    step += {number}" for number in range(14)]]


def page(canvas: Canvas, left: list[str], right: list[str]) -> None:
    """Draw two columns; lines of code in Courier, with their indentation."""
    for x, rows in ((72, left), (345, right)):
        for row, text in enumerate(rows):
            canvas.setFont("Courier" if text in CODE else "Times-Roman", 10)
            canvas.drawString(x + 6 * (len(text) - len(text.lstrip())), 740 - 14 * row, text.lstrip())
    canvas.showPage()


def text_of(path: Path) -> str:
    return convert(str(path), ReadingConfig(max_pages=9)).markdown


def test_a_line_that_sticks_out_of_the_left_column_does_not_divide_the_page(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    long = f"{LEFT[12]} the 12th"
    page(canvas, [*LEFT[:12], long, *LEFT[13:]], ["", *RIGHT])
    canvas.save()
    text = text_of(tmp_path / "a.pdf")
    assert [text.index(line) for line in (LEFT[0], long, LEFT[39], RIGHT[0])] == sorted(
        text.index(line) for line in (LEFT[0], long, LEFT[39], RIGHT[0])
    )


def test_a_listing_over_two_columns_keeps_its_indentation(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    page(canvas, [*LEFT[:30], "and ends.", *CODE[:7]], [*CODE[7:], *RIGHT[:30]])
    canvas.save()
    assert "\n".join(["```", *CODE, "```"]) in text_of(tmp_path / "a.pdf")


def test_entries_on_a_page_without_running_text_know_the_edges_of_their_column(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for _ in range(2):
        page(canvas, LEFT, RIGHT)
    entry = ["tells whether what is bound has a value, as the name does, i.e.", "whether it has one."]
    short = [text for number in range(8) for text in (f"Entry {number}", "", "See: others", "")]
    page(canvas, [*short, *entry], [*short, *short[:6]])
    canvas.save()
    assert " ".join(entry) in text_of(tmp_path / "a.pdf")
