"""Registry of book formats, search for the books in a tree of files, and preparation of a book's parts for pandoc."""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from corpus.read.books.format import BookLayout, BookPart, BookTree, Format
from corpus.read.books.order import included_files, inline_inclusions, missing_inclusions, natural_key
from corpus.read.books.pandoc import Omission
from corpus.read.books.tree import UNKNOWN, Archive, Single
from infuser_core.errors import DocumentError
from infuser_core.plugins import Registry

FORMATS = Registry(kind="book format", package="corpus.read.formats", outside="my_package.my_format")
"""Modules of book formats, each with a tuple `FORMATS`."""
ZIP = ".zip"
_NOTICES = (
    "licen[cs]es?|copying|contribut(?:ing|ors)|code[_-]of[_-]conduct|change[_-]?log|authors|news|release[_-]?notes"
)
NOTICE = re.compile(rf"(?:^|[/.])(?:{_NOTICES}|credits)(?:\.[^/]*)?$|(?:^|/)licen[cs]es?/[^/]*$", re.IGNORECASE)
"""Files about a book or a program, not a part of it even if its contents list them."""
NO_BOOK = re.compile(rf"(?:^|/)(?:readme|{_NOTICES}|changes|security|makefile)[^/]*$|{NOTICE.pattern}", re.IGNORECASE)
"""Files of a repository that are not part of its book."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError)
"""Errors of parsers for damaged files, or files with a wrong suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPiece:
    """A part of a book, or one of its chapters, ready for pandoc."""

    name: str = ""
    """File of the part; empty for a title alone."""
    reader: str = ""
    """Input format of pandoc."""
    depth: int
    """Levels by which its headings are pushed down."""
    text: str = ""
    """Input of pandoc; empty for a binary format, whose file is read instead."""
    title: str = ""
    """Title of the group of parts that begins here."""
    head: str = ""
    """Definitions to put before the text."""


@cache
def formats() -> tuple[Format, ...]:
    """Every registered book format."""
    modules = [importlib.import_module(f"{FORMATS.package}.{name}") for name in FORMATS.names()]
    return tuple(each for module in modules for each in module.FORMATS)


def _match_suffix(name: str) -> tuple[str, Format | None]:
    """The longest suffix of a book format that ends a file's name, and the format; empty and None without one."""
    matches = [(end, each) for each in formats() for end in each.suffixes if name.lower().endswith(end)]
    return max(matches, key=lambda pair: len(pair[0]), default=("", None))


def format_of(name: str) -> Format | None:
    """Book format of a file by its name; None if the name has no book format's suffix."""
    return _match_suffix(name)[1]


def suffix_of(name: str) -> str:
    """Suffix by which a file is stored and read: a book format's or `.zip`; empty for any other name."""
    return ZIP if name.lower().endswith(ZIP) else _match_suffix(name)[0]


def find_books(tree: BookTree) -> list[BookLayout]:
    """Find multi-part books in a tree, except books inside other books; the layout with most text wins."""
    longest: dict[str, tuple[int, BookLayout]] = {}
    for kind in formats():
        try:
            layouts = kind.layouts(tree)
        except UNREADABLE:
            # Ignore a damaged table of contents; other formats may still find its files.
            continue
        for layout in layouts:
            size = sum(len(tree.text(part.name)) for part in layout.parts)
            key = f"{layout.base}|{layout.root}" if layout.root.endswith(".collection.xml") else layout.base
            if size > longest.get(key, (0, layout))[0]:
                longest[key] = (size, layout)
    books = [layout for _, layout in longest.values()]
    outer = [one for one in books if not any(each.base != one.base and is_in_book(one.base, each) for each in books)]
    return sorted(outer, key=lambda one: one.root)


def is_in_book(name: str, layout: BookLayout) -> bool:
    """Whether a file or folder is below the book's folder."""
    return not layout.base or name.startswith(f"{layout.base}/")


