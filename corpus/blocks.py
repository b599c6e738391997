"""Markdown as a gapless row of blocks with character offsets. Nothing is rewritten.

A line ends at LF, CR or CR LF, as in CommonMark; `str.splitlines` would also break at form feeds and U+2028.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a block is. Code, math and table are never cut unless they alone exceed the limit."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    CODE = "code"
    MATH = "math"
    TABLE = "table"
    BLANK = "blank"


# A fence that is still open after this many lines is text; without a bound, many open ones cost quadratic time.
MAX_ROWS = 5000
ATOMIC = frozenset({Kind.CODE, Kind.MATH, Kind.TABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One span of the source."""

    kind: Kind
    """What it is."""
    start: int
    """First character."""
    end: int
    """One past the last character, line end included."""
    level: int = 0
    """Heading level 1-6; 0 otherwise."""
    title: str = ""
    """Heading text without markers; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One line: its span and its text without the line end."""

    start: int
    """First character."""
    end: int
    """One past the last character, line end included."""
    text: str
    """Text without the line end."""

    @property
    def blank(self) -> bool:
        return not self.text.strip(" \t")


LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|$)")
ATX = re.compile(r"^ {0,3}(#{1,6})(?=[ \t]|$)")
SETEXT = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
INDENTED = re.compile(r"^(?: {4}| {0,3}\t)")
NOT_A_TITLE = re.compile(
    r"^ {0,3}(?:[-+*]|\d{1,9}[.)])(?:\s|$)|^ {0,3}>|^ {0,3}(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$"
)
DELIMITER_ROW = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


def scan(source: str) -> list[Block]:
    """Blocks that tile the source: the first starts at 0, each starts where the one before ends."""
    rows = list(_rows(source))
    blocks: list[Block] = []
    place = 0
    while place < len(rows):
        block, place = _next(rows, place)
        blocks.append(block)
    return blocks


def _rows(source: str) -> Iterator[_Row]:
    position = 0
    while position < len(source):
        match = LINE.match(source, position)
        assert match is not None
        yield _Row(start=position, end=match.end(), text=match[1])
        position = match.end()


def _next(rows: list[_Row], place: int) -> tuple[Block, int]:
    row = rows[place]
    if row.blank:
        stop = _run(rows, place, lambda r: r.blank)
        return _block(Kind.BLANK, rows, place, stop), stop
    if atx := ATX.match(row.text):
        title = _without_closing_hashes(row.text[atx.end() :])
        return _block(Kind.HEADING, rows, place, place + 1, level=len(atx[1]), title=title), place + 1
    if found := _closed_block(rows, place):
        kind, stop = found
        return _block(kind, rows, place, stop), stop
    if INDENTED.match(row.text):
        stop = _run(rows, place, lambda r: not r.blank and bool(INDENTED.match(r.text)))
        return _block(Kind.CODE, rows, place, stop), stop
    if _starts_table(rows, place):
        stop = _run(rows, place, lambda r: "|" in r.text)
        return _block(Kind.TABLE, rows, place, stop), stop
    return _paragraph(rows, place)


def _without_closing_hashes(text: str) -> str:
    bare = text.strip(" \t")
    open_end = bare.rstrip("#")
    return open_end.rstrip(" \t") if not open_end or open_end[-1] in " \t" else bare


def _run(rows: list[_Row], place: int, belongs: Callable[[_Row], bool]) -> int:
    stop = place + 1
    while stop < len(rows) and belongs(rows[stop]):
        stop += 1
    return stop


def _block(kind: Kind, rows: list[_Row], place: int, stop: int, *, level: int = 0, title: str = "") -> Block:
    return Block(kind=kind, start=rows[place].start, end=rows[stop - 1].end, level=level, title=title)


def _closed_block(rows: list[_Row], place: int) -> tuple[Kind, int] | None:
    """A fence, display formula or comment and the row after its end. One that never closes is text."""
    text = rows[place].text
    bare = text.strip(" \t")
    if INDENTED.match(text):
        return None
    if (fence := FENCE.match(text)) and not (fence[1][0] == "`" and "`" in fence[2]):
        closing = re.compile(rf"^ {{0,3}}{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$")
        return _until(rows, place + 1, Kind.CODE, lambda r: bool(closing.match(r.text)))
    if bare.startswith("$$"):
        first = place if len(bare) > 2 and "$$" in bare[2:] else place + 1
        return _until(rows, first, Kind.MATH, lambda r: r.text.rstrip(" \t").endswith("$$"))
    if bare.startswith("\\["):
        return _until(rows, place, Kind.MATH, lambda r: r.text.rstrip(" \t").endswith("\\]"))
    if bare.startswith("<!--"):
        return _until(rows, place, Kind.CODE, lambda r: "-->" in r.text)
    return None


def _until(rows: list[_Row], place: int, kind: Kind, closes: Callable[[_Row], bool]) -> tuple[Kind, int] | None:
    for stop in range(place, min(len(rows), place + MAX_ROWS)):
        if closes(rows[stop]):
            return kind, stop + 1
    return None


def _starts_table(rows: list[_Row], place: int) -> bool:
    if "|" not in rows[place].text:
        return False
    below = rows[place + 1].text if place + 1 < len(rows) else ""
    return rows[place].text.lstrip(" ").startswith("|") or ("|" in below and bool(DELIMITER_ROW.match(below)))


def _paragraph(rows: list[_Row], place: int) -> tuple[Block, int]:
    """Text up to an empty line or another block; with an underline it is a heading."""
    titled = not NOT_A_TITLE.match(rows[place].text)
    stop = place + 1
    while stop < len(rows) and not rows[stop].blank:
        underline = SETEXT.match(rows[stop].text)
        if underline and titled:
            title = " ".join(row.text.strip(" \t") for row in rows[place:stop])
            level = 1 if underline[1][0] == "=" else 2
            return _block(Kind.HEADING, rows, place, stop + 1, level=level, title=title), stop + 1
        if ATX.match(rows[stop].text) or _closed_block(rows, stop) or _starts_table(rows, stop):
            break
        # A list or quotation begins here: what follows can no longer be the text of an underlined heading.
        titled = titled and not NOT_A_TITLE.match(rows[stop].text)
        stop += 1
    return _block(Kind.PARAGRAPH, rows, place, stop), stop
