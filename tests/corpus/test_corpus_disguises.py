"""A disguised copy has the words of its original, and other texts keep theirs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.audit.ngrams import places, words
from corpus.audit.planted_controls import DISGUISES, LOOK_ALIKES

# A passage as a textbook prints it, with a contraction, a compound, formulas and a quotation.
PASSAGE = (
    "The well-known theorem doesn't hold for every continuous function. Suppose that $f(x)=a_1+b^2$ is given, and let "
    '\\(g(x,y)=[x+y]^n\\) be its "natural" extension; then, for example, the polynomial approximation converges.'
)
SAME = ("other case and punctuation", "look-alike letters", "invisible characters", "hyphenated anew", "LaTeX spacing")


@pytest.mark.parametrize("kind", SAME)
def test_the_words_survive_every_disguise(kind):
    changed = {DISGUISES[kind](PASSAGE, random.Random(seed)) for seed in range(20)}
    assert len(changed) > 1 and {tuple(words(text)) for text in changed} == {tuple(words(PASSAGE))}


@pytest.mark.parametrize("kind", ["one word in ten changed", "paraphrased by rules"])
def test_other_words_are_other_words(kind):
    assert words(DISGUISES[kind](PASSAGE, random.Random(1))) != words(PASSAGE)


def test_a_text_without_a_formula_has_no_other_spacing():
    assert DISGUISES["LaTeX spacing"]("Costs are 5 + 3 dollars.", random.Random(0)) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\u00b2 + y\u2081", "x 2 y 1"),
        ("x^{2}+y_1", "x 2 y 1"),
        ("a-b a - b", "a b a b"),
        ("a sub-\n  set of sub\u2010sets", "a subset of subsets"),
        ("\u201cIt\u2019s\u201d \u2014 U.S. 3.14", "its us 314"),
        ("\\left( a \\right) \\quad \\leftarrow", "a leftarrow"),
        ("\u0441\u043e\u0440\u0443", "copy"),
        ("na\u00adive \u200bword\ufeff", "naive word"),
        ("\ufb01nite \uff21\uff22", "finite ab"),
    ],
)
def test_normal_words(text, expected):
    assert words(text) == expected.split()


@given(st.text("".join(LOOK_ALIKES) + "".join(LOOK_ALIKES.values()) + " -\u00ad\u00b2.$\\(\n", max_size=60))
def test_words_of_words_are_the_words(text):
    found = words(text)
    assert words(" ".join(found)) == found and len(places(text)) == len(found)


def test_places_reach_over_a_line_that_breaks_a_word():
    text = "one exam-\nple, f(x) two"
    assert [text[start:end] for start, end in places(text)] == ["one", "exam-\nple,", "f", "x", "two"]
