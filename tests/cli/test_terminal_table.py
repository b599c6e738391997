"""Tables in a terminal: aligned by blanks when piped, drawn to the window's width on a terminal."""

import sys

import pytest

from infuser_core.terminal import format_rows

ROWS = [
    {"run": "[bold]a", "accuracy": 0.123456789, "note": "x" * 60},
    {"run": "b", "accuracy": None, "note": "two\nlines"},
]
UNKNOWN = [{"none": None, "nan": float("nan"), "empty": "", "zero": 0, "false": False}]


def test_a_pipe_gets_columns_aligned_by_blanks():
    assert format_rows(ROWS).splitlines() == [
        "run      accuracy  note",
        "-------  --------  ------------------------------------------------",
        f"[bold]a  0.123457  {'x' * 45}...",
        "b        -         two lines",
    ]
    assert format_rows([]) == "no rows"


def test_what_is_unknown_is_a_dash():
    assert format_rows(UNKNOWN).splitlines()[-1].split() == ["-", "-", "-", "0", "False"]


def test_a_terminal_gets_a_table_that_fits_its_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    drawn = format_rows(ROWS)
    assert "[bold]a" in drawn and "\u2500" in drawn
    assert max(map(len, drawn.splitlines())) <= 40
