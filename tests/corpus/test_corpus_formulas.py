"""Formulas of a PDF: scripts, fractions and roots become LaTeX, displays are paragraphs, labels of drawings are no text."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from corpus.read import pdf
from corpus.read.embedded import Reading, ReadingConfig, convert
from corpus.read.formulas.fractions import assemble_fractions
from corpus.read.formulas.scripts import assemble_scripts
from corpus.read.formulas.signs import GARBLED
from corpus.read.printed import Piece, Rule

SUPER, SUB = 3.6, -1.5
Part = tuple[str, float, float]
"""Text, height above the baseline and size, points."""


def main(text: str) -> Part:
    return text, 0.0, 10.0


def sup(text: str, rise: float = SUPER, size: float = 7.0) -> Part:
    return text, rise, size


def sub(text: str, rise: float = SUB, size: float = 7.0) -> Part:
    return text, rise, size


def drawn(path: Path, parts: list[Part], font: str = "Times-Roman") -> str:
    """Text of one line whose parts stand side by side; scripts of one base stand above each other."""
    canvas = Canvas(str(path))
    x = base_end = 72.0
    for place, (text, rise, size) in enumerate(parts):
        stacked = place and rise < 0 < parts[place - 1][1]
        start = base_end if stacked else x
        if not rise:
            base_end = start + stringWidth(text, font, size)
        canvas.setFont(font, size)
        canvas.drawString(start, 700 + rise, text)
        x = max(x, start + stringWidth(text, font, size))
    canvas.save()
    return " ".join(piece.text for piece in pdf.read_pdf(str(path)).pages[0])


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([main("123456789"), sup("2"), main(" mod 2"), sup("32")], "123456789^{2} mod 2^{32}"),
        ([main("x"), sup("m-1"), main(" mod m = 1")], "x^{m-1} mod m = 1"),
        ([main("v"), sup("2"), sub("0"), main(" = 2gh")], "v_{0}^{2} = 2gh"),
        ([main("e"), sup("x"), sup("2", 6.5, 5.0), main(" + 1")], "e^{x^{2}} + 1"),
        ([main("a"), sub("i"), sub("j", -2.5, 5.0), main(" + 1")], "a_{i_{j}} + 1"),
        ([main("F"), sub("5"), sup("6", 1.4, 5.0), main(" = K")], "F_{5^{6}} = K"),
        ([main("(x + 1)"), sup("2"), main(" = y")], "(x + 1)^{2} = y"),
        ([main("sin"), sup("2"), main(" x")], "sin^{2} x"),
        ([main("H"), sub("2"), main("O and 5 cm"), sup("2")], "H_{2}O and 5 cm^{2}"),
        ([main("O(log n)"), sup("2"), main(" steps")], "O(log n)^{2} steps"),
        ([main("3 * width"), sup("2"), main(" pages")], "3 * width^{2} pages"),
        ([main("the base 2"), sup("^^"), main("11")], "the base 2^^11"),
    ],
)
def test_scripts_are_read_by_their_height_and_size(tmp_path, parts, text):
    assert drawn(tmp_path / "a.pdf", parts) == text


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([main("the harbor"), sup("3"), main(" carries timber")], "the harbor[^3] carries timber"),
        ([main("it rests."), sup("12"), main(" The kiln")], "it rests.[^12] The kiln"),
        ([main("a kiln (see below)"), sup("4"), main(" waits")], "a kiln (see below)[^4] waits"),
        ([main("opened in 1984"), sup("1"), main(" and closed")], "opened in 1984[^1] and closed"),
        ([main("the harbor"), sup("*"), main(" carries")], "the harbor* carries"),
        ([main("on the 1"), sup("st"), main(" of May")], "on the 1st of May"),
        ([main("Infuser"), sup("TM"), main(" works")], "InfuserTM works"),
        ([main("set by L"), sup("A", 2.0), main("TEX itself")], "set by LATEX itself"),
        ([main("add 1"), sup("1"), main("/"), sub("2"), main(" cups")], "add 1 1/2 cups"),
        ([main("the file max"), ("_", 0.4, 8.0), main("depth holds")], "the file max_depth holds"),
    ],
)
def test_raised_marks_of_prose_are_no_exponents(tmp_path, parts, text):
    assert drawn(tmp_path / "a.pdf", parts) == text


def test_code_keeps_its_signs(tmp_path):
    text = drawn(tmp_path / "a.pdf", [main("x = 2 "), sub("*", -1.5, 8.0), main(" y")], "Courier")
    assert "_{" not in text and "*" in text


def page(path: Path, draw: list[tuple[float, float, float, str]], rules: list[tuple[float, float, float]]) -> str:
    canvas = Canvas(str(path))
    canvas.setLineWidth(0.4)
    for x, y, size, text in draw:
        canvas.setFont("Times-Roman", size)
        canvas.drawString(x, y, text)
    for x0, x1, y in rules:
        canvas.line(x0, y, x1, y)
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=4000, min_page_chars=5)).markdown


def test_a_fraction_is_one_value_not_two_numbers(tmp_path):
    width = stringWidth("n + 1", "Times-Roman", 10)
    half = stringWidth("2", "Times-Roman", 10) / 2
    draw = [(72, 700, 10, "y ="), (90, 706.8, 10, "n + 1"), (90 + width / 2 - half, 693.1, 10, "2")]
    assert page(tmp_path / "a.pdf", draw, [(90, 90 + width, 702.5)]) == "y = \\frac{n + 1}{2}\n"


def test_a_fraction_does_not_end_the_paragraph_of_its_line(tmp_path):
    text = "each carrier takes his load over the ridge and down to the valley"
    width = stringWidth(text, "Times-Roman", 10)
    draw = [(72, 700 - 12 * row, 10, text) for row in range(6)]
    draw += [
        (72, 620, 10, "the share"),
        (118, 626.8, 10, "x"),
        (118, 613.1, 10, "y"),
        (128, 620, 10, "of it and no more"),
    ]
    draw += [(72 + width - 60, 620, 10, "that is carried"), (72, 600, 10, "before noon.")]
    assert "the valley the share \\frac{x}{y} of it" in page(tmp_path / "a.pdf", draw, [(117, 124, 622.5)])


def test_the_next_line_is_no_part_of_a_fraction(tmp_path):
    draw = [(72, 700, 10, "y ="), (90, 703.9, 7, "1"), (90, 696.5, 7, "2"), (96, 700, 10, "x"), (89, 688, 10, "i")]
    assert "\\frac{1}{2} x" in page(tmp_path / "a.pdf", draw, [(89.7, 93.8, 702.5)])


@pytest.mark.parametrize("root", [False, True])
def test_the_outer_scripts_of_a_fraction_and_of_a_root_belong_to_them(root):
    """Their distance from the bar is that of their base: measured in their own size they would be the next line's."""

    def piece(text: str, x0: float, x1: float, y: float, size: float = 10.0) -> Piece:
        return Piece(text=text, x0=x0, x1=x1, y=y, size=size, font="CMMI10", bold=False, mono=False, run=True)

    over = [piece("a", 92.0, 97.3, 106.0), piece("(m)", 97.3, 110.6, 111.2, 7.0), piece("jm", 97.3, 108.0, 103.2, 7.0)]
    under = [piece("a", 92.0, 97.3, 88.0), piece("(m)", 97.3, 110.6, 93.2, 7.0), piece("mm", 97.3, 111.4, 86.5, 7.0)]
    if root:
        sign = replace(piece("\u221a", 83.0, 91.0, 99.0), font="CMSY10")
        made = assemble_fractions([sign, *under], [Rule(x0=91.0, x1=112.0, y=100.5)])
        assert [each.text for each in made] == ["\\sqrt{a_{mm}^{(m)}}"]
    else:
        made = assemble_fractions([*over, *under], [Rule(x0=91.0, x1=112.0, y=100.5)])
        assert [each.text for each in made] == ["\\frac{a_{jm}^{(m)}}{a_{mm}^{(m)}}"]


