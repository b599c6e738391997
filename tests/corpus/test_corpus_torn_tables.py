"""Cells of a table that was not assembled are marked, so that their chunk is dropped; lists of terms are not."""

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.read.doubt import TORN_TABLE, Doubtful, find_doubt
from corpus.read.embedded import ReadingConfig, convert

PROSE = "The harbor carries the timber of the valley to the furnace, and the jetty receives the copper."


def blocks(path, cells):
    """Blocks of a page with these cells (left edge, baseline, text), drawn in this order, below lines of prose."""
    canvas = Canvas(str(path))
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        canvas.drawString(72, 760 - 12 * row, PROSE)
    for x, y, text in cells:
        canvas.drawString(x, y, text)
    canvas.save()
    text = convert(str(path), ReadingConfig(max_pages=9)).markdown
    return [block for block in text.strip().split("\n\n") if not block.startswith(PROSE)]


def test_cells_of_several_lines_that_are_drawn_one_after_the_other_are_marked(tmp_path):
    cells = [
        (90, 560, "Barge"),
        (160, 566, "Carries the grain of the upper mills and"),
        (160, 554, "returns with salt"),
        (90, 530, "Ferry"),
        (160, 536, "Crosses the river at dawn, at noon and"),
        (160, 524, "in the evening"),
    ]
    rows = blocks(tmp_path / "a.pdf", cells)
    assert len(rows) > 1 and all(row.endswith(TORN_TABLE) for row in rows)
    assert find_doubt("\n\n".join(rows)).heaviest[0] is Doubtful.TABLE


def test_rows_next_to_a_table_that_were_left_out_of_it_are_marked(tmp_path):
    table = [
        (x, 560 - 12 * row, f"{text} {'abc'[row]}") for row in range(3) for x, text in ((90, "Quay"), (200, "Depth"))
    ]
    head, table_block = blocks(tmp_path / "a.pdf", [(120, 600, "Name"), (260, 600, "Remarks"), *table])
    assert head == f"Name Remarks {TORN_TABLE}" and TORN_TABLE not in table_block


def test_a_table_whose_cell_continues_in_the_next_row_is_marked(tmp_path):
    texts = [("a.c", "Opens the lock of the upper basin"), ("b.c", "and closes it"), ("c.c", "Counts the barges")]
    cells = [
        (x, 560 - 12 * row, text) for row, pair in enumerate(texts) for x, text in zip((90, 160), pair, strict=True)
    ]
    assert blocks(tmp_path / "a.pdf", cells)[0].endswith(f"{TORN_TABLE}")
    texts[1] = ("b.c", "Closes it")
    cells = [
        (x, 560 - 12 * row, text) for row, pair in enumerate(texts) for x, text in zip((90, 160), pair, strict=True)
    ]
    assert TORN_TABLE not in blocks(tmp_path / "b.pdf", cells)[0]


def test_rows_of_signs_that_were_not_assembled_are_marked(tmp_path):
    rows = ("Angle 0 \u00b1 1Q 2Q 3Q", "sin 0 1 + + -", "cos 1 0 + - -")
    cells = [
        (180 + 40 * n, 560 - 12 * row, sign) for row, text in enumerate(rows) for n, sign in enumerate(text.split())
    ]
    (table,) = blocks(tmp_path / "a.pdf", cells)
    assert table == f"{' '.join(rows)} {TORN_TABLE}"


@pytest.mark.parametrize(
    "cells",
    [
        [(72, 560, "berth"), (160, 560, "A place at the quay where a ship is moored.")],
        [(72, 560, "The mole ends here."), (200, 560, "Ships pass on its lee side"), (72, 548, "in any weather.")],
    ],
)
def test_a_term_with_its_definition_and_a_wide_space_between_sentences_are_no_table(tmp_path, cells):
    assert TORN_TABLE not in "".join(blocks(tmp_path / "a.pdf", cells))


def test_the_caption_below_a_table_is_no_cell(tmp_path):
    table = [
        (x, 560 - 12 * row, f"{text} {'abc'[row]}") for row in range(3) for x, text in ((90, "Quay"), (200, "Depth"))
    ]
    assert blocks(tmp_path / "a.pdf", [*table, (210, 520, "Table 4: Depths of the quays")])[-1] == (
        "Table 4: Depths of the quays"
    )
