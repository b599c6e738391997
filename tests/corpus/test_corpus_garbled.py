"""Formulas are read as printed or marked, never changed in silence; a chunk with a mark is kept out, with its reason."""

import itertools

import pypdfium2 as pdfium
import pytest
from reportlab.pdfgen.canvas import Canvas
from tex_fonts import write_page

from corpus.read.doubt import MARK
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.formulas.signs import GARBLED
from corpus.read.formulas.stacks import mark_garbled_blocks, mark_stacks
from corpus.read.lines import lines_of
from corpus.read.paragraphs import BlockKind, TextBlock
from corpus.read.printed import Piece

PROSE = (
    "The harbor carries timber over the ridge, and whoever has seen it once will know the path beside the wall. "
    "Rain had fallen through the whole of the night, so that the road to the mill was under water in the morning. "
)


def piece(text: str, *, x0: float = 72, y: float = 700) -> Piece:
    return Piece(text=text, x0=x0, x1=x0 + 5 * len(text), y=y, size=10, font="Times", bold=False, mono=False)


def read(path) -> str:
    return convert(str(path), ReadingConfig(max_pages=4000, min_page_chars=1)).markdown


def signs(path, *texts: tuple[str, bytes], gap: int = 0) -> str:
    """A page with pieces of text in these fonts side by side, 5 points a character, as it is read, without blanks."""
    places = itertools.accumulate((5 * len(text) + gap for _, text in texts), initial=72)
    placed = [(font, x, 700, text) for (font, text), x in zip(texts, places, strict=False)]
    return "".join(read(write_page(path, placed)).split())


def test_signs_of_tex_fonts_without_unicode_values_are_named(tmp_path):
    texts = ("CMSY10", b"h"), ("CMR10", b"u,v"), ("CMSY10", b"i'"), ("CMR10", b"w")
    assert signs(tmp_path / "a.pdf", *texts) == "\u27e8u,v\u27e9\u2243w"


def test_codes_that_a_file_gives_as_values_of_symbols_are_signs(tmp_path):
    texts = ("CMSY10", b"?"), ("CMSY10", b"7!"), ("CMSY10", b">"), ("CMR10", b"w")
    assert signs(tmp_path / "a.pdf", *texts, gap=5) == "\u22a5\u21a6\u22a4w"
    assert signs(tmp_path / "b.pdf", ("CMSY10", b"?"), ("CMSY10", b"7"), ("CMR10", b"w"), gap=5) == "\u22a5\u21a6w"


def test_a_printed_control_code_is_its_sign_and_so_are_all_values_of_its_font(tmp_path):
    shown = [("CMR10", 72, 700, b"u "), ("CMSY10", 82, 700, b"\x14"), ("CMR10", 92, 700, b"v")]
    assert read(write_page(tmp_path / "a.pdf", shown, {"CMSY10"})) == "u \u2264 v\n"
    shown[2:] = [("CMSY10", 92, 700, b"\xa1jj"), ("CMMI10", 112, 700, b"\x0b;v")]
    assert read(write_page(tmp_path / "a.pdf", shown, {"CMSY10", "CMMI10"})) == "u \u2264 \u2212|| \u03b1,v\n"


def test_values_that_show_late_to_be_codes_are_codes_on_earlier_pages(tmp_path):
    page = write_page(tmp_path / "a.pdf", [("CMSY10", 72, 700, b"j"), ("CMR10", 77, 700, b"u")], {"CMSY10"})
    assert read(page) == "ju\n"
    late = write_page(tmp_path / "b.pdf", [("CMSY10", 72, 700, b"\x14")], {"CMSY10"})
    with pdfium.PdfDocument(page) as book, pdfium.PdfDocument(late) as more:
        book.import_pages(more)
        book.save(tmp_path / "c.pdf")
    assert "|u" in read(tmp_path / "c.pdf")


def test_a_printed_control_code_of_a_text_font_is_a_windows_character_or_marked(tmp_path):
    def shown(codes: bytes) -> str:
        return read(write_page(tmp_path / "a.pdf", [("Text", 72, 700, codes)], {"Text"}))

    assert shown(b"ab\x92c") == "ab\u2019c\n"
    assert MARK in shown(b"ab\x9dc") and MARK in shown(b"ab\x05c") and MARK in shown(b"\x92")


def test_the_bullet_of_a_companion_font_with_the_name_of_a_text_font_is_a_bullet(tmp_path):
    shown = [("SFRM1095", 72, 700, b"\x88"), ("CMR10", 82, 700, b"abc")]
    assert read(write_page(tmp_path / "a.pdf", shown)) == "- abc\n"


def test_dashes_of_a_font_of_their_own_before_items_are_dashes(tmp_path):
    shown = [("Text", 72, 700, b"\x15"), ("CMR10", 82, 700, b"abc")]
    assert read(write_page(tmp_path / "a.pdf", shown)) == "- abc\n"
    assert MARK in read(write_page(tmp_path / "a.pdf", [*shown, ("Text", 112, 700, b"\x15")]))


