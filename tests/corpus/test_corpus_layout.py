"""Columns are read one after the other, and headings are found by the outline, or by fonts where there is none."""

from pathlib import Path

import pytest
from corpus_books import FACES, BookPlan, write_book
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from corpus.read import pdf
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.formulas.stacks import mark_garbled_blocks
from corpus.read.lines import PdfLine, lines_of
from corpus.read.paragraphs import BlockKind, TextBlock
from corpus.read.printed import Piece

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
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    places = [text.index(line) for line in [*LEFT, *RIGHT]]
    assert places == sorted(places)
    assert not title or text.index("One sentence") < places[0]


def test_paragraphs_of_a_two_column_book_are_whole(tmp_path):
    book = write_book(tmp_path / "a.pdf", BookPlan(columns=2))
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    whole = [paragraph for paragraph in book.paragraphs if f"\n{paragraph}\n" in text]
    assert len(whole) >= 0.9 * len(book.paragraphs)
    assert "A Reader of Woods" not in text


def test_a_two_column_table_is_no_page_of_two_columns(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for row in range(12):
        canvas.drawString(72, 700 - 14 * row, f"key {row}")
        canvas.drawString(330, 700 - 14 * row, f"value {row}")
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=10)).markdown
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
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    assert ("127" in text) == (left > 72) and "07 loads of timber" in text


def found(path: Path, *, use_outline: bool = True) -> list[tuple[int, str]]:
    text = convert(str(path), ReadingConfig(max_pages=4000, use_outline=use_outline)).markdown
    lines = [line for line in text.split("\n") if line.startswith("#")]
    return [(len(line) - len(line.lstrip("#")), line.lstrip("# ")) for line in lines]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("face", sorted(FACES))
def test_the_outline_names_every_heading_with_its_level(tmp_path, face, columns):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, columns=columns))
    assert found(tmp_path / "a.pdf") == book.headings


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("face", ["serif", "sans", "cjk"])
def test_titles_below_the_last_level_of_bookmarks_are_headings(tmp_path, face, numbered):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, outline=2, numbered=numbered))
    assert found(tmp_path / "a.pdf") == book.headings


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("face", sorted(FACES))
def test_fonts_alone_find_nearly_every_heading(tmp_path, face, columns):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, columns=columns, outline=0))
    titles = [title for _, title in found(tmp_path / "a.pdf")]
    wanted = [title for _, title in book.headings]
    hits = sum(title in titles for title in wanted)
    assert hits >= 0.9 * len(wanted) and hits >= 0.9 * len(titles)


@pytest.mark.parametrize("face", ["serif", "sans", "cjk"])
def test_unnumbered_titles_are_found_by_their_size(tmp_path, face):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, outline=0, numbered=False))
    assert found(tmp_path / "a.pdf") == book.headings


def test_withholding_the_outline_is_the_same_as_having_none(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan())
    write_book(tmp_path / "b.pdf", BookPlan(outline=0))
    assert found(tmp_path / "a.pdf", use_outline=False) == found(tmp_path / "b.pdf")


