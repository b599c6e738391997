"""The four levels of cutting: each is used when the one before it is not enough, and packing equals its plain form."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from corpus_rows import by_characters, by_words
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.chunk import split
from corpus.chunk.blocks import scan
from corpus.chunk.split import SliceCounter, Span, pack, pieces, trim


def plain_pack(parts: Sequence[Span], measure: SliceCounter, max_tokens: int) -> list[Span]:
    """Piece after piece, every candidate counted."""
    runs: list[Span] = []
    for start, end in parts:
        if runs and measure(runs[-1][0], end) <= max_tokens:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def plain_trim(source: str, start: int, end: int) -> tuple[int, int]:
    """Blank characters taken away one by one; the indentation of the first line stays."""
    while end > start and source[end - 1].isspace():
        end -= 1
    ink = start
    while ink < end and source[ink].isspace():
        ink += 1
    breaks = [place for place in range(start, ink) if source[place] in "\r\n"]
    return (breaks[-1] + 1 if breaks and ink < end else start, end)


SOURCES = st.text(alphabet="ab .,;\n\r\t\u00a0\u2028x", max_size=200)
COUNTS = st.sampled_from([by_words, by_characters, len])


@settings(max_examples=100)
@given(SOURCES, st.integers(0, 200), st.integers(0, 200))
def test_trimming_equals_its_plain_form(source, one, other):
    start, end = sorted((min(one, len(source)), min(other, len(source))))
    assert trim(source, start, end) == plain_trim(source, start, end)


@settings(max_examples=100)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 80), COUNTS)
def test_packing_equals_its_plain_form(lengths, max_tokens, count):
    source = "".join(("ab cd, " * length)[: length - 1] + " " for length in lengths)
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    parts = list(pairwise(edges))
    plain = plain_pack(parts, SliceCounter(source=source, count=count), max_tokens)
    packed = pack(parts, SliceCounter(source=source, count=count), min_tokens=0, max_tokens=max_tokens)
    assert packed == plain


def cut(source: str, max_tokens: int) -> list[str]:
    measure = SliceCounter(source=source, count=by_words)
    return [source[start:end].strip() for start, end in pieces(scan(source), measure, max_tokens)]


@pytest.mark.parametrize(
    ("paragraph", "parts"),
    [
        ("One two three.", ["One two three."]),
        ("One two three four. Five six seven.", ["One two three four.", "Five six seven."]),
        ("One two three, four five six; seven eight.", ["One two three,", "four five six;", "seven eight."]),
        ("one two three four five six seven eight nine", ["one two three four five", "six seven eight nine"]),
        (
            "\u6c34\u706b\u6728\u3002 \u91d1 \u571f \u5c71 \u5ddd \u65e5\u3002",
            ["\u6c34\u706b\u6728\u3002", "\u91d1 \u571f \u5c71 \u5ddd \u65e5\u3002", ""],
        ),
    ],
)
def test_a_unit_is_cut_at_the_first_level_that_is_enough(paragraph, parts):
    assert cut(f"Alpha beta.\n\n{paragraph}\n\nGamma delta.\n", 5) == ["Alpha beta.", *parts, "Gamma delta."]


def test_a_level_deeper_is_used_on_the_part_that_needs_it_alone():
    found = cut("One two three. Four five, six seven eight nine, ten. Eleven twelve.", 4)
    assert found == ["One two three.", "Four five,", "six seven eight nine,", "ten.", "Eleven twelve."]


@pytest.mark.parametrize(
    "text", ["Fig. 3 shows it.", "See e.g. the kiln.", "By J. Wug et al. in May.", "Wait ... and see."]
)
def test_a_full_stop_that_ends_no_sentence_is_no_place_to_cut(text):
    assert split.SENTENCE.findall(text[:-1] + " ") == []


def test_a_word_without_end_is_cut_into_windows_that_fit():
    source = "x" * 10_000
    found = pieces(scan(source), SliceCounter(source=source, count=len), 64)
    sizes = [end - start for start, end in found]
    assert all(32 < size <= 64 for size in sizes[:-1]) and sum(sizes) == 10_000


def test_a_long_slice_is_never_given_to_the_counter_at_once():
    asked: list[int] = []

    def count(text: str) -> int:
        asked.append(len(text))
        return len(text) // 4

    source = "The kiln is warm and the jetty is cold. " * 20_000
    measure = SliceCounter(source=source, count=count)
    parts = pieces(scan(source), measure, 2048)
    assert pack(parts, measure, min_tokens=200, max_tokens=2048)
    assert max(asked) <= split.WINDOW and sum(asked) < 6 * len(source)


def test_counting_in_windows_is_exact_for_words():
    source = "kiln jetty " * 40_000
    assert SliceCounter(source=source, count=by_words)(0, len(source)) == 80_000
