"""Reading order of a book's files: by what includes what, by a table of contents, or by numbers in names."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from re import Pattern

from corpus.read.books.format import Layout, Part, Tree

MAX_DEPTH = 12
"""Files within files, at most: one that includes itself ends there."""
MAX_CHARS = 200_000_000
"""Text that inclusions may grow to, characters."""
COMMENTED = re.compile(r"(?<!\\)%")
ROOT = re.compile(r"^\\[A-Za-z]+\s*/")
NUMBER = re.compile(r"(\d+)")
ANCHOR = re.compile(r"\bANCHOR(?P<end>_END)?:[ \t]*(?P<name>[\w-]+)")
"""A mark, in a comment of any language, at which an excerpt of a file begins or ends."""
ROUGHLY_ALL = 0.8
"""Share of the files of a folder that are numbered where their numbers are the reading order."""
FEWEST = 3
"""Numbered files that make a book."""


def found(tree: Tree, name: str, other: str, suffixes: Sequence[str]) -> str:
    """The file that `name` means by `other`, from its own folder or a folder above; empty where there is none."""
    names = set(tree.names())
    folder = posixpath.dirname(name)
    while True:
        for suffix in ("", *suffixes):
            path = posixpath.normpath(posixpath.join(folder, other + suffix))
            if path in names:
                return path
        if not folder:
            return ""
        folder = posixpath.dirname(folder)


def inlined(
    tree: Tree,
    name: str,
    include: Pattern[str] | None,
    suffixes: Sequence[str],
    *,
    part: str | None = None,
    depth: int = 0,
) -> str:
    """A file's text with the files it includes in their places. What is not there, or goes too deep, leaves no text."""
    text = tree.text(name) if part is None else _excerpt(tree.text(name), part)
    if include is None or depth >= MAX_DEPTH:
        return text
    parts, place, size = [], 0, 0
    for match in _inclusions(text, include):
        target = _target(tree, name, match, suffixes)
        wanted = match.groupdict().get("part")
        is_program = wanted is not None and not target.lower().endswith(tuple(suffixes))
        known = bool(target) and target != name
        excerpt = wanted if wanted or is_program else None
        inner = inlined(tree, target, include, suffixes, part=excerpt, depth=depth + 1) if known else ""
        # An excerpt that the file lacks is not lost in silence: its line stays.
        inner = match[0] if known and wanted and not inner else inner
        size += len(inner)
        if size > MAX_CHARS:
            break
        # Lines of a program stand between those of the listing that includes them.
        edge = "" if is_program else "\n"
        parts += [text[place : match.start()], edge, inner, edge]
        place = match.end()
    return "".join([*parts, text[place:]])


def _excerpt(text: str, part: str) -> str:
    """The lines of a file that `:name` means, those between its marks, or `:first:last`; without a part all of them.

    Lines with marks are left out.
    """
    first, ranged, last = part.removeprefix(":").partition(":")
    name = "" if first.isdecimal() else first
    lines = text.rstrip("\n").split("\n")
    if not name and part:
        start = max(int(first or 1) - 1, 0)
        lines = lines[start : (int(last) if last.isdecimal() else None) if ranged else start + 1]
    made, inside = [], not name
    for line in lines:
        mark = ANCHOR.search(line)
        if mark and mark["name"] == name:
            inside = not mark["end"]
        elif inside and not mark:
            made.append(line)
    return "\n".join(made)


def _inclusions(text: str, include: Pattern[str]) -> Iterator[re.Match[str]]:
    """The inclusions of a text that no percent sign before them turns into a comment."""
    for match in include.finditer(text):
        if not COMMENTED.search(text, text.rfind("\n", 0, match.start()) + 1, match.start()):
            yield match


def _target(tree: Tree, name: str, match: re.Match[str], suffixes: Sequence[str]) -> str:
    """The file that an inclusion stands for; a macro in front of its path is the top of the book."""
    groups = match.groupdict()
    other = ROOT.sub("", (groups["name"] or groups.get("bare") or "").strip().strip("\"'"))
    folder = ROOT.sub("", (groups.get("folder") or "").strip())
    inside = found(tree, name, f"{folder}/{other}", suffixes) if folder else ""
    return inside or found(tree, name, other, suffixes)


def included(tree: Tree, name: str, include: Pattern[str], suffixes: Sequence[str]) -> Iterator[str]:
    """The files that a file includes itself."""
    for match in _inclusions(tree.text(name), include):
        if target := _target(tree, name, match, suffixes):
            yield target


def absent(tree: Tree, name: str, include: Pattern[str], suffixes: Sequence[str]) -> Iterator[str]:
    """The inclusions of a file, and of the files it includes, that name no file of the book."""
    todo, seen = [name], {name}
    while todo:
        name = todo.pop()
        for match in _inclusions(tree.text(name), include):
            target = _target(tree, name, match, suffixes)
            if not target:
                yield match[0].strip()
            elif target not in seen:
                seen.add(target)
                todo.append(target)


def by_inclusion(tree: Tree, suffixes: Sequence[str], include: Pattern[str], mark: str = "") -> list[Layout]:
    """The file of each top folder that includes others, is included by none and, with them, holds the most text.

    `mark` is text that a whole book has, such as LaTeX's begin of the document.
    """
    mine = [name for name in tree.names() if name.lower().endswith(tuple(suffixes))]
    below = {name: list(included(tree, name, include, suffixes)) for name in mine}
    inner = {target for targets in below.values() for target in targets}
    best: dict[str, tuple[int, str]] = {}
    for name in mine:
        if name in inner or not below[name]:
            continue
        text = inlined(tree, name, include, suffixes)
        top = posixpath.dirname(name)
        if mark in text and len(text) > best.get(top, (0, ""))[0]:
            best[top] = (len(text), name)
    return [Layout(root=name, parts=[Part(name=name)], base=top) for top, (_, name) in sorted(best.items())]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key: numbers in names count as numbers."""
    words = NUMBER.split(name.lower())
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words if word]


def by_numbers(tree: Tree, suffixes: Sequence[str]) -> list[Layout]:
    """The folders whose files of a format are numbered, nearly all, as books; the others follow those with numbers."""
    folders: dict[str, list[str]] = {}
    for name in tree.names():
        if name.lower().endswith(tuple(suffixes)):
            folders.setdefault(posixpath.dirname(name), []).append(name)
    layouts = []
    for folder, names in sorted(folders.items()):
        numbered = Counter(bool(NUMBER.search(posixpath.basename(name))) for name in names)
        if numbered[True] >= FEWEST and numbered[True] >= ROUGHLY_ALL * len(names):
            parts = [Part(name=name) for name in sorted(names, key=natural)]
            layouts.append(Layout(root=folder, parts=parts, base=folder))
    return layouts


def of_contents(tree: Tree, root: str, entries: Sequence[Part], suffixes: Sequence[str]) -> list[Layout]:
    """The book whose table of contents is the file `root`; entries are named from its folder, perhaps without suffix.

    An entry is a part once, and none where its file is not there.
    """
    parts: list[Part] = []
    seen = set()
    for entry in entries:
        name = found(tree, root, entry.name, suffixes) if entry.name else ""
        if (entry.name and not name) or (name and name in seen):
            continue
        seen.add(name)
        parts.append(Part(name=name, title=entry.title, depth=entry.depth))
    base = posixpath.dirname(root)
    return [Layout(root=root, parts=parts, base=base)] if any(part.name for part in parts) else []
