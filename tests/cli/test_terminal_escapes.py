"""Text of models, books and questions cannot steer a terminal, whatever command prints it."""

import json
import math
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.options import show
from infuser_core.terminal import format_rows, printable, to_json

HOSTILE = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\x7f\r\u202etxt.exe"


@given(st.text())
def test_no_control_character_is_left(text: str):
    left = {char for char in printable(text) if unicodedata.category(char) == "Cc"}
    assert left <= {"\n", "\t"}


FACTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def plain(fact: object) -> object:
    """What JSON can say of it."""
    if isinstance(fact, dict):
        return {key: plain(value) for key, value in fact.items()}
    if isinstance(fact, (list, tuple)):
        return [plain(value) for value in fact]
    return None if fact in (math.inf, -math.inf) or fact != fact else fact


@given(FACTS)
def test_json_says_the_same_and_is_json(fact: object):
    assert json.loads(to_json(fact), parse_constant=refuse) == plain(fact)


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_command_prints_what_it_found_as_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, as_json: bool
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    show([{"text": HOSTILE}], lambda: format_rows([{"text": HOSTILE}]), as_json=as_json)
    printed = capsys.readouterr().out
    assert "red" in printed
    assert not {"\x1b", "\x9b", "\x07", "\r", "\x7f", "\u202e"} & set(printed)
