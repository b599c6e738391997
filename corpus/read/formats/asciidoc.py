"""AsciiDoc, by pandoc's reader (from pandoc 3.9 on), with include directives resolved within the book."""

import re

from corpus.read.books.format import Format, Layout, Tree
from corpus.read.books.order import by_inclusion

SUFFIXES = (".adoc", ".asciidoc", ".asc")
INCLUDE = re.compile(r"(?m)^include::(?P<name>[^\[\n]+)\[[^\]\n]*\][ \t]*$")
CHAPTER = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*== (?=\S)")
"""With the lines of attributes above the title."""


COMMENT = re.compile(r"(?m)^//(?!//).*\n?")
SIDEBAR = re.compile(r"(?m)^\*{4,}[ \t]*$")
"""Edges of a box, which the reader takes for text where an empty line follows."""
HIDDEN = re.compile(r"\(\(\((?:[^()]|\([^()]*\))*\)\)\)")
"""Index terms that print nothing."""
BLOCK = re.compile(r"(?ms)^(-{4,}|\.{4,}|\+{4,}|/{4,})[ \t]*\n.*?^\1[ \t]*$")


def prepare(text: str) -> str:
    """Without comment lines, at which the reader stops within a paragraph, index terms and boxes, save in listings."""
    made, place = [], 0
    for match in BLOCK.finditer(text):
        made += [_plain(text[place : match.start()]), match[0]]
        place = match.end()
    return "".join([*made, _plain(text[place:])])


def _plain(text: str) -> str:
    return HIDDEN.sub("", SIDEBAR.sub("", COMMENT.sub("", text)))


def _layouts(tree: Tree) -> list[Layout]:
    return by_inclusion(tree, SUFFIXES, INCLUDE)


FORMATS = (
    Format(suffixes=SUFFIXES, reader="asciidoc", include=INCLUDE, prepare=prepare, split=CHAPTER, layouts=_layouts),
)
