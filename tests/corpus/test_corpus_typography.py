"""What only the place and shape of printed signs show: initials, accents, scripts of a font, tall brackets, notes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from corpus_hostile import raw_pdf
from reportlab.pdfgen.canvas import Canvas

from corpus.read.doubt import MARK
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.pdf import read_pdf

PROSE = "The river carries sand and gravel from the hills to the plain and drops the coarse grains first."
Text = tuple[float, float, float, str]
"""Left edge, baseline and font size, points, and the text."""


def read(path: Path) -> list[str]:
    """Blocks of the Markdown of a PDF."""
    return convert(str(path), ReadingConfig(max_pages=9, min_page_chars=1)).markdown.strip("\n").split("\n\n")


def drawn(path: Path, texts: Sequence[Text]) -> list[str]:
    """Blocks of a page in Times with these texts above eight lines of prose, without the prose."""
    canvas = Canvas(str(path))
    rest = [(72.0, 400.0 - 12 * row, 10.0, PROSE) for row in range(8)]
    for x, y, size, text in [*texts, *rest]:
        canvas.setFont("Times-Roman", size)
        canvas.drawString(x, y, text)
    canvas.save()
    return [block for block in read(path) if not block.startswith(PROSE)]


def bitmaps(path: Path, boxes: Mapping[str, tuple[int, int, int]], lines: Sequence[Text], *, valued: bool) -> Path:
    """A page in a nameless font of boxes: width, lower and upper end by sign, which may have Unicode values."""
    signs = sorted(set("".join(text for *_, text in lines)))
    streams = []
    for sign in signs:
        width, lower, upper = boxes.get(sign, (500, 0, 700))
        streams.append(f"{width} 0 0 {lower} {width} {upper} d1 0 {lower} {width - 40} {upper - lower} re f")
    rows = "".join(f"<{ord(sign):02x}> <{ord(sign):04x}>\n" for sign in signs)
    streams.append(
        f"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange {len(signs)} "
        f"beginbfchar\n{rows}endbfchar endcmap end"
    )
    shown = (f"/F0 {size} Tf 1 0 0 1 {x} {y} Tm <{text.encode().hex()}> Tj" for x, y, size, text in lines)
    streams.append(f"BT {' '.join(shown)} ET")
    names = {sign: f"g{ord(sign)}" for sign in signs}
    widths = " ".join(str(boxes.get(chr(code), (500, 0, 0))[0]) for code in range(32, 127))
    glyphs = " ".join(f"/{name} {number} 0 R" for number, name in enumerate(names.values(), 4))
    codes = " ".join(f"{ord(sign)} /{name}" for sign, name in names.items())
    unicode = f"/ToUnicode {len(signs) + 4} 0 R" if valued else ""
    font = (
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 -900 900 1600] /FontMatrix [0.001 0 0 0.001 0 0] /CharProcs "
        f"<< {glyphs} >> /Encoding << /Type /Encoding /Differences [{codes}] >> /FirstChar 32 /LastChar 126 "
        f"/Widths [{widths}] {unicode} /Resources << >> >>"
    )
    page = (
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(signs) + 5} 0 R "
        f"/Resources << /Font << /F0 {len(signs) + 6} 0 R >> >> >>"
    )
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page]
    objects += [f"<< /Length {len(text)} >>\nstream\n{text}\nendstream" for text in streams]
    path.write_bytes(raw_pdf([text.encode() for text in [*objects, font]]))
    return path


def test_an_initial_over_two_lines_belongs_to_its_word(tmp_path):
    texts = [
        (72.0, 686.0, 36.0, "T"),
        (106.0, 700.0, 11.0, "HE growth of sand"),
        (106.0, 686.0, 11.0, "and gravel is slow."),
    ]
    assert drawn(tmp_path / "a.pdf", texts) == ["THE growth of sand and gravel is slow."]


@pytest.mark.parametrize(("rest", "word"), [("river rose", "A river rose"), ("fter that", "After that")])
def test_an_initial_that_is_a_word_stays_one(tmp_path, rest, word):
    texts = [(72.0, 686.0, 36.0, "A"), (106.0, 700.0, 11.0, rest), (106.0, 686.0, 11.0, "and it fell again.")]
    assert drawn(tmp_path / "a.pdf", texts) == [f"{word} and it fell again."]


def test_accents_drawn_after_other_letters_are_composed_with_theirs(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))

    def width(text: str) -> float:
        return canvas.stringWidth(text, "Times-Roman", 10)

    whole = "The method of Jerome Henin is old and good."
    places = [
        (whole.index("ero"), "\u00b4", 18),
        (whole.index("ome "), "\u02c6", 21),
        (whole.index("enin"), "\u00b4", 27),
    ]
    canvas.setFont("Times-Roman", 10)
    begin = 0
    for place, accent, stop in places:
        canvas.drawString(72 + width(whole[:begin]), 700, whole[begin:stop])
        canvas.drawString(72 + width(whole[:place]) + (width(whole[place]) - width(accent)) / 2, 700.05, accent)
        begin = stop
    canvas.drawString(72 + width(whole[:begin]), 700, whole[begin:])
    canvas.save()
    assert read(tmp_path / "a.pdf") == ["The method of J\u00e9r\u00f4me H\u00e9nin is old and good."]


def test_digits_that_a_font_raises_or_lowers_on_the_baseline_are_scripts(tmp_path):
    boxes = {"6": (300, 360, 690), "3": (300, -150, 200), "4": (500, -200, 450), " ": (250, 0, 0)}
    lines = [(72.0, 700.0, 10.0, "There are 106 cells of CO3 in 14 tubs.")]
    path = bitmaps(tmp_path / "a.pdf", boxes, lines, valued=True)
    assert read(path) == ["There are 10^{6} cells of CO_{3} in 14 tubs."]


def test_rows_in_tall_brackets_of_any_font_are_marked(tmp_path):
    boxes = {"(": (400, -800, 1400), ")": (400, -800, 1400), " ": (250, 0, 0)}
    rows = [(76.0, 707.0, 10.0, "1"), (76.0, 693.0, 10.0, "3"), (86.0, 707.0, 10.0, "2"), (86.0, 693.0, 10.0, "4")]
    lines = [(72.0, 700.0, 10.0, "("), *rows, (91.0, 700.0, 10.0, ")"), (72.0, 600.0, 10.0, f"f{PROSE}")]
    assert MARK in read(bitmaps(tmp_path / "a.pdf", boxes, lines, valued=True))[0]
    low = {**boxes, "(": (400, -200, 800), ")": (400, -200, 800)}
    assert not any(piece.tall for piece in read_pdf(str(bitmaps(tmp_path / "b.pdf", low, lines, valued=True))).pages[0])


@pytest.mark.parametrize("wide", [False, True])
def test_a_brace_is_one_in_a_nameless_typewriter_font_alone(tmp_path, wide):
    boxes = {"M": (800 if wide else 500, 0, 700), " ": (500, 0, 0)}
    lines = [(72.0, 700.0 - 12 * row, 10.0, text) for row, text in enumerate(["plot(math{M}", "label(over{n}"])]
    text = "\n".join(read(bitmaps(tmp_path / "a.pdf", boxes, lines, valued=False)))
    assert ("over{n}" in text, MARK in text) == (not wide, wide)


def test_a_mark_in_a_listing_does_not_keep_its_fence_open(tmp_path):
    boxes = {" ": (500, 0, 0)}
    lines = [(72.0, 700.0 - 12 * row, 10.0, text) for row, text in enumerate(["plot(math)", "over = 3", "next"])]
    path = bitmaps(tmp_path / "a.pdf", boxes, lines, valued=True)
    path.write_bytes(path.read_bytes().replace(b"<0033>", b"<df00>"))
    assert read(path) == [f"```\nplot(math)\nover = {MARK}\nnext\n```"]


def test_a_letter_without_a_value_is_marked(tmp_path):
    lines = [(72.0, 700.0, 10.0, "The force is G of the sun.")]
    path = bitmaps(tmp_path / "a.pdf", {"T": (600, 0, 700), "h": (300, 0, 700)}, lines, valued=True)
    path.write_bytes(path.read_bytes().replace(b"<0047>", b"<df00>"))
    (text,) = read(path)
    assert text.endswith(MARK) and "\ufffd" not in text


@pytest.mark.parametrize(
    ("note", "text"),
    [("", "the length^{3} of it"), ("3 A note.", "the length[^3] of it")],
)
def test_a_raised_number_is_the_mark_of_a_note_of_its_page_alone(tmp_path, note, text):
    width = Canvas("").stringWidth("the length", "Times-Roman", 10)
    texts = [(72.0, 700.0, 10.0, "the length"), (72 + width, 704.0, 7.0, "3"), (75 + width + 3, 700.0, 10.0, "of it")]
    blocks = drawn(tmp_path / "a.pdf", [*texts, (330.0, 700.0, 7.0, note)] if note else texts)
    assert blocks[0].startswith(text)


def test_numbers_in_the_margin_are_line_numbers_and_those_of_a_table_are_its_first_column(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for left in (50, 72):
        canvas.setFont("Times-Roman", 10)
        for row in range(12):
            canvas.drawString(left, 700 - 12 * row, str(row + 1))
            canvas.drawString(left + 28, 700 - 12 * row, f"the record is out of bounds in {row}")
        for row in range(30):
            canvas.drawString(72, 500 - 12 * row, PROSE)
        canvas.showPage()
    canvas.save()
    reading = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=9))
    assert [(row.page, row.text) for row in reading.removed] == [(0, str(row + 1)) for row in range(12)]


def test_a_bullet_of_an_office_font_begins_an_item(tmp_path):
    path = bitmaps(
        tmp_path / "a.pdf",
        dict.fromkeys("ilt", (280, 0, 700)),
        [(72, 700, 10, "~ Silt and clay"), (72, 688, 10, "~ Gravel")],
        valued=True,
    )
    path.write_bytes(path.read_bytes().replace(b"<7e> <007e>", b"<7e> <f0b7>"))
    assert read(path) == ["- Silt and clay", "- Gravel"]
