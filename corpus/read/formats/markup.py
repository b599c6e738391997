"""Other markup that pandoc reads: HTML, DocBook, JATS, Org, Typst and Textile."""

import posixpath
import re

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.order import by_inclusion, by_numbers, of_contents

HTML = (".html", ".htm", ".xhtml")
INDEXES = ("index.html", "index.htm", "index.xhtml")
LINK = re.compile(r"""href=["']([^"'#:?]+\.x?html?)(?:#[^"']*)?["']""")
OPEN, CLOSE = re.compile(r"<(nav|footer)(?=[\s>])"), re.compile(r"</(nav|footer)\s*>")
DECLARED = re.compile(r"""<link\s+rel=["'](contents|toc|index|search)["']\s+href=["']([^"'/#]+)["']""")
"""Pages that an index names as the contents, the keywords and the like."""
FEWEST = 3
"""Pages that make a book."""
TYPST = re.compile(r'(?m)^[ \t]*#include[ \t]+"(?P<name>[^"\n]+)"[ \t]*$')


def _linked(tree: Tree) -> list[Layout]:
    """The pages in the order in which an index links to them first; else in that of their numbers."""
    made: list[Layout] = []
    for name in tree.names():
        if posixpath.basename(name) in INDEXES:
            targets = [Part(name=target) for target in _targets(tree, name)]
            made += [one for one in of_contents(tree, name, targets, ()) if len(one.parts) >= FEWEST]
    return made or by_numbers(tree, HTML)


def _targets(tree: Tree, index: str) -> list[str]:
    """Pages that an index links to, or those of the page that it names as the contents; none of the pages it names."""
    text = tree.text(index)
    declared = dict(DECLARED.findall(text))
    contents = declared.get("contents") or declared.get("toc")
    if contents:
        text = tree.text(posixpath.join(posixpath.dirname(index), contents)) or text
    return [target for target in LINK.findall(text) if target not in declared.values()]


def _typst(tree: Tree) -> list[Layout]:
    return by_inclusion(tree, (".typ",), TYPST)


def marked(text: str) -> str:
    """A page whose navigation and footer are marked in a way that the reader keeps, for the filter to take out."""
    return CLOSE.sub(r"</\1></div>", OPEN.sub(r'<div class="\1"><\1', text))


FORMATS = (
    Format(suffixes=HTML, reader="html", prepare=marked, layouts=_linked),
    Format(suffixes=(".docbook", ".dbk"), reader="docbook"),
    Format(suffixes=(".jats",), reader="jats"),
    Format(suffixes=(".org",), reader="org"),
    Format(suffixes=(".typ",), reader="typst", include=TYPST, layouts=_typst),
    Format(suffixes=(".textile",), reader="textile"),
)
