"""Antora's books in AsciiDoc: pages in the order of the navigation, with names of pages and files by module."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from corpus.read.books.format import BookLayout, BookPart, BookTree
from corpus.read.books.myst import load_settings

DESCRIPTION = "antora.yml"
ENTRY = re.compile(r"(?m)^(?:(?P<stars>\*+)[ \t]+|\.(?=\S))(?P<text>\S.*)$")
"""An item of the navigation, or the title of a list of items."""
PAGE = re.compile(r"xref:(?P<page>[^\[\]#]+\.adoc)[^\[\]]*\[(?P<words>[^\]]*)\]")
RESOURCE = re.compile(r"(?:(?P<module>[\w.-]*):)?(?:(?P<family>\w+)\$)?(?P<path>[^:$]+)$")
"""Name of a file by its module and its family, such as `example`; without a family it is a page."""
HEADING = re.compile(r"(?m)^= (\S.*)$")
DEEPEST = 5


def find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the books of a tree: one for every description, with the pages that its navigation lists."""
    layouts = []
    for description in (name for name in tree.names() if posixpath.basename(name) == DESCRIPTION):
        base, settings = posixpath.dirname(description), load_settings(tree.text(description))
        lists = settings.get("nav") if isinstance(settings, dict) else None
        files = [posixpath.join(base, str(name)) for name in lists if isinstance(lists, list)] if lists else []
        parts = [part for file in files for part in _parts(tree, base, file)]
        if any(part.name for part in parts):
            layouts.append(BookLayout(root=description, parts=parts, base=base))
    return layouts


def _parts(tree: BookTree, base: str, file: str) -> Iterator[BookPart]:
    """Yield the pages of a navigation file, each below its title, and the titles of groups."""
    entries = list(ENTRY.finditer(tree.text(file)))
    above = all(entry["stars"] for entry in entries)
    for entry in entries:
        depth = min(len(entry["stars"] or "") - above, DEEPEST)
        page = PAGE.search(entry["text"])
        if page is None:
            yield BookPart(title=entry["text"], depth=depth)
        elif text := tree.text(name := posixpath.join(base, path_of(file, page["page"]).lstrip("/"))):
            title = HEADING.search(text)
            yield BookPart(title=title[1] if title else page["words"], depth=depth)
            yield BookPart(name=name, depth=depth + 1)


def path_of(file: str, resource: str) -> str:
    """Path of a resource from the book's folder, beginning with a slash; a plain path from the file that names it.

    The names of other books, which have two colons, stay as they are.
    """
    name, parts = RESOURCE.match(resource), file.split("/")
    if not name or "modules" not in parts or (name["family"] is None and not resource.endswith(".adoc")):
        return resource
    module = name["module"] or parts[parts.index("modules") + 1]
    return f"/modules/{module}/{name['family'] or 'page'}s/{name['path']}"


@lru_cache(maxsize=8)
def attributes_of(tree: BookTree) -> Mapping[str, str]:
    """Attributes that the descriptions of a tree's books define for their pages."""
    attributes: dict[str, str] = {}
    for name in tree.names():
        settings = load_settings(tree.text(name)) if posixpath.basename(name) == DESCRIPTION else None
        part = settings.get("asciidoc") if isinstance(settings, dict) else None
        values = part.get("attributes") if isinstance(part, dict) else None
        attributes |= {key: str(value) for key, value in values.items()} if isinstance(values, dict) else {}
    return attributes
