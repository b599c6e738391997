"""Words, paragraphs, lists, tables, listings and notes of a PDF are complete, program code character by character."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from corpus_books import CJK, BookPlan, listing, table, write_book
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import ListFlowable, ListItem, Paragraph, SimpleDocTemplate
from tex_fonts import write_page

from corpus.read import fonts
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.lines import PdfLine, lines_of
from corpus.read.markdown import join_lines, render_blocks, vocabulary
from corpus.read.paragraphs import BlockKind, TextBlock
from corpus.read.printed import Piece

BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=10, leading=12, spaceAfter=8)
FILLER = "The harbor carries timber over the ridge and down to the valley where a kiln is waiting for it. " * 4


def read(path: Path, **options: object) -> str:
    reading = convert(str(path), ReadingConfig(max_pages=4000, **options))
    assert not reading.reason
    return reading.markdown


def story(path: Path, *flowables: object) -> str:
    SimpleDocTemplate(str(path), invariant=1).build([Paragraph(FILLER, BODY), *flowables])
    return read(path)


def drawn(path: Path, lines: list[tuple[float, float, str]], font: str = "Times-Roman") -> str:
    canvas = Canvas(str(path))
    canvas.setFont(font, 10)
    for x, y, text in lines:
        canvas.drawString(x, y, text)
    canvas.save()
    return read(path, min_page_chars=10)


@pytest.mark.parametrize(
    ("left", "right", "book", "whole"),
    [
        ("is divi", "ded here", "divided", "is divided here"),
        ("a high", "quality wool", "high-quality", "a high-quality wool"),
        ("a well", "known wool", "well well known known", "a well-known wool"),
        ("typeset", "ting", "", "typesetting"),
        ("the Mid", "West", "", "the Mid-West"),
    ],
)
def test_a_word_divided_by_the_margin_is_put_together_as_the_book_writes_it(left, right, book, whole):
    assert join_lines(left, right, broken=True, words=vocabulary([book])) == whole


@pytest.mark.parametrize(
    ("text", "more", "whole"),
    [
        ("see https://", "example.org/a", "see https://example.org/a"),
        ("see https://example.org/", "part_2.html now", "see https://example.org/part_2.html now"),
        ("see https://example.org/", "for more", "see https://example.org/ for more"),
    ],
)
def test_an_address_that_the_margin_divides_is_whole(text, more, whole):
    assert join_lines(text, more, broken=False, words=vocabulary([])) == whole


def test_lines_of_east_asian_text_join_without_a_blank():
    assert join_lines("\u6c34\u706b", "\u6728\u91d1", broken=False, words=vocabulary([])) == "\u6c34\u706b\u6728\u91d1"
    assert join_lines("\u6c34", "PDF", broken=False, words=vocabulary([])) == "\u6c34 PDF"


def test_ligatures_and_hyphens_of_the_page_are_repaired(tmp_path):
    lines = [
        "The of\ufb01cer of the \ufb02eet wrote a dif\ufb01cult let-",
        "ter to the harbor and waited for an answer all day.",
    ]
    assert vocabulary(["\ufb01t"]) == {"fit": 1}
    text = drawn(
        tmp_path / "a.pdf",
        [(72, 700 - 12 * row, line.replace("\ufb01", "fi").replace("\ufb02", "fl")) for row, line in enumerate(lines)],
    )
    assert "wrote a difficult letter to the harbor" in text


def test_paragraphs_without_space_between_them_are_told_apart_by_indentation(tmp_path):
    first = [
        "Amber and cedar stand on the basin in the early light of the day, and",
        "nothing moves on the far side of the lagoon. It is quiet there today.",
    ]
    second = [
        "A willow bends over the water of the inlet and drops its leaves into",
        "the current that carries them away to the jetty and the anchor there.",
    ]
    lines = [(72.0 + 12 * (row % 2 == 0), 700.0 - 12 * row, line) for row, line in enumerate(first + second)]
    assert drawn(tmp_path / "a.pdf", lines) == f"{' '.join(first)}\n\n{' '.join(second)}\n"


def test_items_of_a_list_are_items(tmp_path):
    items = ListFlowable(
        [ListItem(Paragraph(f"The {name} is measured.", BODY)) for name in ("kiln", "jetty")],
        bulletType="bullet",
        start="\u2022",
    )
    text = story(tmp_path / "a.pdf", items)
    assert "\n- The kiln is measured.\n\n- The jetty is measured.\n" in text


def test_numbered_items_begin_paragraphs(tmp_path):
    lines = [
        (72.0, 700.0, "1. Heat the kiln until it glows."),
        (72.0, 688.0, "2. Pour the copper into the ingot."),
        (72.0, 676.0, "3. Wait."),
    ]
    assert (
        drawn(tmp_path / "a.pdf", lines)
        == "1. Heat the kiln until it glows.\n\n2. Pour the copper into the ingot.\n\n3. Wait.\n"
    )


def test_a_simple_table_is_a_table(tmp_path):
    rows = [
        ["metal", "melts at", "colour"],
        ["copper", "1085", "red"],
        ["tin", "232", "white"],
        ["lead|iron", "328", "grey"],
    ]
    text = story(tmp_path / "a.pdf", table([[cell + "   " for cell in row] for row in rows]), Paragraph(FILLER, BODY))
    assert (
        "| metal | melts at | colour |\n|---|---|---|\n"
        "| copper | 1085 | red |\n| tin | 232 | white |\n| lead\\|iron | 328 | grey |\n" in text
    )


def test_a_listing_keeps_its_indentation_its_blanks_and_its_empty_lines(tmp_path):
    code = "def carry(timber):\n    if timber:\n        return  1   # no heading\n\n    return 0"
    assert f"```\n{code}\n```" in story(tmp_path / "a.pdf", listing(code), Paragraph(FILLER, BODY))


def test_a_listing_may_hold_fences(tmp_path):
    assert "````\n```\ncode here\n```\n````" in story(tmp_path / "a.pdf", listing("```\ncode here\n```"))


def test_a_note_does_not_cut_the_paragraph_that_goes_on_overleaf(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    line = "timber goes over the ridge and down to the valley where it is needed for the"
    for start, rows in ((0, 30), (30, 20)):
        canvas.setFont("Times-Roman", 10)
        for row in range(rows):
            canvas.drawString(72, 750 - 12 * row, f"{start + row:02} {line}")
        if not start:
            canvas.setFont("Times-Roman", 8)
            canvas.drawString(72, 100, "A note of the printer stands below the text.")
        canvas.showPage()
    canvas.save()
    text = read(tmp_path / "a.pdf")
    assert f"29 {line} 30 {line}" in text and text.endswith("\n\nA note of the printer stands below the text.\n")


def test_east_asian_text_comes_out_whole(tmp_path):
    book = write_book(tmp_path / "a.pdf", BookPlan(face="cjk", chapters=2))
    text = read(tmp_path / "a.pdf")
    assert sum(paragraph in text for paragraph in book.paragraphs) >= 0.9 * len(book.paragraphs)
    assert sum(c in CJK for c in text) > 0.8 * sum(not c.isspace() for c in text)


def test_text_that_looks_like_markup_is_no_markup(tmp_path):
    signs = ["# kiln", "> quoted by hand", "- - -", "<script> is no script", "===", "| a bar", "$$ much money"]
    lines = [(72.0, 740.0 - 40 * row, sign) for row, sign in enumerate(signs)]
    text = drawn(tmp_path / "a.pdf", [*lines, (72.0, 300.0, FILLER[:90])])
    assert [line for line in text.split("\n") if line] == [*(f"\\{sign}" for sign in signs), FILLER[:90].strip()]


def test_leaders_of_a_contents_page_are_shortened_and_each_line_stands_alone(tmp_path):
    lines = [
        (72.0, 700.0 - 12 * row, f"{row + 1}.1 Of the {name} {'. ' * 30}{row + 4}")
        for row, name in enumerate(("kiln", "jetty", "ingot"))
    ]
    assert (
        drawn(tmp_path / "a.pdf", lines)
        == "1.1 Of the kiln ... 4\n\n2.1 Of the jetty ... 5\n\n3.1 Of the ingot ... 6\n"
    )


PROGRAM = ["if x in list then", "  return multiplied * 2;", "fi;", "# the answer", "}"]


def bitmap_font_book(path: Path, widths: list[int], texts: Sequence[str] = PROGRAM, shift: int = 0) -> None:
    """A page of code in a Type 3 font, which PDFium gives no name, as old TeX installations embed their bitmaps."""
    glyphs = " ".join(f"/g{code} 1 0 R" for code in range(33, 127))
    names = " ".join(f"/g{code}" for code in range(33, 127))
    map_rows = "\n".join(f"<{code:02x}> <{code + shift:04x}>" for code in range(33, 127))
    unicode_map = f"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange 94 beginbfchar\n{map_rows}\nendbfchar endcmap end"
    shown = "".join(
        f"BT /F0 10 Tf {72 + 6 * (len(text) - len(text.lstrip()))} {700 - 12 * row} Td ({escaped(text.lstrip())}) Tj ET\n"
        for row, text in enumerate(texts)
    )
    prose = "".join(f"BT /F1 10 Tf 72 {600 - 12 * row} Td ({FILLER[:90]}) Tj ET\n" for row in range(8))
    objects = [
        stream("600 0 0 0 500 700 d1 0 0 500 700 re f"),
        f"<< /Type /Font /Subtype /Type3 /FontBBox [0 -200 600 800] /FontMatrix [0.001 0 0 0.001 0 0] /CharProcs << {glyphs} >> /Encoding << /Type /Encoding /Differences [33 {names}] >> /FirstChar 32 /LastChar 126 /Widths [{' '.join(map(str, widths))}] /ToUnicode 3 0 R /Resources << >> >>",
        stream(unicode_map),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
        stream(shown + prose),
        "<< /Type /Page /Parent 7 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources << /Font << /F0 2 0 R /F1 4 0 R >> >> >>",
        "<< /Type /Pages /Kids [6 0 R] /Count 1 >>",
        "<< /Type /Catalog /Pages 7 0 R >>",
    ]
    body = "%PDF-1.4\n" + "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    path.write_text(f"{body}trailer << /Root 8 0 R /Size 9 >>\n%%EOF\n", encoding="latin-1")


def stream(text: str) -> str:
    return f"<< /Length {len(text)} >>\nstream\n{text}\nendstream"


def escaped(text: str) -> str:
    return text.replace("(", r"\(").replace(")", r"\)")


def test_code_in_a_nameless_fixed_pitch_font_is_a_listing(tmp_path):
    bitmap_font_book(tmp_path / "a.pdf", [600] * 95)
    assert "```\n" + "\n".join(PROGRAM) + "\n```" in read(tmp_path / "a.pdf")


def test_stars_of_a_nameless_font_are_the_letters_at_their_codes(tmp_path):
    bitmap_font_book(tmp_path / "a.pdf", [600] * 95, texts=["FADE0123456789"], shift=0x2705)
    assert "FADE0123456789" in read(tmp_path / "a.pdf")


def test_a_nameless_font_of_different_widths_is_no_typewriter(tmp_path):
    bitmap_font_book(tmp_path / "a.pdf", [400 + 40 * (code % 7) for code in range(95)])
    assert "```" not in read(tmp_path / "a.pdf")


def test_an_operator_that_the_margin_puts_in_front_of_a_line_is_no_bullet(tmp_path):
    lines = [
        "The harbor carries timber over the ridge and to the valley where 25 + 0",
        "* [1 .. 100] is the sum of a list, and the kiln is waiting for all of it.",
    ]
    text = drawn(tmp_path / "a.pdf", [(72, 700 - 12 * row, line) for row, line in enumerate(lines)])
    assert text == f"{' '.join(lines)}\n"


def test_stars_in_front_of_items_are_bullets(tmp_path):
    lines = [
        "The harbor has all of these things, which are used up by the kiln there:",
        "* timber that comes over the ridge and is carried to the valley and back",
        "* amber that the lagoon leaves on the beach in the morning of each day",
    ]
    text = drawn(tmp_path / "a.pdf", [(72, 700 - 12 * row, line) for row, line in enumerate(lines)])
    assert text.count("\n- ") == 2


WIDE = 6.0
"""Advance of a character of Courier at 10 points."""


def read_code(path: Path) -> str:
    return convert(str(path), ReadingConfig(max_pages=4000, min_page_chars=1)).markdown


def typed(path: Path, texts: list[str]) -> str:
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
    return read_code(path)


@pytest.mark.parametrize("text", ["f(E,_) or g", "f(E, _) or g", "GT_ID_ALL", "a _b is", "draw_ it", "max_len = 3"])
def test_a_short_rule_is_an_underscore_with_the_blanks_beside_it(tmp_path, text):
    assert text in typed(tmp_path / "a.pdf", [text, "and more words below"])


def test_an_underscore_does_not_divide_the_word_below_it(tmp_path):
    made = typed(tmp_path / "a.pdf", ["the GT_ID_ALL is", "all fits_open and"])
    assert made == "```\nthe GT_ID_ALL is\nall fits_open and\n```\n"


@pytest.mark.parametrize("name", ["t1xtt", "t1xbtt", "t1xttsl", "CMTT10", "CMSLTT10", "CMITT10", "NimbusMonL-Regu"])
def test_typewriter_fonts_of_tex_are_known_by_name(name):
    assert fonts.MONO.search(name)


@pytest.mark.parametrize("name", ["t1xr", "CMR10", "CMMI12", "TeXGyreTermes-Regular", "NimbusRomNo9L"])
def test_other_fonts_of_tex_are_no_typewriter(name):
    assert not fonts.MONO.search(name)


def test_a_font_whose_letters_are_equally_wide_is_a_typewriter_font(tmp_path):
    lines = [("Text", 72.0, 700.0, b"Adu z = Bad"), ("Text", 82.0, 688.0, b"cab + wax = d")]
    assert read_code(write_page(tmp_path / "a.pdf", lines)) == "```\nAdu z = Bad\n  cab + wax = d\n```\n"


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


def option_table(path: Path, code: set[int]) -> str:
    canvas = Canvas(str(path))
    for row in range(6):
        canvas.setFont("Courier" if row in code else "Times-Roman", 10)
        canvas.drawString(72, 700 - 12 * row, f"option {row}")
        canvas.drawString(250, 700 - 12 * row, f"value {row}")
    canvas.save()
    return read_code(path)


def test_a_row_of_code_does_not_divide_a_table_and_aligned_code_is_none(tmp_path):
    assert option_table(tmp_path / "a.pdf", {3}).count("\n") == 7
    assert option_table(tmp_path / "b.pdf", {0, 1, 2, 3, 4, 5}).startswith("```\noption 0  ")


def test_brackets_and_remarks_in_another_font_belong_to_their_listing(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    rows = ["int main(void)", "{", "return 0;", "// the end", "}"]
    for row, text in enumerate(rows):
        canvas.setFont("Courier" if text[0] not in "{}/" else "Times-Italic", 10)
        canvas.drawString(72, 700 - 12 * row, text)
        canvas.setFont("Times-Italic", 10)
        canvas.drawString(250, 700 - 12 * row, "/* no fault */" * (row == 2))
    canvas.save()
    lines = [line.strip() for line in read_code(tmp_path / "a.pdf").splitlines()]
    assert [line.split("  ")[0] for line in lines] == ["```", *rows, "```"] and "/* no fault */" in lines[3]


def listed(path, rows):
    """Text of a page of prose with rows in Courier below it: distance from the row above, left edge, text."""
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        canvas.drawString(
            72, 760 - 12 * row, f"{row:02} timber goes over the ridge and down to the valley for the mill"
        )
    canvas.setFont("Courier", 10)
    y = 600
    for down, x, text in rows:
        y -= down
        canvas.drawString(x, y, text)
    canvas.save()
    return read(path)


def test_the_head_of_an_entry_below_a_listing_is_no_line_of_it(tmp_path):
    text = listed(tmp_path / "a.pdf", [(0, 90, "run.Field"), (12, 90, "run.Other"), (20, 72, "Command: smooth(NAME);")])
    assert "```\nrun.Field\nrun.Other\n```\n\nCommand: smooth(NAME);" in text


def test_a_note_is_named_by_its_number_and_a_mark_may_begin_a_line(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for row in range(12):
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(
            72, 760 - 12 * row, f"{row:02} timber goes over the ridge and down to the valley for the mill."
        )
    for y, size, sentence in ((616, 10, "But the copper does not."), (580, 8, "The copper is in the hills.")):
        canvas.setFont("Times-Roman", 0.6 * size)
        canvas.drawString(72, y + 0.4 * size, "3")
        canvas.setFont("Times-Roman", size)
        canvas.drawString(76, y, sentence)
    canvas.save()
    text = read(tmp_path / "a.pdf")
    assert "[^3]But the copper" in text
    assert text.endswith("\n\n[^3]: The copper is in the hills.\n")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (["call(one,\u2423", "\u02d3\u2192two, -", "\u02d3\u2192three);", "end"], "call(one, two, -three);\nend"),
        (["call(one,", "\u02d3\u2192two);"], "call(one,\n\u02d3\u2192two);"),
    ],
)
def test_a_line_of_code_that_the_book_divides_is_whole_if_it_marks_the_blanks_there(rows, code):
    lines = [
        PdfLine(
            text=text,
            page=0,
            x0=72,
            x1=72 + 6 * len(text),
            y=700 - 12 * n,
            size=10,
            bold=False,
            mono=True,
            broken=False,
        )
        for n, text in enumerate(rows)
    ]
    markdown, _ = render_blocks([TextBlock(kind=BlockKind.LISTING, lines=tuple(lines))], 1)
    assert markdown == f"```\n{code}\n```\n"


def test_text_at_the_edge_below_an_item_without_a_full_stop_and_a_bold_line_begin_paragraphs(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    line = "timber goes over the ridge and down to the valley for the mill"
    rows = [(84, "\u2022 bold: the ridge is near"), *[(72, f"{row:02} {line}") for row in range(8)], (72, f"{line}.")]
    for row, (x, text) in enumerate(rows):
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(x, 760 - 12 * row, text)
    canvas.setFont("Times-Bold", 10)
    canvas.drawString(72, 760 - 12 * len(rows), "Examples.")
    canvas.save()
    text = read(tmp_path / "a.pdf")
    assert "- bold: the ridge is near\n\n00 timber" in text and text.endswith(f"{line}.\n\nExamples.\n")


def test_lines_that_end_before_the_margin_without_a_full_stop_stay_apart(tmp_path):
    """The author ended them: settings, a title above its text."""
    lines = [(72.0, 700.0 - 12 * row, FILLER[:96]) for row in range(12)]
    short = [
        "Mooring of barges",
        "The ropes are made fast before the tide turns, and the planks are laid when the",
        "crew",
    ]
    settings = ["DepthOfBerth = 4", "LengthOfQuay = 90"]
    rows = [(72.0, 540.0 - 12 * row, text) for row, text in enumerate([*short, "", *settings])]
    blocks = drawn(tmp_path / "a.pdf", [*lines, *rows]).strip().split("\n\n")
    assert blocks[1:] == [short[0], f"{short[1]} {short[2]}", *settings]


def test_wide_letter_spacing_of_a_listing_is_no_blank(tmp_path):
    """Typesetters centre each word of a listing in its cells, which leaves a gap before the next sign."""
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Courier", 10)
    for row, words in enumerate((["open", "(", "gate", ",", " 2", ");"], ["gate", ".", "close", "();"])):
        x = 72.0
        for word in words:
            x += 7.0 * (len(word) - len(word.lstrip()))
            canvas.drawString(x, 700 - 12 * row, word.lstrip(), charSpace=0.6)
            x += 6.6 * len(word.lstrip()) + 1.4
    canvas.save()
    assert read(tmp_path / "a.pdf", min_page_chars=1) == "```\nopen(gate, 2);\ngate.close();\n```\n"


def test_curly_quotes_of_a_typewriter_font_with_straight_ones_are_as_typed(tmp_path):
    rows = [(72.0, 700.0, "name = 'tide'"), (72.0, 688.0, "read(\u2018tide\u2019)")]
    assert drawn(tmp_path / "a.pdf", rows, "Courier") == "```\nname = 'tide'\nread(\u2018tide\u2019)\n```\n"