def prepare_file(path: str, suffix: str) -> dict[str, Any]:
    """Prepare a book's file in the resource-limited process; returns its pieces and omissions as plain values."""
    tree: BookTree = Archive(Path(path)) if suffix == ZIP else Single(Path(path), f"book{suffix}")
    pieces, omissions = [], []
    listed = _find_parts(tree)
    parts = [part for part in listed if not NOTICE.search(part.name)] or listed
    for part in parts:
        part_pieces, part_omissions = _prepare_part(tree, part)
        pieces += part_pieces
        omissions += part_omissions
    names = {part.name for part in parts}
    others = [name for name in tree.names() if name not in names and _may_be_part(name)]
    others += [part.name for part in listed if part.name not in names]
    included = _included_by(tree, parts) if others else set[str]()
    omissions += [Omission(reason="unused", text=name) for name in others if name not in included]
    if not pieces:
        reasons = "; ".join(f"{omission.reason}: {omission.text}" for omission in omissions[:3])
        raise DocumentError(f"no part of it could be read: {reasons or 'no file of a known format'}", hint="unpack it")
    return {"pieces": [asdict(each) for each in pieces], "cuts": [asdict(each) for each in omissions]}


def _find_parts(tree: BookTree) -> list[BookPart]:
    """The parts of a tree in reading order, each file once."""
    layouts = find_books(tree)
    root = tree.root if isinstance(tree, Archive) else ""
    layouts = [one for one in layouts if one.root == root] or layouts
    if not layouts:
        return [BookPart(name=name) for name in sorted(tree.names(), key=natural_key) if _may_be_part(name)]
    parts, names = [], set()
    for part in (part for layout in layouts for part in layout.parts):
        if not part.name or part.name not in names:
            names.add(part.name)
            parts.append(part)
    return parts


def _may_be_part(name: str) -> bool:
    return format_of(name) is not None and not NO_BOOK.search(name) and not name.endswith((".opf", ".collection.xml"))


def _included_by(tree: BookTree, parts: Sequence[BookPart]) -> set[str]:
    """Files that the parts include at any depth, and the parts' own files that may include others."""
    todo, visited = [part.name for part in parts if part.name], set()
    while todo:
        name = todo.pop()
        kind = format_of(name)
        if name in visited or kind is None or kind.include is None:
            continue
        visited.add(name)
        todo += list(included_files(kind.view(tree), name, kind.include, kind.suffixes))
    return visited


def _prepare_part(tree: BookTree, part: BookPart) -> tuple[list[BookPiece], list[Omission]]:
    """Prepare a part as one piece per chapter; returns the pieces and what is left out."""
    if not part.name:
        return [BookPiece(depth=part.depth, title=part.title)], []
    kind = format_of(part.name)
    if kind is None:
        return [], [Omission(reason="unused", text=part.name)]
    if kind.is_binary:
        return [BookPiece(name=part.name, reader=kind.reader, depth=part.depth)], []
    # A text may declare another format than its file name does.
    whole = tree.text(part.name)
    kind = next((each for each in formats() if each.claim is not None and each.claim.search(whole)), kind)
    try:
        text = kind.prepare(inline_inclusions(kind.view(tree), part.name, kind.include, kind.suffixes))
    except UNREADABLE as error:
        return [], [Omission(reason="unreadable", text=f"{part.name}: {type(error).__name__}: {error}")]
    if byte := UNKNOWN.search(text):
        fault = (
            f"byte 0x{ord(byte[0]) - 0xDC00:02x} is not UTF-8, and no other encoding is declared; convert it with iconv"
        )
        return [], [Omission(reason="unreadable", text=f"{part.name}: {fault}")]
    missing = missing_inclusions(kind.view(tree), part.name, kind.include, kind.suffixes) if kind.include else ()
    omissions = [Omission(reason="missing", text=f"{part.name}: {each}") for each in missing]
    head, begin, body = text.partition(r"\begin{document}")
    head, body = (f"{head}\n", body) if begin else ("", text)
    pieces = [
        BookPiece(name=part.name, reader=kind.reader, depth=part.depth, text=chapter, head=definitions)
        for definitions, chapter in split_text(head, body, kind.split, kind)
    ]
    return pieces, omissions


def split_text(head: str, text: str, begins: re.Pattern[str] | None, kind: Format) -> Iterator[tuple[str, str]]:
    """Cut a text at the beginnings of its chapters or sections; yields (definitions that hold there, text)."""
    places = (match.start() for match in begins.finditer(text)) if begins else ()
    edges = sorted({0, *places, len(text)})
    for start, stop in pairwise(edges if text else [0, 0]):
        if text[start:stop].strip() or len(edges) < 3:
            yield head, text[start:stop]
        head += kind.carry(text[start:stop])
