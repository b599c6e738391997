"""Displayed formulas stand in paragraphs of their own; lines of a sentence do not."""

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.read.embedded import ReadingConfig, convert

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