def test_large_operators_that_a_file_calls_letters_are_operators(tmp_path):
    shown = [
        ("CMR10", 72, 700, b"u = "),
        ("CMEX10", 92, 710, b"Z"),
        ("CMR10", 102, 700, b"v"),
        ("CMR10", 112, 700, b"Z"),
    ]
    assert read(write_page(tmp_path / "a.pdf", shown, {"CMEX10"})).startswith("u = \u222b")


def test_an_accent_belongs_to_the_letter_below_it(tmp_path):
    texts = [("CMR10", 72, 700, b"x"), ("CMR10", 72, 702, b"^"), ("CMR10", 80, 700, b"= y")]
    assert read(write_page(tmp_path / "a.pdf", texts)) == "x\u0302 = y\n"
    texts[0] = ("CMSY10", 72, 700, b"r")
    assert read(write_page(tmp_path / "a.pdf", texts)) == "\u2207\u0302 = y\n"


def test_a_sign_that_no_table_knows_is_marked(tmp_path):
    texts = [("CMR10", 72, 700, b"a = b"), ("CMEX10", 98, 700, b"z")]
    assert MARK in read(write_page(tmp_path / "a.pdf", texts))


def test_a_letter_that_the_file_does_not_name_is_a_ligature_of_tex_or_marked(tmp_path):
    assert read(write_page(tmp_path / "a.pdf", [("Text", 72, 700, b"\x1cz abcdu")])) == "fiz abcdu\n"
    assert MARK in read(write_page(tmp_path / "a.pdf", [("Text", 72, 700, b"\x1cz a")]))
    assert MARK in read(write_page(tmp_path / "a.pdf", [("Text", 72, 700, b"a\x05b")]))
    assert MARK in read(write_page(tmp_path / "a.pdf", [("CMR10", 72, 700, b"a "), ("Text", 92, 700, b"\x1c")]))


def test_the_sign_of_the_return_key_within_a_word_is_a_ligature(tmp_path):
    assert signs(tmp_path / "word.pdf", ("Apple", b"bu\tu, \t = x")) == "buffu,\u21b5=x"


def test_rows_within_a_tall_bracket_are_marked_and_one_row_is_not(tmp_path):
    def bracketed(rows: list[tuple[float, bytes]]) -> str:
        inside = [("CMR10", 92.0, 700 + rise, codes) for rise, codes in rows]
        texts = [("CMR10", 72, 700, b"A ="), ("CMEX10", 87, 699, b"\x02"), *inside, ("CMEX10", 107, 699, b"\x03")]
        return read(write_page(tmp_path / "a.pdf", texts))

    assert MARK in bracketed([(6, b"a b"), (-6, b"c d")])
    assert bracketed([(0, b"a b")]) == "A =[a b]\n"


def test_brackets_that_do_not_fit_are_marked_and_a_half_open_interval_is_not(tmp_path):
    def printed(text: str) -> str:
        canvas = Canvas(str(tmp_path / "a.pdf"))
        canvas.drawString(72, 700, text)
        canvas.save()
        return read(tmp_path / "a.pdf")

    assert MARK in printed("f(x = y + 2") and MARK not in printed("x = [0, 1) + y")


def test_a_book_written_from_right_to_left_is_refused_with_its_share_of_such_letters(tmp_path):
    shown = [("Hebrew", 72, 700, b"abcd"), ("CMR10", 122, 700, b"ab"), ("Hebrew", 172, 700, b"efgh")]
    reading = convert(str(write_page(tmp_path / "a.pdf", shown)), ReadingConfig(max_pages=4000, min_page_chars=1))
    assert reading.markdown == "" and reading.reason.startswith("right_to_left: 80% of the letters are")
    assert "at most 10% may be in a PDF; use the book's EPUB" in reading.reason


def test_a_line_with_a_few_words_from_right_to_left_is_marked(tmp_path):
    words = [("CMR10", 72, 700 - 12 * number, b"abcd" * 6) for number in range(9)]
    shown = [*words, ("CMR10", 72, 580, b"abcd"), ("Hebrew", 132, 580, b"abcd"), ("CMR10", 182, 580, b"abcd")]
    text = convert(str(write_page(tmp_path / "a.pdf", shown)), ReadingConfig(max_pages=4000)).markdown
    assert text.endswith(f"{MARK}\n") and text.count(MARK) == 1


def test_quotes_of_a_typewriter_are_those_of_the_keyboard(tmp_path):
    def shown(font: str) -> str:
        canvas = Canvas(str(tmp_path / "a.pdf"))
        canvas.setFont(font, 10)
        canvas.drawString(72, 700, "print(\u2018a\u2019 in x)")
        canvas.save()
        return read(tmp_path / "a.pdf")

    assert "print(`a' in x)" in shown("Courier") and "print(\u2018a\u2019 in x)" in shown("Times-Roman")


