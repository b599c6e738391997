"""Doubt: what may read differently than the book is found with its reason; sound text of any kind has none."""

import string
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.chunk.chunk import chunk_page, discarded_spans
from corpus.chunk.split import count_tokens
from corpus.read.doubt import MARK, Doubtful, doubt_by_page, find_doubt
from corpus.read.page import page_of
from infuser_core.config.corpus import ChunkSettings
from infuser_core.schemas import DoubtShares

PROSE = (
    "The river carries sand and gravel from the hills to the plain and drops the coarse grains first. In a slow reach the "
    "finer silt settles as well and builds a level bank along the channel. "
)
FORMULA, TABLE, SIGN, MARKUP, HOLE, WORD = Doubtful


def shifted(text: str) -> str:
    """Letters as a wrong font map gives them."""
    return "".join(chr((ord(sign) - 62) % 94 + 33) if 33 <= ord(sign) < 127 else sign for sign in text)


def accented(text: str) -> str:
    """Letters of another script as Latin ones."""
    return text.encode("cp1251").decode("latin-1")


RIVER = "\u0420\u0435\u043a\u0430 \u043d\u0435\u0441\u0451\u0442 \u043f\u0435\u0441\u043e\u043a " * 20
HOUSE = "\u0627\u0644\u0643\u062a\u0627\u0628 \u0641\u064a \u0627\u0644\u0628\u064a\u062a " * 20


@pytest.mark.parametrize(
    ("doubtful", "reason"),
    [
        (f"x = ( a b c d ) {MARK}", FORMULA),
        (f"```\nx = {MARK}\n```", FORMULA),
        ("P(wet) = = = 0.6 \\frac{P(wet)}{P(high)}", FORMULA),
        ("The law ^{2}8 holds.", FORMULA),
        ("by the relation (II.\\overline{1}0.5)", FORMULA),
        ("V = \\frac{1}{3} \u222b \u222b", FORMULA),
        ("the height \ufffd of the bank", SIGN),
        ("the height \ue0a3 of the bank", SIGN),
        ("GLYPH<28>GLYPH<27>", SIGN),
        ("/gid00020/gid00016", SIGN),
        ("(cid:12)(cid:7)", SIGN),
        ("glyph[lscript]", SIGN),
        ("GLYPH&lt;c=3,font=/F1&gt;", SIGN),
        ("<table><tr><td>silt", MARKUP),
        ("( ) + ( ) \\end{eqnarray}", MARKUP),
        ("x = <!-- formula-not-decoded -->", FORMULA),
        ("Exercise 2.4 Simplify the circuit of Figure 2.5 and determine the output voltage.", HOLE),
        ("Find the slope of the bank in the graph below.", HOLE),
        ("3. Which of these rivers does the following picture show?", HOLE),
        (shifted(PROSE * 9), WORD),
        (PROSE.translate(dict.fromkeys(map(ord, "aeiouy"), "\u00df")) * 9, WORD),
        (accented(RIVER), WORD),
        (HOUSE.replace("\u0627", "A"), WORD),
    ],
)
def test_a_paragraph_that_may_read_differently_is_doubtful_for_its_reason(doubtful, reason):
    doubt = find_doubt(f"# Banks\n\n{doubtful}\n\n{PROSE}")
    first, passage = doubt.heaviest
    assert first == reason and doubtful.split()[0] in passage and 0 < doubt.share <= 1
    assert sum(doubt.shares().values()) == pytest.approx(doubt.share)


@pytest.mark.parametrize(
    "text",
    [
        "Sch\u00f6ne Gr\u00fc\u00dfe aus der Werkstatt, wo das Holz getrocknet und gehobelt wird, bevor der Ofen brennt. ",
        "\u0412\u0441\u0435 \u0441\u0447\u0430\u0441\u0442\u043b\u0438\u0432\u044b\u0435 \u0441\u0435\u043c\u044c\u0438 ",
        "\u6211\u4eec\u5728\u8fd9\u4e2a\u5730\u65b9\u770b\u5230\u4e86\u5f88\u591a\u7684\u4eba\u548c\u4e8b\u3002",
        "int strcpy(char *dst, const char *src); /* copies the string with its end, and returns the first */ ",
        "$a$ = $+$ 1 are wrong; `x = = y` too, and P(X=1) = \u00b7 \u00b7 \u00b7 = P(X=6). ",
        "Let $A =\n\\begin{bmatrix}\n1 & 2\n\\end{bmatrix}$ be a matrix, and $$\\begin{equation*}x_1 = 2\\end{equation*}$$ its row. ",
        "The figure below shows a bank with one peak.\n\nSketch the graph of its height. Where does the line turn?\n\n",
        "The set {x_{1}, . . . , x_{n}} has \u2211_{i=1}^{n} x_{i} = \u222b f dx and \\overline{K}, \\frac{a}{b}. ",
        RIVER,
        HOUSE,
    ],
)
def test_sound_text_has_no_doubt(text):
    assert find_doubt(text * 20).share == 0


def test_code_in_a_fence_is_in_no_language_and_has_tags_and_is_no_doubt():
    code = "vkCmdBindPipeline(commandBuffer, pNext, <br>);\n" * 40
    assert find_doubt(f"`vkCmdDraw` draws.\n\n```c\n{code}```\n").share == 0
    assert find_doubt(code * 8).heaviest[0] in (MARKUP, WORD)


def test_a_book_is_judged_page_by_page():
    pages = [PROSE * 4, shifted(PROSE * 4), PROSE * 4]
    starts = [sum(map(len, pages[:place])) for place in range(3)]
    assert [doubt.share for doubt in doubt_by_page("".join(pages), starts)] == [0, 1, 0]
    assert find_doubt("".join(pages)).share in (0, 1)
    assert doubt_by_page("", []) == []


WORDS = st.lists(st.text(string.ascii_letters + " .=_^{}<>$`\n" + MARK, max_size=30), max_size=9).map("\n\n".join)


@given(WORDS, WORDS)
def test_shares_are_between_0_and_1_and_a_mark_adds_doubt(before, after):
    share = find_doubt(f"{before}\n\n{after}").share
    assert 0 <= share <= 1
    assert find_doubt(f"{before}\n\nx {MARK}\n\n{after}").share > 0


@pytest.mark.parametrize(("limit", "dropped"), [(0.0, True), (0.05, True), (0.2, False), (1.0, False)])
def test_a_chunk_with_too_much_doubt_is_dropped_with_its_reason_shares_and_passage(limit, dropped):
    text = f"# Banks\n\n{PROSE}\n\nx = ( a b c d ) {MARK}\n"
    page = page_of("a", text, num_pages=1, converter="test")
    rows = chunk_page(page, count_tokens, ChunkSettings(min_tokens=10, max_tokens=200, max_doubt=limit), "d")
    (row,) = rows
    assert (row.discard is FORMULA) == dropped and (row.discard is None) != dropped
    assert row.document.doubt == row.document.garbled_formula == pytest.approx(0.13, abs=0.05)
    spans = [span for span in discarded_spans(page, rows) if span.is_span]
    assert [(span.reason, span.excerpt, span.doubt) for span in spans] == [
        ("garbled_formula", f"x = ( a b c d ) {MARK}", row.document.doubt)
    ] * dropped


def test_every_reason_is_a_column():
    assert [column.name for column in fields(DoubtShares)] == ["doubt", *Doubtful]
