"""Drawings that a PDF includes: their labels are no text, and what a program wrapped like one is read as the page."""

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.read import pdf
from corpus.read.embedded import Reading, ReadingConfig, convert

PROSE = "Each range is a run of whole numbers that begins where the other one ends."


def page(path: Path, *, wrapped: bool = False) -> Reading:
    """A page of prose around a plot, all of it within one more drawing where `wrapped`."""
    canvas = Canvas(str(path))
    canvas.beginForm("plot")
    canvas.rect(0, 0, 200, 60)
    canvas.setFont("Helvetica", 6)
    for number in range(5):
        canvas.drawString(40 * number, 2, str(10 * number))
    canvas.drawString(80, 52, "reduce(ir)")
    canvas.endForm()
    if wrapped:
        canvas.beginForm("page")
    canvas.setFont("Times-Roman", 10)
    for row in range(8):
        canvas.drawString(72, 700 - 12 * row, PROSE)
        canvas.drawString(72, 400 - 12 * row, PROSE)
    canvas.saveState()
    canvas.translate(150, 480)
    canvas.doForm("plot")
    canvas.restoreState()
    if wrapped:
        canvas.endForm()
        canvas.doForm("page")
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=4000))


@pytest.mark.parametrize("wrapped", [False, True])
def test_labels_of_a_plot_are_recorded_and_the_text_around_it_stays(tmp_path, wrapped):
    made = page(tmp_path / "book.pdf", wrapped=wrapped)
    assert made.markdown.count(PROSE) == 16
    assert "reduce" not in made.markdown
    assert [row.text for row in made.removed if row.reason == "label"] == ["0", "10", "20", "30", "40", "reduce(ir)"]


def test_a_listing_that_a_slide_includes_is_text(tmp_path):
    canvas = Canvas(str(tmp_path / "slides.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(4):
        canvas.drawString(72, 700 - 12 * row, PROSE)
    canvas.beginForm("listing")
    for row, text in enumerate(["int a = 0;", "while (a < 10)", "{", "  a++;", "}"]):
        canvas.setFont("Helvetica", 5)
        canvas.drawString(0, 60 - 12 * row, str(row + 1))
        canvas.setFont("Courier", 10)
        canvas.drawString(20, 60 - 12 * row, text)
    canvas.endForm()
    canvas.translate(80, 500)
    canvas.doForm("listing")
    canvas.save()
    made = convert(str(tmp_path / "slides.pdf"), ReadingConfig(max_pages=4000))
    assert made.markdown.count("```") == 2 and not made.removed
    assert "3   {\n4     a++;\n5   }\n" in made.markdown


def test_the_bar_of_a_fraction_is_found_on_a_page_that_is_wrapped_like_a_drawing(tmp_path):
    canvas = Canvas(str(tmp_path / "page.pdf"))
    canvas.beginForm("page")
    canvas.setFont("Times-Roman", 10)
    for row in range(3):
        canvas.drawString(30, 200 - 20 * row, PROSE)
    canvas.drawString(30, 100, "x =")
    canvas.drawString(55, 106, "a + b")
    canvas.drawString(66, 94, "c")
    canvas.rect(54.5, 102.3, 22, 0.4, stroke=0, fill=1)
    canvas.endForm()
    canvas.translate(40, 500)
    canvas.scale(0.9, 0.9)
    canvas.doForm("page")
    canvas.save()
    assert "x = \\frac{a + b}{c}" in " ".join(p.text for p in pdf.read_pdf(str(tmp_path / "page.pdf")).pages[0])


def sketched(path: Path, *, curves: int, caption: str = "") -> Reading:
    """Prose above and below boxes with names, which the page itself draws, joined by slanting lines."""
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    for row in range(8):
        canvas.drawString(72, 700 - 12 * row, PROSE)
        canvas.drawString(72, 400 - 12 * row, PROSE)
    for number in range(4):
        canvas.rect(100 + 70 * number, 520, 50, 40)
        canvas.drawString(104 + 70 * number, 536, f"node {number}")
        canvas.line(150 + 70 * number, 540, 170 + 70 * number, 540)
    for number in range(curves):
        canvas.line(150 + 70 * number, 530, 170 + 70 * number, 550)
    if caption:
        canvas.drawString(100, 495, caption)
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=4000))


@pytest.mark.parametrize(("curves", "caption"), [(3, ""), (0, "Figure 2: Nodes in a row.")])
def test_labels_of_a_drawing_on_the_page_itself_are_recorded_and_its_caption_stays(tmp_path, curves, caption):
    made = sketched(tmp_path / "book.pdf", curves=curves, caption=caption)
    assert made.markdown.count(PROSE) == 16 and caption in made.markdown
    assert [row.text for row in made.removed] == [f"node {number}" for number in range(4)]


def test_boxes_that_nothing_calls_a_figure_keep_their_text(tmp_path):
    assert "node 3" in sketched(tmp_path / "book.pdf", curves=0).markdown


def test_a_round_frame_keeps_its_text(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        canvas.drawString(72, 700 - 12 * row, PROSE if row % 3 else "so that q = p + 1.")
        if row % 4 == 0:
            canvas.roundRect(70, 660 - 12 * row, 400, 46, 5)
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000))
    assert made.markdown.count(PROSE) == 8 and made.markdown.count("q = p + 1") == 4 and not made.removed


def test_what_is_printed_along_another_edge_of_the_page_is_recorded(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(8):
        canvas.drawString(72, 700 - 12 * row, PROSE)
    canvas.rotate(90)
    canvas.drawString(620, -60, "draft of May")
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000))
    assert made.markdown.count(PROSE) == 8 and "May" not in made.markdown
    assert "May" in "".join(row.text for row in made.removed)
