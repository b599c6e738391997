"""Blocks tile any text, and headings are those of CommonMark."""

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from corpus.blocks import Kind, scan

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
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(ODDITIES), max_size=40).map("".join))
def test_blocks_tile_the_source(source):
    position = 0
    for block in scan(source):
        assert block.start == position < block.end
        position = block.end
    assert position == len(source)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CLEAN), max_size=15).map("\n".join))
def test_headings_are_those_of_commonmark(source):
    tokens = MarkdownIt("commonmark").parse(source)
    expected = [(t.map[0], int(t.tag[1])) for t in tokens if t.type == "heading_open" and t.level == 0]
    found = [(source.count("\n", 0, b.start), b.level) for b in scan(source) if b.kind is Kind.HEADING]
    assert found == expected


def kinds(source: str) -> list[Kind]:
    return [block.kind for block in scan(source) if block.kind is not Kind.BLANK]


def test_blocks_that_hide_headings():
    assert kinds("$$\n# x\n$$\n") == [Kind.MATH]
    assert kinds("\\[\n# x\n\\]\n") == [Kind.MATH]
    assert kinds("<!--\n# x\n-->\n") == [Kind.CODE]
    assert kinds("| a | b |\n|---|---|\n| 1 | 2 |\n") == [Kind.TABLE]


def test_an_unclosed_fence_is_text():
    assert kinds("```\ncode\n\n# A\n") == [Kind.PARAGRAPH, Kind.HEADING]


def test_only_line_ends_of_commonmark_count():
    assert kinds("a\u2028# no heading\n") == [Kind.PARAGRAPH]
    assert [block.title for block in scan("# A #\r\n## B\r# C")] == ["A", "B", "C"]
