"""Other markup that pandoc reads: HTML, DocBook, JATS, Org, Typst and Textile."""

import posixpath
import re
from collections.abc import Sequence
from functools import partial

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.order import by_inclusion, by_numbers, of_contents

HTML = (".html", ".htm", ".xhtml")
INDEXES = ("index.html", "index.htm", "index.xhtml")
LINK = re.compile(r"""href=["']([^"'#:?]+\.x?html?)(?:#[^"']*)?["']""")
OPEN, CLOSE = re.compile(r"<(nav|footer)(?=[\s>])"), re.compile(r"</(nav|footer)\s*>")
PART = re.compile(r"<(?P<end>/?)(?P<name>table|caption|thead|tbody|tfoot|tr|td|th)\b[^>]*>", re.IGNORECASE)
"""Tags of a table's parts, whose ends HTML lets authors leave out, but for the table's own."""
DEPTH = {"table": 0, "caption": 1, "thead": 1, "tbody": 1, "tfoot": 1, "tr": 2, "td": 3, "th": 3}
"""Place of each in the others: the begin of one ends those as deep and deeper."""
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


def prepare(text: str) -> str:
    """A page whose tables are whole, and whose navigation and footer are marked for the filter to take out."""
    return _with_ends(CLOSE.sub(r"</\1></div>", OPEN.sub(r'<div class="\1"><\1', text)))


def _with_ends(text: str) -> str:
    """The text with the ends of rows and cells that HTML lets authors leave out: the reader would see no table."""
    made, parts, place = [], list[str](), 0
    for tag in PART.finditer(text):
        name, end = tag["name"].lower(), bool(tag["end"])
        stay = _still_open(parts, name, end=end)
        made += [text[place : tag.start()], *(f"</{part}>" for part in reversed(parts[stay:]))]
        del parts[stay:]
        if end and parts[-1:] == [name]:
            parts.pop()
        elif not end and (parts or name == "table"):
            parts.append(name)
        place = tag.start()
    return "".join([*made, text[place:]])


def _still_open(parts: Sequence[str], name: str, *, end: bool) -> int:
    """Number of a table's open parts, outermost first, that a tag does not end without saying so."""
    stay = len(parts)
    if not end:
        while name != "table" and stay and DEPTH[parts[stay - 1]] >= DEPTH[name]:
            stay -= 1
        return stay
    own = next((place for place in reversed(range(stay)) if parts[place] in (name, "table")), stay)
    # The end of something that is not open in this table says nothing.
    return own + 1 if parts[own : own + 1] == [name] else stay


FORMATS = (
    Format(suffixes=HTML, reader="html", prepare=prepare, layouts=_linked),
    Format(suffixes=(".docbook", ".dbk"), reader="docbook"),
    Format(suffixes=(".jats",), reader="jats"),
    Format(suffixes=(".org",), reader="org"),
    Format(
        suffixes=(".typ",),
        reader="typst",
        include=TYPST,
        layouts=partial(by_inclusion, suffixes=(".typ",), include=TYPST),
    ),
    Format(suffixes=(".textile",), reader="textile"),
)
