"""Hebrew and Arabic lines are read from right to left, and the formulas, numbers and words in them from left to right."""

import pytest
from tex_fonts import write_page

from corpus.read.embedded import ReadingConfig, convert
from corpus.read.formulas.right_to_left import is_leftward, reading_order

A, B, C = "\u05d0\u05d1", "\u05d2\u05d3", "\u05d4\u05d5"
a, b, c = A[::-1], B[::-1], C[::-1]
"""The same words as they are printed, from the left."""


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        (f"{b} [a, b] {a}", f"{A} [a, b] {B}"),
        (f"{b} ]a, b[ {a}", f"{A} ]a, b[ {B}"),
        (f"{b} [0, 1) {a}", f"{A} [0, 1) {B}"),
        (f".f(b) \u2212 f(a) = f\u2032(c) {a}", f"{A} f(b) \u2212 f(a) = f\u2032(c)."),
        (f"{b} x^{{2}} + \\frac{{a}}{{b}} \u2264 1 {a}", f"{A} x^{{2}} + \\frac{{a}}{{b}} \u2264 1 {B}"),
        (f"(12 {b}) {a}", f"{A} ({B} 12)"),
        (f".(B {b}) {a}", f"{A} ({B} B)."),
        (f".5-{b} ,4 ,3 {a}", f"{A} 3, 4, {B}-5."),
        (f"{c} |x| < 1{b} \u22122.5% {a}", f"{A} \u22122.5% {B}|x| < 1 {C}"),
        (f".1987 {c} Python 3.9 {a}", f"{A} Python 3.9 {C} 1987."),
        (f"{b} ]1[ {a}", f"{A} [1] {B}"),
        (f"{b} \u2264 {a}", f"{A} \u2264 {B}"),
        (f"{b} \u0669\u0662 {a}", f"{A} \u0669\u0662 {B}"),
    ],
)
def test_a_line_is_read_from_the_right_and_its_formulas_from_the_left(printed, read):
    assert reading_order(printed, leftward=True) == read


def test_words_from_right_to_left_within_another_line_are_turned():
    assert reading_order(f"The word {b} {a} (or {c}) means 12", leftward=False) == f"The word {A} {B} (or {C}) means 12"
    assert reading_order("f(x) = [1, 2)", leftward=True) == "f(x) = [1, 2)"


def test_points_stay_with_their_letters():
    assert reading_order("\u05e9\u05c1\u05b8\u05dc\u05b0", leftward=True) == "\u05dc\u05b0\u05e9\u05c1\u05b8"


def test_letters_of_formulas_do_not_tell_the_direction_of_a_page():
    assert is_leftward(f"{a} x y z f g h \\sqrt{{u}} = v") and not is_leftward(f"the word {a}")


def test_a_printed_line_keeps_an_interval_between_its_words(tmp_path):
    shown = [("Hebrew", 72, 700, b"dcba"), ("CMR10", 97, 700, b"[a,b)"), ("Hebrew", 127, 700, b"hgfe")]
    made = write_page(tmp_path / "a.pdf", shown)
    text = convert(str(made), ReadingConfig(min_page_chars=1, max_meaningless=1.0)).markdown
    words = ["".join(chr(0x5D0 + place + number) for number in range(4)) for place in (4, 0)]
    assert text == f"{words[0]} [a,b) {words[1]}\n"