def test_an_exponent_of_a_tall_bracket_is_part_of_its_denominator():
    def piece(text: str, x0: float, x1: float, y: float, size: float = 12.0, font: str = "CMR12") -> Piece:
        return Piece(text=text, x0=x0, x1=x1, y=y, size=size, font=font, bold=False, mono=False, run=True)

    below = [piece("1 +", 293.8, 311.4, 669.9), piece("(", 314.1, 321.2, 670.0, font="CMEX10")]
    below += [piece("z", 321.4, 345.3, 669.9), piece(")", 345.5, 352.7, 670.0, font="CMEX10")]
    read = assemble_fractions(
        [piece("1", 322.7, 328.5, 692.5), *below, piece("2", 352.7, 356.9, 680.5, 8.0)],
        [Rule(x0=293.3, x1=357.9, y=687.3)],
    )
    assert [each.text for each in read] == ["\\frac{1}{1 + (z)^{2}}"]


def test_the_fraction_in_the_line_above_is_not_under_a_root():
    def piece(text: str, x0: float, x1: float, y: float, font: str = "CMR10") -> Piece:
        return Piece(text=text, x0=x0, x1=x1, y=y, size=10, font=font, bold=False, mono=False)

    above = [piece("L", 197, 210, 450.6), piece("mg", 196, 210, 437.0)]
    root = [
        piece("r =", 166, 183, 420.6),
        piece("\u221a", 186, 196.1, 421.5, "CMEX10"),
        piece("x + y", 196, 252, 420.6),
    ]
    rules = [Rule(x0=194.5, x1=212, y=446.4), Rule(x0=195.5, x1=253.2, y=429.8)]
    read = [piece.text for piece in assemble_fractions([*above, *root], rules)]
    assert read == ["\\frac{L}{mg}", "r =", "\\sqrt{x + y}"]