def test_a_short_rule_on_the_baseline_between_letters_is_an_underscore(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    canvas.setLineWidth(0.4)
    end = 72 + canvas.stringWidth("max", "Times-Roman", 10)
    canvas.drawString(72, 700, "max")
    canvas.line(end + 0.6, 700.2, end + 3.6, 700.2)
    canvas.drawString(end + 3.6, 700, "depth of it")
    canvas.save()
    assert read(tmp_path / "a.pdf") == "max_depth of it\n"


def test_the_bar_of_a_root_that_hangs_from_it_is_no_underscore(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    canvas.drawString(72, 700, "of")
    canvas.setFont("Symbol", 10)
    canvas.drawString(84, 707, "\u221a")
    canvas.setLineWidth(0.4)
    canvas.line(89.5, 707.2, 93.5, 707.2)
    canvas.setFont("Times-Roman", 10)
    canvas.drawString(89.7, 700, "I")
    canvas.drawString(97, 700, "is the least")
    canvas.save()
    assert read(tmp_path / "a.pdf") == "of \\sqrt{I} is the least\n"


def test_both_sides_of_a_quotient_are_no_doubtful_signs():
    def piece(text: str, x0: float, x1: float, y: float) -> Piece:
        return Piece(text=text, x0=x0, x1=x1, y=y, size=10, font="CMR10", bold=False, mono=False)

    words = piece("The ring over a field is Spec", 72, 200, 700), piece("A", 203, 208, 703.5)
    below = piece("I", 214, 218, 696.5)
    (line,) = lines_of([*words, piece("\u29f8", 206, 215, 700), below], 0)
    (doubtful,) = lines_of([*words, piece("=", 206, 215, 700), below], 0)
    assert line.text == "The ring over a field is Spec A\u29f8I" and doubtful.text.endswith(GARBLED)


def test_a_sign_that_cuts_a_sentence_is_marked(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(72, 700, "Convergence with inexact line searches was analyzed. The choice of")
    canvas.drawString(72, 660, "\u00dc")
    canvas.drawString(72, 620, "for the nonlinear method is discussed by others.")
    canvas.save()
    assert MARK in read(tmp_path / "a.pdf")


def test_a_font_of_unknown_codes_within_a_word_of_another_is_marked(tmp_path):
    def beside(x: float) -> str:
        return read(write_page(tmp_path / "a.pdf", [("CMR10", 72, 700, b"abc"), ("Text", x, 700, b"h")]))

    assert MARK in beside(87) and MARK not in beside(97)


def test_signs_of_the_phonetic_alphabet_are_no_letters(tmp_path):
    shown = [("Text", 72, 700, b"abcd"), ("TeX-tipa10", 100, 700, b"Aw"), ("TeX-tipa10", 100, 650, b"5")]
    text = convert(str(write_page(tmp_path / "a.pdf", shown)), ReadingConfig(max_pages=4000, min_page_chars=1)).markdown
    assert "abcd" in text and "Aw" not in text and "5" not in text and text.count(MARK) == 2


def test_braces_under_the_names_of_suits_are_braces_and_a_hand_of_cards_is_none(tmp_path):
    texts = [("CMSY10", 72, 700, b"{"), ("CMR10", 77, 700, b"x"), ("CMSY10", 82, 700, b"|"), ("CMR10", 87, 700, b"y")]
    assert read(write_page(tmp_path / "a.pdf", [*texts, ("CMSY10", 92, 700, b"}")])) == "{x|y}\n"
    assert "\u2663" in read(write_page(tmp_path / "a.pdf", [*texts, ("CMSY10", 92, 700, b"~")]))


def test_signs_of_the_font_of_blackboard_letters_are_no_codes(tmp_path):
    texts = ("CMR10", b"u="), ("MSBM10", b"~"), ("CMR10", b"v,A"), ("MSBM10", b"(?"), ("CMR10", b",u"), ("MSBM10", b"R")
    assert signs(tmp_path / "a.pdf", *texts) == "u=\u210fv,A\u228a\u2205,uR"


@pytest.mark.parametrize(
    "text",
    [
        "_{i=1} of the loads",
        "the sum + _{j} of loads",
        "t i m b e r is carried",
        "\u221a_ of the loads",
        "Oersted, a Dane, discovered that electric \u00a8 currents exert a force on magnets",
    ],
)
def test_scripts_and_roots_without_a_base_and_letters_set_apart_are_marked(text):
    line = lines_of([piece(text)], 0)[0]
    assert mark_garbled_blocks([TextBlock(kind=BlockKind.PARAGRAPH, lines=(line,))], 10.0)[0].mark


def test_a_relation_in_two_rows_is_marked_and_a_sum_in_the_next_line_is_not():
    def marks(*texts: str) -> list[bool]:
        lines = [lines_of([piece(text)], 0)[0] for text in texts]
        blocks = [TextBlock(kind=BlockKind.PARAGRAPH, lines=(line,)) for line in lines]
        return [bool(block.mark) for block in mark_garbled_blocks(blocks, 10.0)]

    assert marks("(1 + x)^{n} \u223c", "= 1 + nx (A.5)") == [True, False]
    assert marks("this is the total =", "\u2211_{i=1}^{n} x_{i}") == [False, False]


def test_a_tall_bar_that_is_put_together_from_pieces_is_one():
    bars = [piece("\u2016", x0=72, y=700 + rise) for rise in (6, 0, -6)]
    assert [bar.y for bar in mark_stacks([*bars, piece("x", x0=80)])] == [700, 700]
