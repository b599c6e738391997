"""Reading order of a book's files: by inclusions, by a table of contents, or by numbers in their names."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from re import Pattern

from corpus.read.books.format import BookLayout, BookPart, BookTree

MAX_DEPTH = 12
"""Largest depth of files included within files; stops files that include themselves."""
MAX_CHARS = 200_000_000
"""Longest text with all inclusions, characters."""
COMMENTED = re.compile(r"(?<!\\)%")
ROOT = re.compile(r"^\\[A-Za-z]+\s*/")
NUMBER = re.compile(r"(\d+)")
ANCHOR = re.compile(r"\b(?:ANCHOR:|tag::|(?P<end>ANCHOR_END:|end::))[ \t]*(?P<name>[\w-]+)")
"""A marker, in a comment of any language, at which an excerpt of a file begins or ends."""
ROUGHLY_ALL = 0.8
"""Least share of a folder's files with numbers in their names for these to be the reading order."""
FEWEST = 3
"""Least number of numbered files of a book."""


def resolve_name(tree: BookTree, name: str, other: str, suffixes: Sequence[str]) -> str:
    """Path of the file to which the file `name` refers as `other`; empty without one.

    It is looked for in the file's folder and those above; an absolute path begins at one of these, the topmost first.
    """
    names = set(tree.names())
    folders = [posixpath.dirname(name)]
    while folders[-1]:
        folders.append(posixpath.dirname(folders[-1]))
    for folder in reversed(folders) if other.startswith("/") else folders:
        for suffix in ("", *suffixes):
            path = posixpath.normpath(posixpath.join(folder, other.lstrip("/") + suffix))
            if path in names:
                return path
    return ""


def inline_inclusions(
    tree: BookTree,
    name: str,
    include: Pattern[str] | None,
    suffixes: Sequence[str],
    *,
    part: str | None = None,
    depth: int = 0,
) -> str:
    """Return a file's text with its inclusions replaced by the included text, or by nothing if the file is missing.

    Inclusions deeper than MAX_DEPTH, and those beyond MAX_CHARS, stay as they are.
    """
    text = tree.text(name) if part is None else _excerpt(tree.text(name), part)
    if include is None or depth >= MAX_DEPTH:
        return text
    parts, place, size = [], 0, 0
    for match in _inclusions(text, include):
        target = _target(tree, name, match, suffixes)
        excerpt = match.groupdict().get("part")
        is_program = excerpt is not None and not target.lower().endswith(tuple(suffixes))
        inner = ""
        if target and target != name:
            inner_part = excerpt if excerpt or is_program else None
            inner = inline_inclusions(tree, target, include, suffixes, part=inner_part, depth=depth + 1)
            if excerpt and not inner:
                # Keep the line that includes a missing excerpt, so that the loss is visible.
                inner = match[0]
        size += len(inner)
        if size > MAX_CHARS:
            break
        # A program's lines continue the listing that includes them, so no line feed is added.
        edge = "" if is_program else "\n"
        parts += [text[place : match.start()], edge, inner, edge]
        place = match.end()
    return "".join([*parts, text[place:]])


def _excerpt(text: str, part: str) -> str:
    """Lines of an excerpt: between the markers of `:name`, or with the numbers of `:first:last`; else all lines.

    Lines with markers are left out.
    """
    first, ranged, last = part.removeprefix(":").partition(":")
    name = "" if first.isdecimal() else first
    lines = text.rstrip("\n").split("\n")
    if not name and part:
        start = max(int(first or 1) - 1, 0)
        lines = lines[start : (int(last) if last.isdecimal() else None) if ranged else start + 1]
    result, inside = [], not name
    for line in lines:
        mark = ANCHOR.search(line)
        if mark and mark["name"] == name:
            inside = not mark["end"]
        elif inside and not mark:
            result.append(line)
    return "\n".join(result)