def test_a_fraction_between_a_letter_and_a_larger_sign_has_the_baseline_of_the_letter():
    def piece(text: str, x0: float, x1: float, y: float, size: float, font: str) -> Piece:
        return Piece(text=text, x0=x0, x1=x1, y=y, size=size, font=font, bold=False, mono=False, run=True)

    line = [
        piece("Q", 75.3, 82.6, 238.3, 9.0, "CMMI9"),
        piece("n+1", 82.6, 96.4, 237.3, 6.0, "CMR6"),
        piece("=", 99.5, 106.7, 238.3, 9.0, "CMR9"),
        piece("1", 119.5, 124.0, 244.1, 9.0, "CMR9"),
        piece("2v", 111.0, 132.5, 231.0, 9.0, "CMMI9"),
        piece("\u222b", 135.8, 145.2, 238.1, 10.0, "CMEX10"),
    ]
    read = assemble_scripts(assemble_fractions(line, [Rule(x0=110.0, x1=133.5, y=240.6)]))
    assert read[0].text.startswith("Q_{n+1} = \\frac{1}{2v}")


def test_underlined_code_is_no_fraction():
    def typed(words: str, y: float) -> Piece:
        return Piece(text=words, x0=72, x1=95, y=y, size=10, font="CMTT10", bold=False, mono=True)

    lines = [typed("2 5;", 700), typed("3 6;", 687)]
    assert assemble_fractions(lines, [Rule(x0=72, x1=95, y=698.5)]) == lines


def test_letters_set_apart_make_words(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    canvas.drawString(72, 700, "pair style peri", charSpace=2)
    canvas.save()
    assert (
        convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=5)).markdown
        == "pair style peri\n"
    )


@pytest.mark.parametrize(
    ("font", "text"),
    [("CMSY7", "y\u2032\u2032 = 2y"), ("ABCDEF+Fourier-Math-Symbols", "y\u2032\u2032 = 2y"), ("CMR7", "y^{00} = 2y")],
)
def test_primes_that_a_font_of_symbols_codes_as_noughts(font, text):
    def piece(words: str, x0: float, x1: float, y: float, size: float, font: str) -> Piece:
        return Piece(text=words, x0=x0, x1=x1, y=y, size=size, font=font, bold=False, mono=False, run=True)

    parts = [piece("y", 72, 77, 700, 10, "CMMI10"), piece("00", 77, 82, 703.6, 7, font)]
    (whole,) = assemble_scripts([*parts, piece("= 2y", 85, 105, 700, 10, "CMR10")])
    assert whole.text == text


def test_words_around_a_rule_are_no_fraction(tmp_path):
    above, below = "Chapter on harbors and their kilns", "Timber is carried over the ridge"
    right = 72 + stringWidth(above, "Times-Roman", 10)
    text = page(tmp_path / "a.pdf", [(72, 704, 10, above), (72, 692, 10, below)], [(72, right, 701)])
    assert "frac" not in text and above in text and below in text


