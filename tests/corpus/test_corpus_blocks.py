"""Blocks tile any text, and headings are those of CommonMark."""

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from corpus.chunk.blocks import Kind, scan

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


def headings(source: str) -> list[tuple[int, int]]:
    """(row, level) of the headings that a CommonMark parser finds at the top level."""
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    return [(t.map[0], int(t.tag[1])) for t in tokens if t.type == "heading_open" and t.level == 0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(CLEAN), max_size=12), st.sampled_from(["", "\n"]))
def test_headings_are_those_of_commonmark(parts, joint):
    source = joint.join(parts)
    found = [(source.count("\n", 0, b.start), b.level) for b in scan(source) if b.kind is Kind.HEADING]
    assert found == headings(source)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(CLEAN), max_size=12))
def test_titles_are_those_of_commonmark(parts):
    source = "\n".join(parts)
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    pairs = zip(tokens, tokens[1:], strict=False)
    titles = [after.content for token, after in pairs if token.type == "heading_open" and token.level == 0]
    found = [block.title for block in scan(source) if block.kind is Kind.HEADING]
    assert [" ".join(title.split()) for title in titles] == [" ".join(title.split()) for title in found]


def kinds(source: str) -> list[Kind]:
    return [block.kind for block in scan(source) if block.kind is not Kind.BLANK]


def test_blocks_that_hide_headings():
    assert kinds("$$\n# x\n$$\n") == [Kind.MATH]
    assert kinds("\\[\n# x\n\\]\n") == [Kind.MATH]
    assert kinds("<!--\n# x\n-->\n") == [Kind.CODE]
    assert kinds("| a | b |\n|---|---|\n| 1 | 2 |\n") == [Kind.TABLE]


def test_an_unclosed_fence_is_text():
    assert kinds("```\ncode\n\n# A\n") == [Kind.PARAGRAPH, Kind.HEADING]


def test_a_formula_ends_at_an_empty_line():
    assert kinds("$$\nx\n\n# A\n\n$$\n") == [Kind.PARAGRAPH, Kind.HEADING, Kind.PARAGRAPH]


def test_openers_that_never_close_do_not_take_long():
    """Every line opens something; looking for each end anew would take minutes."""
    for line in ("```a\n", "$$a\n", "<!--\n", "<pre\n", "- a\n", "| a\n"):
        assert scan(line * 20_000)[-1].end == len(line) * 20_000


def test_only_line_ends_of_commonmark_count():
    assert kinds("a\u2028# no heading\n") == [Kind.PARAGRAPH]
    assert [block.title for block in scan("# A #\r\n## B\r# C")] == ["A", "B", "C"]
