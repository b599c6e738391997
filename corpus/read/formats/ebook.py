"""Electronic books: EPUB, whose spine is the reading order, also unpacked, and FictionBook."""

import posixpath
import re
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.order import of_contents

CONTAINER = "META-INF/container.xml"
PAGES = re.compile(r"(?:^|/)(?:toc|nav|contents|cover|titlepage)\.x?html?$", re.IGNORECASE)


def _unpacked(tree: Tree) -> list[Layout]:
    """The spines of the packages that containers name."""
    made = []
    for name in (name for name in tree.names() if name.endswith(CONTAINER)):
        top = name.removesuffix(CONTAINER)
        for root in re.findall(r'full-path="([^"]+)"', tree.text(name)):
            package = posixpath.normpath(top + root)
            if text := tree.text(package):
                made += of_contents(tree, package, _spine(text), ())
    return made


def _spine(package: str) -> list[Part]:
    document = ElementTree.fromstring(package)
    # Some programs list a place within a page as a page of its own.
    items = {item.get("id"): unquote(urldefrag(item.get("href", "")).url) for item in document.iterfind(".//{*}item")}
    names = [items.get(item.get("idref"), "") for item in document.iterfind(".//{*}itemref")]
    return [Part(name=name) for name in names if name and not PAGES.search(name)]


FORMATS = (
    Format(suffixes=(".epub",), reader="epub", is_binary=True),
    Format(suffixes=(".fb2",), reader="fb2"),
    Format(suffixes=(".opf",), reader="html", layouts=_unpacked),
)