def test_a_bar_that_is_painted_as_a_picture_divides_a_fraction(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    canvas.drawString(72, 700, "y =")
    canvas.drawString(93, 707, "a")
    canvas.drawString(93, 693, "b")
    canvas.drawImage(ImageReader(Image.new("1", (1, 1))), 92, 702.3, 7, 0.4)
    canvas.save()
    pieces = pdf.read_pdf(str(tmp_path / "a.pdf")).pages[0]
    assert " ".join(piece.text for piece in pieces) == "y = \\frac{a}{b}"


def test_a_script_of_a_subscript_belongs_to_it_where_a_superscript_stands_above(tmp_path):
    parts = [main("T"), sup("1", 3.9, 8.0), sub("j", -2.85, 8.0), sub("*", -0.3, 5.0), main(" = w")]
    assert drawn(tmp_path / "a.pdf", parts).replace(" ", "") == "T_{j^{*}}^{1}=w"


@pytest.mark.parametrize(("also", "read"), [("", "(f(x))[^5] of"), ("and y^2 = z^5", "(f(x))^{5} of")])
def test_a_number_behind_a_bracket_is_the_mark_of_the_one_note_it_can_be(tmp_path, also, read):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    x = 72.0

    def put(text: str, y: float, size: float) -> None:
        nonlocal x
        canvas.setFont("Times-Roman", size)
        canvas.drawString(x, y, text)
        x += stringWidth(text, "Times-Roman", size)

    for text, rise in (("Density (f(x))", 0), ("5", 4), (" of water", 0)):
        put(text, 700 + rise, 7 if rise else 10)
    for row in range(12):
        x = 72.0
        put("the harbour carries timber over the ridge and down to the valley where it waits", 680 - 12 * row, 10)
    x = 72.0
    for part in also.replace("^", " ").split(" ") if also else []:
        put(part, 504 if part in "25" else 500, 7 if part in "25" else 10)
    x = 72.0
    put("5", 103, 5)
    put("this is named rho", 100, 8)
    canvas.save()
    assert read in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown


@pytest.mark.parametrize(("note", "read"), [("3", "area of 4 unit^{2} in all"), ("2", "area of 4 unit[^2] in all")])
def test_a_number_behind_a_word_is_an_exponent_where_no_note_of_the_page_has_it(tmp_path, note, read):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    x = 72.0
    for text, rise in (("has an area of 4 unit", 0), ("2", 4), (" in all", 0)):
        canvas.setFont("Times-Roman", 7 if rise else 10)
        canvas.drawString(x, 700 + rise, text)
        x += stringWidth(text, "Times-Roman", 7 if rise else 10)
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        canvas.drawString(
            72, 680 - 12 * row, "the harbour carries timber over the ridge and down to the valley where it"
        )
    canvas.setFont("Times-Roman", 5)
    canvas.drawString(72, 103, note)
    canvas.setFont("Times-Roman", 8)
    canvas.drawString(74.5, 100, "named after a ferry")
    canvas.save()
    assert read in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown


def fraction_of(parts: list[tuple[str, float, float]], rule: Rule, size: float, width: float = 0.5) -> list[str]:
    """Texts after assembly of pieces (text, left edge, baseline) at a rule; a character is `width` sizes wide."""
    pieces = [
        Piece(text=text, x0=x, x1=x + width * size * len(text), y=y, size=size, font="", bold=False, mono=False)
        for text, x, y in parts
    ]
    return [piece.text for piece in assemble_fractions(pieces, [rule])]


def test_a_script_as_large_as_its_base_is_marked():
    parts = [("p", 100.2, 708.2), ("2", 104.1, 711.3), ("2b", 99.9, 700.1)]
    (text,) = fraction_of(parts, Rule(x0=99.6, x1=108.0, y=706.2), 6.0, 0.65)
    assert text == f"\\frac{{p 2{GARBLED}}}{{2b}}"


def test_a_row_close_below_a_fraction_is_the_next_line_of_the_text():
    parts = [("f(x+h)\u2212f(x)", 10.2, 320.4), ("h", 41.4, 304.1), ("gument.", 9.0, 295.8)]
    read = fraction_of(parts, Rule(x0=9.7, x1=79.3, y=315.3), 12.0, 0.52)
    assert read == ["\\frac{f(x+h)\u2212f(x)}{h}", "gument."]


def test_the_exponent_of_the_next_fraction_in_a_denominator_is_marked():
    pieces = [
        Piece(text=text, x0=x0, x1=x1, y=y, size=size, font="CMMI", bold=False, mono=False)
        for text, x0, x1, y, size in [
            ("x", 178.96, 185.6, 159.01, 12.0),
            ("2", 185.61, 189.84, 163.35, 8.0),
            ("x", 181.32, 187.97, 142.72, 12.0),
            ("2", 181.23, 185.47, 136.59, 8.0),
        ]
    ]
    (read,) = assemble_fractions(pieces, [Rule(x0=178.2, x1=190.6, y=153.9)])
    assert read.text == f"\\frac{{x^{{2}}}}{{x 2{GARBLED}}}"


def test_a_rule_that_cuts_a_number_of_a_calculation_is_marked():
    parts = [("658", 257.0, 300.4), ("2", 250.0, 281.0), ("736", 256.0, 281.0)]
    assert fraction_of(parts, Rule(x0=257.0, x1=275.6, y=296.0), 12.0)[0].endswith(GARBLED)


def test_a_root_with_a_fraction_makes_a_denominator_taller():
    parts = [("1", 317.9, 672.5), ("\\sqrt{1 + (\\frac{a}{b})^{2}}", 291.0, 648.6)]
    assert fraction_of(parts, Rule(x0=290.5, x1=350.7, y=667.9), 10.9, 0.2)[0].startswith("\\frac{1}{\\sqrt{1")


def test_the_head_of_a_table_is_no_numerator():
    parts = [("Statements", 72.0, 706.0), ("Answers", 150.0, 706.0), ("P(E)", 72.0, 690.0), ("0.7954", 150.0, 690.0)]
    assert fraction_of(parts, Rule(x0=71.0, x1=186.0, y=702.0), 10.0) == [text for text, *_ in parts]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        # As Palatino prints them: its text is larger than the font of large signs, and the limits are far apart.
        (
            [("x(t) =", 217.1, 248.0, 582.5, 11.4), ("\u222b", 251.4, 260.6, 582.8, 9.8), ("t", 261.4, 264.1, 593.0, 8.0),
             ("0", 256.9, 260.9, 573.9, 8.0), ("f(s) ds.", 266.3, 300.0, 582.5, 11.4)],
            "x(t) = \u222b_{0}^{t} f(s) ds.",
        ),
        (
            [("[", 295.9, 301.6, 657.5, 10.9), ("\\frac{a}{s}", 302.5, 321.2, 657.5, 10.9), ("]", 322.1, 327.9, 657.5, 10.9),
             ("\u221e", 328.1, 334.9, 670.9, 8.0), ("t=0", 328.1, 341.5, 646.7, 8.3), ("= b", 345.2, 360.0, 657.5, 10.9)],
            "[\\frac{a}{s}]_{t=0}^{\u221e} = b",
        ),
    ],
)  # fmt: skip
def test_limits_belong_to_their_integral_and_to_their_bracket(
    row: list[tuple[str, float, float, float, float]], text: str
):
    pieces = [
        Piece(text=text, x0=x0, x1=x1, y=y, size=size, font="CMR10", bold=False, mono=False, run=True)
        for text, x0, x1, y, size in row
    ]
    assert [piece.text for piece in assemble_scripts(pieces)] == [text]


