"""Books in markup that pandoc reads: HTML, JATS, Org, Typst and Textile."""

import posixpath
import re
from collections.abc import Sequence
from functools import partial
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

from corpus.read.books.format import BookLayout, BookPart, BookTree, Format
from corpus.read.books.order import order_by_contents, order_by_inclusion, order_by_numbers

HTML = (".html", ".htm", ".xhtml")
INDEXES = ("index.html", "index.htm", "index.xhtml")
OPEN, CLOSE = re.compile(r"<(nav|footer)(?=[\s>])"), re.compile(r"</(nav|footer)\s*>")
PART = re.compile(r"<(?P<end>/?)(?P<name>table|caption|thead|tbody|tfoot|tr|td|th)\b[^>]*>", re.IGNORECASE)
"""Tags of a table and its parts; HTML lets authors omit the end tags of the parts."""
DEPTH = {"table": 0, "caption": 1, "thead": 1, "tbody": 1, "tfoot": 1, "tr": 2, "td": 3, "th": 3}
"""Nesting depth of table parts: a start tag ends the open parts that are as deep or deeper."""
DECLARED = frozenset({"contents", "toc", "index", "search"})
"""Kinds of pages that an index declares: table of contents, index or search page."""
FEWEST = 3
"""Least number of pages of a book."""
TYPST = re.compile(r'(?m)^[ \t]*#include[ \t]+"(?P<name>[^"\n]+)"[ \t]*$')
TEX = re.compile(
    r"(?s)(<tex-math\b[^>]*>\s*(?:<!\[CDATA\[)?)(?:(?!</tex-math).)*?\\begin\{document\}\s*\$*(.*?)\$*\s*\\end\{document\}\s*"
)
"""A formula of JATS that is a whole LaTeX document."""
STATEMENT = re.compile(r"(?s)(<statement\b[^>]*>\s*)<label>(.*?)</label>(?:\s*<title>(.*?)</title>)?")
LABEL = re.compile(r"(?s)<label>((?:(?!</label>).)*)</label>(\s*<caption\b[^>]*>\s*<(?:title|p)\b[^>]*>)")


class _Links(HTMLParser):
    """Collector of a page's links to other pages, in any spelling of HTML."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        """Pages of the book to which the page links, in order."""
        self.declared: dict[str, str] = {}
        """Page of each kind in `DECLARED`."""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the target of a link."""
        values = {name: value or "" for name, value in attrs}
        target = unquote(urldefrag(values.get("href", "").strip()).url)
        if ":" in target or "?" in target or not target.lower().endswith(HTML):
            return
        if tag == "a":
            self.targets.append(target)
        elif tag == "link" and values.get("rel", "").lower() in DECLARED and "/" not in target:
            self.declared.setdefault(values["rel"].lower(), target)


def _find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the HTML books of a tree: pages in the order of an index's links, or, without an index, of their numbers."""
    layouts: list[BookLayout] = []
    for name in tree.names():
        if posixpath.basename(name).lower() not in INDEXES:
            continue
        index = _Links(tree.text(name))
        contents = index.declared.get("contents") or index.declared.get("toc")
        text = tree.text(posixpath.join(posixpath.dirname(name), contents)) if contents else ""
        links = _Links(text).targets if text else index.targets
        targets = [BookPart(name=target) for target in links if target not in index.declared.values()]
        layouts += [one for one in order_by_contents(tree, name, targets, ()) if len(one.parts) >= FEWEST]
    return layouts or order_by_numbers(tree, HTML)


def prepare(text: str) -> str:
    """Prepare an HTML page for pandoc: complete its table tags, and mark navigation and footers for the filter."""
    return _close_table_parts(CLOSE.sub(r"</\1></div>", OPEN.sub(r'<div class="\1"><\1', text)))


def _close_table_parts(text: str) -> str:
    """Add the end tags of rows and cells that HTML lets authors omit: without them pandoc sees no table."""
    result, open_parts, place = [], list[str](), 0
    for tag in PART.finditer(text):
        name, is_end = tag["name"].lower(), bool(tag["end"])
        stay = _num_still_open(open_parts, name, is_end=is_end)
        result += [text[place : tag.start()], *(f"</{part}>" for part in reversed(open_parts[stay:]))]
        del open_parts[stay:]
        if is_end and open_parts[-1:] == [name]:
            open_parts.pop()
        elif not is_end and (open_parts or name == "table"):
            open_parts.append(name)
        place = tag.start()
    return "".join([*result, text[place:]])


def _num_still_open(parts: Sequence[str], name: str, *, is_end: bool) -> int:
    """Number of open parts, from the outermost, that stay open at a tag; the tag implies the end of the others."""
    stay = len(parts)
    if not is_end:
        while name != "table" and stay and DEPTH[parts[stay - 1]] >= DEPTH[name]:
            stay -= 1
        return stay
    opener = next((place for place in reversed(range(stay)) if parts[place] in (name, "table")), stay)
    # An end tag without a start tag in this table is ignored.
    return opener + 1 if parts[opener : opener + 1] == [name] else stay


def prepare_jats(text: str) -> str:
    """Prepare JATS for pandoc: reduce formulas to their TeX, and print the labels of statements, tables and figures."""
    text = LABEL.sub(r"\2\1. ", TEX.sub(r"\1\2", text))
    return STATEMENT.sub(
        lambda head: f"{head[1]}<p><bold>{'. '.join(filter(None, head.groups()[1:]))}</bold></p>", text
    )


FORMATS = (
    Format(suffixes=HTML, reader="html", prepare=prepare, layouts=_find_layouts),
    Format(suffixes=(".jats",), reader="jats", prepare=prepare_jats),
    Format(suffixes=(".org",), reader="org"),
    Format(
        suffixes=(".typ",),
        reader="typst",
        include=TYPST,
        layouts=partial(order_by_inclusion, suffixes=(".typ",), include=TYPST),
    ),
    Format(suffixes=(".textile",), reader="textile"),
)