def test_an_outline_of_chapters_only_is_completed_by_fonts(tmp_path):
    """Fewer bookmarks than one in twelve pages name no sections."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(30):
        canvas.setFont("Helvetica-Bold", 16)
        if page in (0, 15):
            canvas.drawString(72, 750, f"Chapter on matter {'one' if page else 'two'}")
            canvas.bookmarkPage(f"p{page}", fit="XYZ", left=0, top=770)
            canvas.addOutlineEntry(f"Chapter on matter {'one' if page else 'two'}", f"p{page}", 0)
        canvas.setFont("Helvetica-Bold", 13)
        canvas.drawString(72, 700, f"Section about {'abcdefghijklmnopqrstuvwxyzABCD'[page] * 4}")
        canvas.setFont("Times-Roman", 10)
        for row in range(12):
            canvas.drawString(
                72,
                670 - 12 * row,
                f"The harbor carries timber number {page * 20 + row} over the ridge and to the valley.",
            )
        canvas.showPage()
    canvas.save()
    titles = found(tmp_path / "a.pdf")
    assert [title for level, title in titles if level == 1] == ["Chapter on matter two", "Chapter on matter one"]
    assert sum(level == 2 for level, _ in titles) == 30


def test_a_page_of_pieces_without_a_width_stops_nobody():
    # PDFium's boxes of a foot whose number was printed first, at the right: it ends left of where it begins.
    box = {"x0": 503.3, "x1": 495.96, "y": 39.33, "size": 10.0}
    foot = Piece(text="13Introduction", font="DejaVuSerif", bold=True, mono=False, **box)
    assert [line.text for line in lines_of([foot], 16)] == ["13Introduction"]


def test_a_drawing_in_a_column_and_a_label_beside_it_leave_two_columns(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    for n, (left, right) in enumerate(zip(LEFT, RIGHT, strict=True)):
        canvas.drawString(72, 700 - 14 * n, left)
        if n > 9:
            canvas.drawString(345, 700 - 14 * n, right)
    for n in range(20):
        canvas.drawString(345 + 10 * n, 696 - 7 * n, str(n))
    canvas.drawString(332, 640, "1/2")
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    places = [text.index(line) for line in [*LEFT, *RIGHT[10:]]]
    assert places == sorted(places)


def test_an_operator_at_the_beginning_of_a_line_in_a_narrow_box_is_no_bullet(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    for n, text in enumerate(["The kiln takes any two loads of the", "harbor, or as many as it takes of the"]):
        line = canvas.beginText(102, 700 - 12 * n)
        line.setWordSpace((170 - canvas.stringWidth(text, "Times-Roman", 10)) / text.count(" "))
        line.textOut(text)
        canvas.drawText(line)
    canvas.drawString(102, 676, "* operator is told below.")
    for n in range(20):
        canvas.drawString(
            72, 640 - 12 * n, f"Timber {n} is carried over the ridge and down to the valley beside the wall."
        )
    canvas.save()
    assert "of the * operator" in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown


def test_words_that_only_a_narrow_gap_parts_are_parted_and_kerned_letters_are_not(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 11)
    x = 72.0
    for word in ("Nevertheless,", "the", "elegant", "ideas", "con", "verge"):
        canvas.drawString(x, 700, word)
        x += stringWidth(word, "Times-Roman", 11) + (0.5 if word == "con" else 2.0)
    canvas.save()
    assert pdf.read_pdf(str(tmp_path / "book.pdf")).pages[0][0].text == "Nevertheless, the elegant ideas converge"


def test_a_title_with_a_number_of_its_own_does_not_go_on_with_the_one_above(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    for number, name in enumerate(("mesh", "string", "plane", "sphere")):
        canvas.setFont("Times-Roman", 10)
        for row in range(40):
            y = 740 - 12 * row - (60 if row > 9 + number else 0)
            canvas.drawString(72, y, "The extension to two dimensions takes the same form as the one above it.")
        top = 740 - 12 * (9 + number)
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(72, top - 28, f"5.{2 * number + 1} Waves on a {name}")
        canvas.drawString(72, top - 48, f"5.{2 * number + 2} Decay on a {name}")
        canvas.showPage()
    canvas.save()
    titles = [title.split()[0] for _, title in found(tmp_path / "book.pdf")]
    assert titles == [f"5.{number}" for number in range(1, 9)]


def test_the_contents_of_an_appendix_at_its_head_are_no_titles(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    for letter in "AB":
        canvas.setFont("Helvetica-Bold", 14)
        for row, name in enumerate(("Waves", "Decay", "Growth")):
            canvas.drawString(72, 740 - 20 * row, f"{letter}.{row + 1}")
            canvas.drawString(110, 740 - 20 * row, name)
            canvas.drawString(500, 740 - 20 * row, str(32 + row))
        canvas.setFont("Helvetica", 16)
        canvas.drawString(72, 660, f"{letter}.1 Waves")
        canvas.setFont("Times-Roman", 10)
        for row in range(40):
            canvas.drawString(
                72, 630 - 12 * row, "The extension to two dimensions takes the same form as the one above it."
            )
        canvas.showPage()
    canvas.save()
    assert [title for _, title in found(tmp_path / "book.pdf")] == ["A.1 Waves", "B.1 Waves"]


def test_two_rows_of_words_in_columns_are_a_table(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(10):
        canvas.drawString(72, 700 - 12 * row, "The routine is called once for every node of the tree, and never twice.")
    canvas.drawString(72, 560, "Return values:")
    for row, (name, meaning) in enumerate((("NORMALLY", "Function invoked."), ("ABNORMALLY", "Function failed."))):
        canvas.drawString(72, 530 - 12 * row, name)
        canvas.drawString(220, 530 - 12 * row, meaning)
    canvas.save()
    rows = "| NORMALLY | Function invoked. |\n|---|---|\n| ABNORMALLY | Function failed. |"
    assert rows in convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000)).markdown


def test_titles_in_a_typewriter_font_are_found_by_their_number_and_the_word_above_one_belongs_to_it(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    for number, name in enumerate(("dh-make", "equivs", "devscripts", "autopkgtest"), start=1):
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(400, 700 - 9 * number, ("ONE", "TWO", "THREE", "FOUR")[number - 1])
        canvas.drawString(72, 640 - 9 * number, f"THE PACKAGES OF {name.upper()}")
        canvas.setFont("Courier-Bold", 12)
        canvas.drawString(72, 600 - 9 * number, f"9.{number} {name}")
        canvas.setFont("Times-Roman", 10)
        for row in range(20):
            canvas.drawString(
                72, 570 - 9 * number - 12 * row, "The package contains a tool that makes the outlines of others."
            )
        canvas.showPage()
    canvas.save()
    titles = [title for _, title in found(tmp_path / "book.pdf", use_outline=False)]
    assert titles[:4] == ["ONE. THE PACKAGES OF DH-MAKE", "9.1 dh-make", "TWO. THE PACKAGES OF EQUIVS", "9.2 equivs"]
    assert len(titles) == 8


def test_terms_in_capitals_above_indented_definitions_are_no_titles(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    names = ("kilns", "Ropes and barges", "Roads", "Sluices of the canal")
    for number, name in enumerate(names):
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(72, 700 - 9 * number, f"{number + 1} {name}")
        for place, term in enumerate(("KEYMAP", "CONSOLE", "TIMEZONE")):
            top = 660 - 9 * number - 50 * place
            canvas.setFont("Times-Bold", 10)
            canvas.drawString(72, top, f"{term}_{'ABCD'[number]}")
            canvas.setFont("Times-Roman", 10)
            canvas.drawString(
                96, top - 12, "The value that the clerk of the kiln sets before the first of the fires is lit,"
            )
            canvas.drawString(
                96, top - 24, "and which nobody changes until the last of them is out and the bricks are cold."
            )
        canvas.setFont("Times-Roman", 10)
        for row in range(20):
            canvas.drawString(
                72, 460 - 12 * row, "The wagon goes over the ridge with bricks, and comes back with coal for the kiln."
            )
        canvas.showPage()
    canvas.save()
    titles = [title for _, title in found(tmp_path / "book.pdf", use_outline=False)]
    assert titles == [f"{number + 1} {name}" for number, name in enumerate(names)]


def test_titles_in_small_letters_and_one_with_a_depth_of_its_own_are_titles_and_terms_are_none(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    for number, name in enumerate(("kiln options", "timber", "Harbors", "Roads"), start=1):
        canvas.setFont("Helvetica-Bold", 20)
        canvas.drawString(72, 700 - 9 * number, f"Chapter {number}")
        canvas.setFont("Helvetica-Bold", 25)
        canvas.drawString(72, 650 - 9 * number, name)
        canvas.setFont("Helvetica-Bold", 10)
        canvas.drawString(72, 600 - 9 * number, "2.4.1.1 One alone" if number == 2 else f"about the {name}")
        canvas.setFont("Times-Roman", 10)
        for row in range(20):
            canvas.drawString(72, 570 - 9 * number - 12 * row, f"The wagon of line {number * row} goes over the ridge.")
        canvas.setFont("Helvetica-Bold", 10)
        canvas.drawString(72, 280, "axle")
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(92, 268, "what a wheel turns on")
        canvas.showPage()
    canvas.save()
    titles = [title for _, title in found(tmp_path / "book.pdf", use_outline=False)]
    assert titles == [
        *("Chapter 1 kiln options", "about the kiln options", "Chapter 2 timber", "2.4.1.1 One alone"),
        *("Chapter 3 Harbors", "about the Harbors", "Chapter 4 Roads", "about the Roads"),
    ]


def test_definitions_with_their_kind_at_the_margin_are_paragraphs(tmp_path):
    canvas = Canvas(str(tmp_path / "book.pdf"))
    canvas.setFont("Times-Roman", 10)
    sentence = "A sentence that fills the whole of the line " * 2 + "with words and blanks"
    for number, y in enumerate((700, 660, 620)):
        canvas.drawString(72, y, f"int get_{number} (op, rnd)")
        canvas.drawRightString(72 + stringWidth(sentence, "Times-Roman", 10), y, "[Function]")
        text = "Set the first operand to the value of the second one, rounded in the given direction, and return zero"
        canvas.drawString(86, y - 12, text)
        canvas.drawString(86, y - 24, "where the result is exact.")
    for row in range(20):
        canvas.drawString(
            72, 560 - 12 * row, "A sentence that fills the whole of the line " * 2 + "with words and blanks"
        )
    canvas.save()
    made = convert(str(tmp_path / "book.pdf"), ReadingConfig(max_pages=4000)).markdown
    assert "|" not in made
    assert "int get_1 (op, rnd) [Function]\n\nSet the first operand" in made


@pytest.mark.parametrize(
    ("rest", "number"), [("a way over the hill, which is long.", "4"), ("a way, which is long.", "B.4")]
)
def test_a_figure_with_its_caption_stands_behind_the_sentence_that_it_interrupts(tmp_path, rest, number):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        canvas.drawString(72, 700 - 14 * row, f"{LEFT[row]} the ridge, and whoever has seen it will know the path as")
    for row in range(3):
        for column in range(3):
            canvas.drawString(90 + 120 * column, 500 - 14 * row, f"cell {row} {column}")
    canvas.drawString(72, 440, f"Table {number}: Loads of timber in three years.")
    canvas.drawString(72, 410, rest)
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown
    assert f"will know the path as {rest}" in text
    assert text.index("which is long") < text.index("| cell 0 0 |") < text.index(f"Table {number}")


@pytest.mark.parametrize(("more", "read"), [("", "\n\\* and ^n multiply"), ("* divides", "\n- and ^n multiply")])
def test_one_star_at_the_edge_of_the_text_is_an_operator_and_several_are_bullets(tmp_path, more, read):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    words = "the harbour carries timber over the ridge and down to the valley where it waits"
    rows = [*[words] * 6, "", "* and ^n multiply sets:", "", more, "", *[words] * 6]
    for row, text in enumerate(rows):
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(72, 700 - 14 * row, text)
    canvas.save()
    assert read in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown


def test_bullets_without_a_text_are_marked():
    def text(said: str) -> TextBlock:
        line = PdfLine(text=said, page=0, x0=72, x1=90, y=700, size=10, bold=False, mono=False, broken=False)
        return TextBlock(kind=BlockKind.ITEM, lines=(line,))

    made = mark_garbled_blocks([text("\u2022 One"), text("\u2022"), text("\u2022 )"), text("\u2022 Two")], 10)
    assert [bool(each.mark) for each in made] == [False, True, False, False]
    assert not any(each.mark for each in mark_garbled_blocks([text("\u2022 One"), text("\u2022")], 10))


def test_a_listing_keeps_its_indentation_over_pages_with_other_margins(tmp_path):
    code = ["while step:", *[f"    step += {number}" for number in range(14)]]
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for number, (first, last) in enumerate([([], []), ([], []), ([], code[:7]), (code[7:], [])]):
        words = [f"{line} the end of page {number}" for line in LEFT[:24]]
        for row, text in enumerate([*first, "", *words, "", *last]):
            left = 72 + 50 * (number % 2) + 6 * (len(text) - len(text.lstrip()))
            canvas.setFont("Courier" if text in code else "Times-Roman", 10)
            canvas.drawString(left, 740 - 14 * row, text.lstrip())
        canvas.showPage()
    canvas.save()
    listing = "\n".join(["```", *code, "```"])
    assert listing in convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000)).markdown


def test_a_title_over_two_lines_may_begin_with_a_word_in_another_font(tmp_path):
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for name in ("Floor", "Round", "Least"):
        canvas.setFont("Courier", 14)
        canvas.drawString(72, 740, name)
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(122, 740, "is a function that takes a number and")
        canvas.drawString(72, 723, f"gives {name.lower()}s")
        canvas.setFont("Times-Roman", 10)
        for row in range(30):
            canvas.drawString(72, 690 - 12 * row, LEFT[row])
        canvas.showPage()
    canvas.save()
    text = convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=9)).markdown
    assert "# Round is a function that takes a number and gives rounds\n" in text