@pytest.mark.parametrize("mark", ["d", "2"])
def test_a_letter_above_a_quantity_is_no_mark_of_a_note(tmp_path, mark):
    width = stringWidth("vol", "Times-Roman", 10) + stringWidth(mark, "Times-Roman", 7)
    draw = [(72, 700, 10, "y ="), (90, 706.8, 10, "vol"), (90 + width - 3.6, 711, 7, mark), (96, 693.1, 10, "g")]
    assert page(tmp_path / "a.pdf", draw, [(90, 90 + width, 702.5)]) == f"y = \\frac{{vol^{{{mark}}}}}{{g}}\n"
    assert drawn(tmp_path / "b.pdf", [main("f(x)vol"), sup(mark)]) == f"f(x)vol^{{{mark}}}"
    assert drawn(tmp_path / "c.pdf", [main("vol"), sup(mark), main(" = g")]) == f"vol^{{{mark}}} = g"


def test_a_letter_above_a_word_is_the_mark_of_a_note_in_prose_only(tmp_path):
    parts = [main("the harbor"), sup("a"), main(" carries")]
    assert drawn(tmp_path / "a.pdf", parts) == "the harbor[^a] carries"
    parts = [main("y = x for the volume"), sup("a"), main(" of it")]
    assert drawn(tmp_path / "b.pdf", parts) == "y = x for the volume^{a} of it"
    parts = [main("the harbor; "), ("c", 3.6, 7.0), main(": the kiln")]
    assert drawn(tmp_path / "c.pdf", parts) == "the harbor; c: the kiln"


FILLED = [
    f"The carrier {name} walks along the ridge with a load of timber that he took from the yard"
    for name in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
]


