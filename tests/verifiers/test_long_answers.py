"""Long and large answers: the time that one takes grows with its length, and none ends a batch."""

import itertools
import time

import pytest

from infuser_core.verifiers import bbeh, choice, code, exact, integer
from infuser_core.verifiers.parts.code_tests import CodeCase, is_root, same_output, same_value

LENGTH = 40_000
SECONDS = 1.0
"""CPU time of one text; a quadratic pattern takes 4 s and more."""
ATTEMPTS = 3
"""Runs of a slow text: a collection of garbage may fall into one."""
PIECES = ("1", "a", " ", "~", "`", "\n", "[]", "1,", "\\text", "\\boxed{", "~~~\n", ".", "A ", "(")
HEADS = ("", "\\boxed{", "\\boxed{\\text{", "\\boxed{~~~", "\\boxed{\\begin{verbatim}", "```", "a:")
TAILS = ("x!", "`", "}")
READERS = {
    "strict-last": lambda text: code.extract_program(text, preset="strict-last", entry="f"),
    "official": lambda text: code.extract_program(text, preset="official", entry="f"),
    "scanned": lambda text: list(code._scan_lines(text)),
    "output": lambda text: same_output(text.replace("\n", ""), "49"),
    "exact": lambda text: exact.agreement(text, "49"),
    "integer": integer.parse_integer,
    "choice": choice._read_choice,
    "bbeh": lambda text: bbeh.agreement(text, "a"),
}


def seconds_of(name: str, text: str) -> float:
    start = time.process_time()
    READERS[name](text)
    return time.process_time() - start


@pytest.mark.parametrize("name", READERS)
def test_the_time_of_an_answer_grows_with_its_length(name: str):
    for head, piece, tail in itertools.product(HEADS, PIECES, TAILS):
        text = head + (piece * LENGTH)[:LENGTH] + tail
        assert any(seconds_of(name, text) < SECONDS for _ in range(ATTEMPTS)), (head, piece, tail)


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [(10**400, 2, False), (10**400, 2.0, False), (-(10**400), float("inf"), False), (10**400 + 1, 10**400, True),
     (2 * 10**400, 10**400, False), (1e308 + 1e308j, 10**400, False), (1, 10**400, False), (10**400, 1j, False)],
)  # fmt: skip
def test_numbers_beyond_the_floats_are_compared_too(found: complex, expected: complex, equal: bool):
    assert same_value(found, expected, atol=0.1) is equal
    assert not is_root(found, CodeCase(args=([-4, 0, 1],), expected=2.0), atol=1e-4)


def test_decimals_beyond_any_exponent_are_compared_too():
    assert not same_output("9" * 1_000_001, "-1", atol=0.5)
    assert same_output("9" * 1_000_001 + ".2", "9" * 1_000_001 + ".1", atol=0.5)
