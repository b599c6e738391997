"""Formats of books by name, the books of a tree, and a book's parts made ready for pandoc."""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.order import absent, included, inlined, natural
from corpus.read.books.pandoc import Cut
from corpus.read.books.tree import Archive, Single
from infuser_core.errors import DocumentError
from infuser_core.plugins import Registry

FORMATS = Registry(kind="book format", package="corpus.read.formats", outside="my_package.my_format")
"""Ways of writing a book down: every module has its `FORMATS`."""
ZIP = ".zip"
NO_BOOK = re.compile(
    r"(?:^|/)(?:readme|license|licence|copying|contributing|code_of_conduct|changelog|changes|authors|security|makefile)"
    r"[^/]*$",
    re.IGNORECASE,
)
"""Files of a repository that are about it."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError)
"""Errors of parsers over files that are not what their name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part, ready for pandoc."""

    name: str = ""
    """Its file; empty for a title alone."""
    reader: str = ""
    """Input format."""
    depth: int
    """Levels by which its headings are pushed down."""
    text: str = ""
    """Input of pandoc; for a binary format nothing: its bytes are taken from the file."""
    title: str = ""
    """Heading of a group that stands above it."""
    head: str = ""
    """Definitions that stand before each chapter."""


@cache
def formats() -> tuple[Format, ...]:
    """Every format of the registry."""
    modules = [importlib.import_module(f"{FORMATS.package}.{name}") for name in FORMATS.names()]
    return tuple(each for module in modules for each in module.FORMATS)


def _named(name: str) -> tuple[str, Format | None]:
    """The longest suffix of a format that a file's name has, and its format."""
    found = [(end, each) for each in formats() for end in each.suffixes if name.lower().endswith(end)]
    return max(found, key=lambda pair: len(pair[0]), default=("", None))


def format_of(name: str) -> Format | None:
    """The format of a file by its name; None for no book's."""
    return _named(name)[1]


def suffix_of(name: str) -> str:
    """The suffix by which a file is kept and read: a book format's or `.zip`; empty for any other name."""
    return ZIP if name.lower().endswith(ZIP) else _named(name)[0]


def books(tree: Tree) -> list[Layout]:
    """The books of several parts in a tree, none inside another one; of two readings of a folder the longer one."""
    sizes: dict[str, tuple[int, Layout]] = {}
    for each in formats():
        for layout in _tried(each, tree):
            size = sum(len(tree.text(part.name)) for part in layout.parts)
            key = f"{layout.base}|{layout.root}" if layout.root.endswith(".collection.xml") else layout.base
            if size > sizes.get(key, (0, layout))[0]:
                sizes[key] = (size, layout)
    found = [layout for _, layout in sizes.values()]
    outer = [one for one in found if not any(each.base != one.base and belongs(one.base, each) for each in found)]
    return sorted(outer, key=lambda one: one.root)


def _tried(kind: Format, tree: Tree) -> list[Layout]:
    try:
        return kind.layouts(tree)
    except UNREADABLE:
        # A table of contents that is none orders nothing; its files are still there for other formats.
        return []


def belongs(name: str, layout: Layout) -> bool:
    """Whether a file or folder lies in the book's folder."""
    return not layout.base or name.startswith(f"{layout.base}/")


def prepare_file(path: str, suffix: str) -> dict[str, Any]:
    """Entry of the limited process: the pieces of a file in order, and what is left out, as plain values."""
    tree: Tree = Archive(Path(path)) if suffix == ZIP else Single(Path(path), f"book{suffix}")
    pieces, cuts = [], []
    parts = _parts(tree)
    for part in parts:
        found, failed = _pieces(tree, part)
        pieces += found
        cuts += failed
    named = {part.name for part in parts}
    left = [name for name in tree.names() if name not in named and _is_part(name)]
    reached = _reached(tree, parts) if left else set[str]()
    cuts += [Cut(reason="unused", text=name) for name in left if name not in reached]
    if not pieces:
        told = "; ".join(f"{cut.reason}: {cut.text}" for cut in cuts[:3])
        raise DocumentError(f"no part of it could be read: {told or 'no file of a known format'}", hint="unpack it")
    return {"pieces": [asdict(each) for each in pieces], "cuts": [asdict(each) for each in cuts]}


def _parts(tree: Tree) -> list[Part]:
    """The parts of a tree in reading order, each file once."""
    layouts = books(tree)
    wanted = tree.root if isinstance(tree, Archive) else ""
    chosen = [one for one in layouts if one.root == wanted] or layouts
    if not chosen:
        return [Part(name=name) for name in sorted(tree.names(), key=natural) if _is_part(name)]
    made, seen = [], set()
    for part in (part for layout in chosen for part in layout.parts):
        if not part.name or part.name not in seen:
            seen.add(part.name)
            made.append(part)
    return made


def _is_part(name: str) -> bool:
    return format_of(name) is not None and not NO_BOOK.search(name) and not name.endswith((".opf", ".collection.xml"))


def _reached(tree: Tree, parts: Sequence[Part]) -> set[str]:
    """Files that the parts include, at any depth."""
    todo, seen = [part.name for part in parts if part.name], set()
    while todo:
        name = todo.pop()
        kind = format_of(name)
        if name in seen or kind is None or kind.include is None:
            continue
        seen.add(name)
        todo += list(included(kind.view(tree), name, kind.include, kind.suffixes))
    return seen


def _pieces(tree: Tree, part: Part) -> tuple[list[Piece], list[Cut]]:
    """A part as one piece, or as many as it has chapters; or why it is none."""
    if not part.name:
        return [Piece(depth=part.depth, title=part.title)], []
    kind = format_of(part.name)
    if kind is None:
        return [], [Cut(reason="unused", text=part.name)]
    if kind.is_binary:
        return [_piece(part, kind, "")], []
    # A text may say of itself which format it has.
    whole = tree.text(part.name)
    kind = next((each for each in formats() if each.claim is not None and each.claim.search(whole)), kind)
    try:
        text = kind.prepare(inlined(kind.view(tree), part.name, kind.include, kind.suffixes))
    except UNREADABLE as error:
        return [], [Cut(reason="unreadable", text=f"{part.name}: {type(error).__name__}: {error}")]
    missing = absent(kind.view(tree), part.name, kind.include, kind.suffixes) if kind.include else ()
    cuts = [Cut(reason="missing", text=f"{part.name}: {each}") for each in missing]
    head, begin, body = text.partition(r"\begin{document}")
    head, body = (f"{head}\n", body) if begin else ("", text)
    return [_piece(part, kind, each, above) for above, each in cut_at(head, body, kind.split, kind)], cuts


def _piece(part: Part, kind: Format, text: str, head: str = "") -> Piece:
    return Piece(name=part.name, reader=kind.reader, depth=part.depth, text=text, head=head)


def cut_at(head: str, text: str, begins: re.Pattern[str] | None, kind: Format) -> Iterator[tuple[str, str]]:
    """A text cut where its chapters or sections begin, each with the definitions that hold there."""
    places = (match.start() for match in begins.finditer(text)) if begins else ()
    edges = sorted({0, *places, len(text)})
    for start, stop in pairwise(edges if text else [0, 0]):
        if text[start:stop].strip() or len(edges) < 3:
            yield head, text[start:stop]
        head += kind.carry(text[start:stop])