def read(path: Path, rows: list[tuple[str, str]]) -> list[str]:
    """Paragraphs of a page whose lines are flush, in the middle or indented, filled lines above and below."""
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    lines = [("flush", text) for text in FILLED]
    for number, (place, text) in enumerate([*lines[:12], *rows, *lines[12:]]):
        middle = (
            72 + (canvas.stringWidth(FILLED[0], "Times-Roman", 10) - canvas.stringWidth(text, "Times-Roman", 10)) / 2
        )
        canvas.drawString({"flush": 72, "middle": middle, "indented": 92}[place], 760 - 12 * number, text)
    canvas.save()
    return convert(str(path), ReadingConfig(max_pages=4000)).markdown.split("\n\n")


def test_a_formula_without_a_full_stop_ends_where_a_sentence_begins(tmp_path):
    found = read(
        tmp_path / "a.pdf", [("middle", "a m + b n = 1 mod n"), ("flush", "Now every carrier counts his load.")]
    )
    assert "a m + b n = 1 mod n" in found
    assert any(part.startswith("Now every carrier") for part in found)


def test_formulas_one_below_the_other_stay_apart(tmp_path):
    found = read(tmp_path / "a.pdf", [("middle", "p + q = 3"), ("middle", "p - q = 7"), ("flush", "Both are shown.")])
    assert {"p + q = 3", "p - q = 7"} <= set(found)


@pytest.mark.parametrize("goes_on", ["= r + s", "+ r = s"])
def test_a_formula_that_goes_on_in_the_next_line_is_one(tmp_path, goes_on):
    found = read(tmp_path / "a.pdf", [("middle", "p + q < 3"), ("middle", goes_on), ("flush", "Both are shown.")])
    assert f"p + q < 3 {goes_on}" in found


def test_a_sentence_goes_on_behind_its_formula(tmp_path):
    found = read(tmp_path / "a.pdf", [("middle", "p + q = 3"), ("flush", "where q is the load of the last carrier.")])
    assert any("p + q = 3 where q is the load" in part for part in found)


def test_an_indented_line_of_text_that_has_a_relation_belongs_to_its_sentence(tmp_path):
    rows = [("indented", "until p = q holds and the yard is empty in the evening")]
    assert any(f"{FILLED[11]} until p = q" in part for part in read(tmp_path / "a.pdf", rows))


PROSE = "Each range is a run of whole numbers that begins where the other one ends."


def plot_page(path: Path, *, wrapped: bool = False) -> Reading:
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
    made = plot_page(tmp_path / "book.pdf", wrapped=wrapped)
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
    assert made.markdown.count("```") == 2 and {row.reason for row in made.removed} == {"line_number"}
    assert "{\n  a++;\n}\n" in made.markdown


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


def test_titles_and_commands_right_above_and_below_a_drawing_are_no_labels(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(8):
        canvas.drawString(72, 700 - 12 * row, PROSE)
        canvas.drawString(72, 450 - 12 * row, PROSE)
    canvas.rect(72, 548, 350, 14)
    canvas.setFont("Courier", 10)
    canvas.drawString(77, 552, "> draw(G)")
    for number in range(4):
        canvas.line(200 + 12 * number, 500, 210 + 12 * number, 546)
    canvas.setFont("Helvetica", 6)
    canvas.drawString(212, 520, "label")
    canvas.setFont("Times-Bold", 12)
    canvas.drawString(72, 484, "1.2.2 Path graphs")
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000))
    assert "> draw(G)" in made.markdown and "1.2.2 Path graphs" in made.markdown
    assert [row.text for row in made.removed] == ["label"]


def test_a_cropped_drawing_hides_its_text_and_keeps_that_of_the_page_in_its_place(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.beginForm("figure", 0, 0, 300, 100)
    canvas.setFont("Helvetica", 8)
    canvas.drawString(20, 50, "shown")
    canvas.drawString(20, -60, "cut off")
    canvas.drawString(20, 180, "cut off as well")
    canvas.endForm()
    canvas.setFont("Times-Roman", 10)
    for row in range(8):
        canvas.drawString(72, 700 - 12 * row, PROSE)
    for row in range(6):
        canvas.drawString(96, 450 - 20 * row, f"Term {row}")
    canvas.saveState()
    canvas.translate(72, 480)
    canvas.doForm("figure")
    canvas.restoreState()
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000))
    assert made.markdown.count("Term") == 6 and "cut off" not in made.markdown
    assert sorted(row.text for row in made.removed) == ["cut off", "cut off as well", "shown"]


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