def _inclusions(text: str, include: Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the inclusions in a text that are not in a comment after a percent sign."""
    for match in include.finditer(text):
        if not COMMENTED.search(text, text.rfind("\n", 0, match.start()) + 1, match.start()):
            yield match


def _target(tree: BookTree, name: str, match: re.Match[str], suffixes: Sequence[str]) -> str:
    """Path of the file that an inclusion names, empty if missing; a macro before the path means the book's folder."""
    groups = match.groupdict()
    other = ROOT.sub("", (groups["name"] or groups.get("bare") or "").strip().strip("\"'"))
    folder = ROOT.sub("", (groups.get("folder") or "").strip())
    inside = resolve_name(tree, name, f"{folder}/{other}", suffixes) if folder else ""
    return inside or resolve_name(tree, name, other, suffixes)


def included_files(tree: BookTree, name: str, include: Pattern[str], suffixes: Sequence[str]) -> Iterator[str]:
    """Yield the files that a file includes directly."""
    for match in _inclusions(tree.text(name), include):
        if target := _target(tree, name, match, suffixes):
            yield target


def missing_inclusions(tree: BookTree, name: str, include: Pattern[str], suffixes: Sequence[str]) -> Iterator[str]:
    """Yield the inclusions in a file, and in the files it includes, that name no file of the book."""
    todo, visited = [name], {name}
    while todo:
        name = todo.pop()
        for match in _inclusions(tree.text(name), include):
            target = _target(tree, name, match, suffixes)
            if not target:
                yield match[0].strip()
            elif target not in visited:
                visited.add(target)
                todo.append(target)


def order_by_inclusion(
    tree: BookTree, suffixes: Sequence[str], include: Pattern[str], mark: str = ""
) -> list[BookLayout]:
    """Find one book per folder: the file that includes others, is included by none and has the most text with them.

    A chapter that includes a table is no book: if most of the file's text is its own, and the folder's other files that
    none includes have more, all of these are the book, in the order of their names.
    `mark` is text that the book must have, such as LaTeX's beginning of the document.
    """
    files = [name for name in tree.names() if name.lower().endswith(tuple(suffixes))]
    below = {name: list(included_files(tree, name, include, suffixes)) for name in files}
    inner = {target for targets in below.values() for target in targets}
    sizes: dict[str, dict[str, int]] = {}
    for name in files:
        if name not in inner:
            text = inline_inclusions(tree, name, include, suffixes)
            if mark in text:
                sizes.setdefault(posixpath.dirname(name), {})[name] = len(text)
    layouts = []
    for top, own in sorted(sizes.items()):
        root = max((name for name in own if below[name]), key=own.__getitem__, default="")
        if root and (2 * len(tree.text(root)) <= own[root] or 2 * own[root] >= sum(own.values())):
            layouts.append(BookLayout(root=root, parts=[BookPart(name=root)], base=top))
        elif root:
            parts = [BookPart(name=name) for name in sorted(own, key=natural_key)]
            layouts.append(BookLayout(root=top, parts=parts, base=top))
    return layouts


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that compares numbers in names as numbers."""
    words = NUMBER.split(name.lower())
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words if word]


def order_by_numbers(tree: BookTree, suffixes: Sequence[str]) -> list[BookLayout]:
    """Find one book per folder in which nearly all files of the format have numbers in their names, in that order."""
    folders: dict[str, list[str]] = {}
    for name in tree.names():
        if name.lower().endswith(tuple(suffixes)):
            folders.setdefault(posixpath.dirname(name), []).append(name)
    layouts = []
    for folder, names in sorted(folders.items()):
        numbered = Counter(bool(NUMBER.search(posixpath.basename(name))) for name in names)
        if numbered[True] >= FEWEST and numbered[True] >= ROUGHLY_ALL * len(names):
            parts = [BookPart(name=name) for name in sorted(names, key=natural_key)]
            layouts.append(BookLayout(root=folder, parts=parts, base=folder))
    return layouts


def order_by_contents(
    tree: BookTree, root: str, entries: Sequence[BookPart], suffixes: Sequence[str]
) -> list[BookLayout]:
    """The book whose table of contents is the file `root`; entries are paths from its folder, with or without suffix.

    Repeated entries and entries without a file are left out.
    """
    parts: list[BookPart] = []
    names = set()
    for entry in entries:
        name = resolve_name(tree, root, entry.name, suffixes) if entry.name else ""
        if (entry.name and not name) or (name and name in names):
            continue
        names.add(name)
        parts.append(BookPart(name=name, title=entry.title, depth=entry.depth))
    base = posixpath.dirname(root)
    return [BookLayout(root=root, parts=parts, base=base)] if any(part.name for part in parts) else []
