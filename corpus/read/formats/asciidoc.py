"""AsciiDoc, by pandoc's reader (from pandoc 3.9 on), with include directives resolved within the book."""

import re

from corpus.read.books.format import Format, Layout, Tree
from corpus.read.books.order import by_inclusion

SUFFIXES = (".adoc", ".asciidoc", ".asc")
INCLUDE = re.compile(r"(?m)^include::(?P<name>[^\[\n]+)\[[^\]\n]*\][ \t]*$")
CHAPTER = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*== (?=\S)")
"""With the lines of attributes above the title."""


def _layouts(tree: Tree) -> list[Layout]:
    return by_inclusion(tree, SUFFIXES, INCLUDE)


FORMATS = (Format(suffixes=SUFFIXES, reader="asciidoc", include=INCLUDE, split=CHAPTER, layouts=_layouts),)
