"""Split Markdown into headings, paragraphs, code, formulas and tables, with character offsets and without gaps.

The text is not rewritten. Blocks are those of CommonMark with tables; headings inside lists and quotations are text.
There are three intended differences: display formulas (`$$` and `\\[`) are blocks; a line of equals signs or hyphens
inside a formula that began within a line does not make a heading; and a fence, formula or block of HTML that is never
closed is text, instead of extending to the end of the book.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import accumulate, groupby

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, fence, html_block, lheading
from markdown_it.rules_block.html_block import HTML_SEQUENCES
from markdown_it.token import Token


class BlockType(StrEnum):
    """Kinds of block. Code, math and tables are cut only if they alone exceed the limit."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    CODE = "code"
    MATH = "math"
    TABLE = "table"
    BLANK = "blank"


ATOMIC = frozenset({BlockType.CODE, BlockType.MATH, BlockType.TABLE})
KINDS = {
    "heading_open": BlockType.HEADING,
    "paragraph_open": BlockType.PARAGRAPH,
    "hr": BlockType.PARAGRAPH,
    "fence": BlockType.CODE,
    "code_block": BlockType.CODE,
    "html_block": BlockType.CODE,
    "formula": BlockType.MATH,
    "table_open": BlockType.TABLE,
}
"""Kind of block by type of the parser's token. Tokens of other types contain blocks or are parts of a block."""
FORMULAS = {"$$": "$$", "\\[": "\\]"}
"""Delimiters of a display formula."""
OPENER = re.compile(r"`{3,}|~{3,}|<(?:\?|!--|![a-z[]|/?[a-z]+)|\$\$|\\\[", re.IGNORECASE)
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of Markdown: a span of the source, including its line end."""

    kind: BlockType
    start: int
    end: int
    """One past the last character."""
    level: int = 0
    """Level of a heading, 1-6; 0 for other kinds."""
    title: str = ""
    """Heading text without markers; empty otherwise."""


def scan(source: str) -> list[Block]:
    """Split the source into blocks: the first starts at 0, each starts where the previous one ends."""
    # CommonMark's line ends: `str.splitlines` would also break at form feeds and U+2028.
    starts = list(accumulate(map(len, LINE.findall(source)), initial=0))
    result: list[Block] = []
    row = 0

    def add(kind: BlockType, first: int, stop: int, level: int = 0, title: str = "") -> None:
        result.append(Block(kind=kind, start=starts[first], end=starts[stop], level=level, title=title))

    def is_blank(number: int) -> bool:
        return not source[starts[number] : starts[number + 1]].strip(" \t\r\n")

    def fill(stop: int) -> None:
        """Add rows for which the parser has no token: blank rows, link definitions, empty list items and quotations."""
        for blank, group in groupby(range(row, stop), is_blank):
            numbers = list(group)
            add(BlockType.BLANK if blank else BlockType.PARAGRAPH, numbers[0], numbers[-1] + 1)

    for tokens in _parse(source):
        for token in tokens:
            if (kind := KINDS.get(token.type)) is None or token.map is None:
                continue
            first, stop = token.map
            fill(first)
            if kind is BlockType.HEADING and token.level == 0:
                title = " ".join(line.strip(" \t") for line in tokens[1].content.split("\n"))
                add(kind, first, stop, int(token.tag[1]), title)
            else:
                add(BlockType.PARAGRAPH if kind is BlockType.HEADING else kind, first, stop)
            row = stop
    fill(len(starts) - 1)
    return result


def _parse(source: str) -> Iterator[list[Token]]:
    """Parse block by block, to save memory: the tokens of a whole book would need many times its size."""
    parser = _parser()
    rules = parser.block.ruler.getRules("")
    state = StateBlock(source.replace("\r\n", "\n").replace("\r", "\n") + "\n", parser, {}, [])
    while (row := state.skipEmptyLines(state.line)) < state.lineMax:
        any(rule(state, row, state.lineMax, False) for rule in rules)
        yield state.tokens
        state.tokens.clear()


@cache
def _parser() -> MarkdownIt:
    """Parser for CommonMark with tables, in which fences, HTML and formulas that are never closed are text."""
    parser = MarkdownIt("commonmark").enable("table").disable("html_block")
    parser.block.ruler.at("lheading", _setext_heading)
    parser.block.ruler.at("fence", _span, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    return parser


def _span(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parser rule for a fence, block of HTML or display formula; without a closing sign it is text."""
    opener = OPENER.match(state.src, state.bMarks[first] + state.tShift[first], state.eMarks[first])
    if not opener:
        return False
    sign = opener[0].lower()
    rule = _formula if sign in FORMULAS else html_block if sign[0] == "<" else fence
    if silent:
        return rule(state, first, end, True)
    # If an opener was not closed before some row, the same opener further down, but above that row, is not either.
    key = f"{sign} {state.level}"
    if first < state.env.get(key, 0) or not rule(state, first, end, False):
        return False
    if sign in FORMULAS or _has_end(state.tokens[-1]):
        return True
    state.env[key] = state.line
    state.tokens.pop()
    state.line = first
    return False


def _setext_heading(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parser rule for an underlined heading; a line of `=` or `-` within a formula is not an underline."""
    count = len(state.tokens)
    if not lheading(state, first, end, silent):
        return False
    title, underline = (
        state.tokens[count + 1].content,
        state.src[state.bMarks[state.line - 1] : state.eMarks[state.line - 1]],
    )
    if title.count("$$") % 2 == 0 and not ("$" in title and len(underline.strip()) == 1):
        return True
    del state.tokens[count:]
    state.line = first
    return False


def _has_end(token: Token) -> bool:
    """Whether the block ended at its closing sign, and not at the end of the text, list or quotation around it."""
    if token.type == "fence":
        first, stop = token.map or (0, 0)
        return token.content.count("\n") == stop - first - 2
    # The first five kinds of HTML end at a sign, the others at an empty line.
    ends = [end for begin, end, _ in HTML_SEQUENCES[:5] if begin.search(token.content.lstrip(" "))]
    return all(end.search(token.content) for end in ends)


def _formula(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parser rule for a display formula, from `$$` or `\\[` to the row that closes it, without an empty row inside."""
    begin = state.bMarks[first] + state.tShift[first]
    sign = state.src[begin : begin + 2]
    if state.is_code_block(first) or first < state.env.get(sign, 0):
        return False
    begin, row = begin + 2, first
    while not state.src[begin : state.eMarks[row]].rstrip(" \t").endswith(FORMULAS[sign]):
        row += 1
        if row >= end or state.isEmpty(row):
            # No row up to this one closes the formula, so a formula that begins in between is not closed either.
            state.env[sign] = row
            return False
        begin = state.bMarks[row]
    if not silent:
        state.line = row + 1
        state.push("formula", "", 0).map = [first, row + 1]
    return True
