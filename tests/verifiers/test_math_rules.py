"""Written rules of notations that a value alone does not decide, one line each: answer, reference, verdict."""

import pytest

from infuser_core.schemas import Verdict
from infuser_core.verifiers import choice, exact, integer
from infuser_core.verifiers.math import _Budget
from infuser_core.verifiers.parts import compare
from infuser_core.verifiers.parts.values import Rules

TIMES = r"""
9\text{ a.m.} | 9\text{ p.m.} | wrong
9\text{ a.m. on Monday} | 9\text{ p.m. on Monday} | wrong
9\text{ AM} | \text{9 a.m.} | correct
7:05 | 14:10 | wrong
07:05 | 7:05 | correct
7:05:00 | 7:05 | correct
4:30 p.m. | 4:30\text{ p.m.} | correct
4:30 PM | 4:30~\mathrm{p.m.} | correct
16:30 | 4:30\text{ p.m.} | correct
4:30 | 4:30\text{ p.m.} | correct
4:30 | 16:30 | wrong
4\text{ p.m.} | 4:00\text{ PM} | correct
12:00\text{ a.m.} | 12:00\text{ p.m.} | wrong
12\text{ noon} | 12:00\text{ p.m.} | correct
0:30 | 12:30\text{ a.m.} | correct
10:15 | 20:30 | wrong
10:15 | 2:3 | correct
1:2 | 2:4 | correct
9 | 9\text{ a.m.} | correct
21 | 9\text{ a.m.} | wrong
"""
INDICES = r"""
7_{1} | 7 | wrong
7_1+1 | 8 | wrong
(7)_{1} | 7 | wrong
7 | 7_{1} | unverified
7_{1} | 7_1 | correct
7_{10} | 7 | correct
12_{8} | 10 | correct
x_{1} | x | wrong
"""
WIDE = """
４２ | 42 | correct
４３ | 42 | wrong
ｘ＋１ | x+1 | correct
１／２ | \\frac{1}{2} | correct
１，２５０ | 1250 | correct
－３．５ | -3.5 | correct
２^１０ | 1024 | correct
"""


def _cases(table: str) -> list[list[str]]:
    return [[part.strip() for part in line.split(" | ")] for line in table.splitlines() if line]


@pytest.mark.parametrize(("answer", "reference", "verdict"), _cases(TIMES + INDICES + WIDE))
def test_a_notation_is_judged_by_its_rule(answer: str, reference: str, verdict: str):
    assert compare.decide(answer, reference, Rules(), _Budget()).verdict == Verdict(verdict)


def test_wide_letters_and_digits_are_read_as_choices_texts_and_integers():
    for wide, plain in (("Ｂ", "B"), ("（Ｂ）", "B"), ("Ｂ．", "B")):
        reading = choice._strict(wide)
        assert reading is not None and reading[0] == plain
    assert exact.agreement("１，０００", "1000") and not exact.agreement("１，００１", "1000")
    assert integer.value("０４２") == 42


def test_a_ratio_that_looks_like_a_time_is_a_ratio_where_the_question_asks_for_one():
    assert compare.decide("6:40", "3:20", Rules(ratio=True), _Budget()).verdict == Verdict.CORRECT
    assert compare.decide("6:40", "3:20", Rules(), _Budget()).verdict == Verdict.WRONG
