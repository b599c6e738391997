"""Integer expressions are evaluated without running anything; every other text is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.routes.deduction import evaluate

NUMBERS = st.integers(min_value=0, max_value=99).map(str)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.builds(lambda left, sign, right: f"({left} {sign} {right})", inner, st.sampled_from("+-*"), inner),
    max_leaves=5,
)


@given(EXPRESSIONS)
def test_the_value_is_pythons(text: str):
    assert evaluate(text) == eval(text)


@pytest.mark.parametrize(
    ("text", "value"), [("7 + 3 * 5", 22), (" -(2-9) ", 7), ("17 // 5 % 2", 1), ("-7 // 2", -4), ("1_0 + 1", 11)]
)
def test_precedence_signs_and_division(text: str, value: int):
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "a + 1", "1 / 2", "2 ** 9", "1.5 + 1", "True + 1", "1 // 0", "len('ab')", "(1", "1\n2", "1 +" * 90 + "1",
     "9" * 4500, "9999999 * 9999999", "[1][0]", "1 if 1 else 2", "()" * 40, "\0", "~1"],
)  # fmt: skip
def test_everything_else_has_no_value(text: str):
    assert evaluate(text) is None
