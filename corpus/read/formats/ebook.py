"""Electronic books: FictionBook and EPUB; an unpacked EPUB is read in the order of its spine."""

import posixpath
import re
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

from corpus.read.books.format import BookLayout, BookPart, BookTree, Format
from corpus.read.books.order import order_by_contents

CONTAINER = "META-INF/container.xml"
PAGES = re.compile(r"(?:^|/)(?:toc|nav|contents|cover|titlepage)\.x?html?$", re.IGNORECASE)


def _find_unpacked(tree: BookTree) -> list[BookLayout]:
    """Find the unpacked EPUB books of a tree, each with its pages in the order of its spine."""
    layouts = []
    for name in (name for name in tree.names() if name.endswith(CONTAINER)):
        top = name.removesuffix(CONTAINER)
        for root in re.findall(r'full-path="([^"]+)"', tree.text(name)):
            package = posixpath.normpath(top + root)
            if not (text := tree.text(package)):
                continue
            document = ElementTree.fromstring(text)
            # Drop fragments: some programs list a position within a page as a separate page.
            items = {
                item.get("id"): unquote(urldefrag(item.get("href", "")).url) for item in document.iterfind(".//{*}item")
            }
            pages = [items.get(item.get("idref"), "") for item in document.iterfind(".//{*}itemref")]
            spine = [BookPart(name=page) for page in pages if page and not PAGES.search(page)]
            layouts += order_by_contents(tree, package, spine, ())
    return layouts


FORMATS = (
    Format(suffixes=(".epub",), reader="epub-epub_html_exts", is_binary=True),
    Format(suffixes=(".fb2",), reader="fb2"),
    Format(suffixes=(".opf",), reader="html", layouts=_find_unpacked),
)
