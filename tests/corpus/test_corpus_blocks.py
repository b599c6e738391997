"""Blocks tile any text, and headings are those of CommonMark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from corpus.chunk.blocks import BlockType, scan

ODDITIES = [
    "\u2028",
    "\x0c",
    "\x85",
    "\r",
    "\r\n",
    "\n",
    "# ",
    "`" * 3,
    "~" * 4,
    "$$",
    "\\[",
    "|",
    "<!--",
    "a",
    " ",
    "=",
]
CLEAN = [
    "# A\n",
    "## B ##\n",
    "###### deep\n",
    "####### seven\n",
    "#nospace\n",
    "Title\n===\n",
    "Two\nlines\n---\n",
    "\n",
    "text one\n",
    "```\n# code\n```\n",
    "````\n```\n# in\n````\n",
    "~~~ python\n# in\n~~~\n",
    "    # indented\n",
    "\\# escaped\n",
    "- item\n",
    "> quote\n",
    "***\n",
    "1. one\n",
    "  # in a list or not\n",
    "   continued\n",
    "    - deeper\n",
    "===\n",
    "---\n",
    "<!-- a\n# b\n-->\n",
    "<div>\n# in\n",
    "<b>\n",
    "<pre>\n\n# in\n</pre>\n",
    "[kiln]: /address\n",
    "| a | b |\n|---|---|\n| 1 | # |\n",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(ODDITIES), max_size=40).map("".join))
def test_blocks_tile_the_source(source):
    position = 0
    for block in scan(source):
        assert block.start == position < block.end
        position = block.end
    assert position == len(source)


def headings(source: str) -> list[tuple[int, int, str]]:
    """(row, level, title) of the headings that a CommonMark parser finds at the top level."""
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    pairs = zip(tokens, tokens[1:], strict=False)
    opened = [pair for pair in pairs if pair[0].type == "heading_open" and pair[0].level == 0]
    return [(token.map[0], int(token.tag[1]), " ".join(after.content.split())) for token, after in opened]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(CLEAN), max_size=12), st.sampled_from(["", "\n"]))
def test_headings_are_those_of_commonmark(parts, joint):
    source = joint.join(parts)
    found = [block for block in scan(source) if block.kind is BlockType.HEADING]
    told = [(source.count("\n", 0, block.start), block.level, " ".join(block.title.split())) for block in found]
    assert told == headings(source)


def kinds(source: str) -> list[BlockType]:
    return [block.kind for block in scan(source) if block.kind is not BlockType.BLANK]


def test_blocks_that_hide_headings():
    assert kinds("$$\n# x\n$$\n") == [BlockType.MATH]
    assert kinds("\\[\n# x\n\\]\n") == [BlockType.MATH]
    assert kinds("<!--\n# x\n-->\n") == [BlockType.CODE]
    assert kinds("| a | b |\n|---|---|\n| 1 | 2 |\n") == [BlockType.TABLE]


def test_code_is_one_block_wherever_it_stands():
    assert kinds("    a\n\n    b\n") == [BlockType.CODE]
    assert kinds("> ```\n> a\n>\n> # b\n> ```\n") == [BlockType.CODE]
    assert kinds("- a\n\n    ```\n    b\n\n    # c\n    ```\n") == [BlockType.PARAGRAPH, BlockType.CODE]


def test_what_ends_with_its_container_is_text():
    assert kinds("> ```\n> a\n\n```\nb\n```\n") == [BlockType.PARAGRAPH, BlockType.CODE]
    assert kinds("- <!-- a\n- b -->\n") == [BlockType.PARAGRAPH, BlockType.PARAGRAPH]


def test_an_unclosed_fence_is_text():
    assert kinds("```\ncode\n\n# A\n") == [BlockType.PARAGRAPH, BlockType.HEADING]


def test_a_formula_ends_at_an_empty_line():
    assert kinds("$$\nx\n\n# A\n\n$$\n") == [BlockType.PARAGRAPH, BlockType.HEADING, BlockType.PARAGRAPH]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line", ["```a\n", "$$a\n", "<!--\n", "<pre\n", "- a\n", "| a\n", "> ```a\n", "> $$a\n", "- a\n  <!-- b\n"]
)
def test_openers_that_never_close_do_not_take_long(line: str):
    """Every line opens something; looking for each end anew takes time by the square of their number."""
    assert scan(line * 10_000)[-1].end == len(line) * 10_000


def test_only_line_ends_of_commonmark_count():
    assert kinds("a\u2028# no heading\n") == [BlockType.PARAGRAPH]
    assert [block.title for block in scan("# A #\r\n## B\r# C")] == ["A", "B", "C"]
