"""Positioned lines of a PDF to headings: what is a running head, what is body text, what is a title of which level."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

HEADING_CHARS = 100
FONT_LEVELS = 4
SECTION_NUMBER = re.compile(
    r"^(?:(?:chapter|part|section|appendix)\s+)?(?:[0-9IVXLC]+|[A-Z])(?:\.[0-9]+)*[.:)]?\s+", re.I
)
NUMBERED = re.compile(r"^(\d+(?:\.\d+)*)\.?\s+\S")
# Dot leaders, or a section number in front and a page number behind ("World War 2" is a title).
CONTENTS_LINE = re.compile(r"(?:\.\s?){3,}\s*\S*$|^\d+(?:\.\d+)*\.?\s+\S.*\s(?:\d{1,4}|[ivxlc]{1,6})$")
PAGE_NUMBER = re.compile(
    r"^(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,5})?$|^[-\u2013\u2014]\s*\d{1,5}\s*[-\u2013\u2014]$",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One printed line."""

    text: str
    """Text with blanks collapsed."""
    page: int
    """Page index, 0-based."""
    x0: float
    """Left edge, points."""
    x1: float
    """Right edge, points."""
    y: float
    """Baseline above the page's lower edge, points."""
    size: float
    """Font size, points."""
    bold: bool
    """Whether the line is set in bold."""
    mono: bool
    """Whether the line is set in a typewriter font."""
    broken: bool
    """Whether the last word continues on the next line."""
    level: int = 0
    """Heading level, 1 for the highest; 0 for text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineEntry:
    """One bookmark of the PDF."""

    level: int
    """1 for the highest."""
    title: str
    """Title of the bookmark."""
    page: int
    """Page index it points to; -1 when it points nowhere."""


def lines_of(pages: Sequence[dict[str, Any]]) -> list[list[Line]]:
    """The reader's plain lists as lines, per page."""
    return [[Line(page=index, **line) for line in page["lines"]] for index, page in enumerate(pages)]


def key(text: str) -> str:
    """Letters and digits only, leading section number ignored: titles compare equal across typesettings."""
    bare = SECTION_NUMBER.sub("", text, count=1)
    return re.sub(r"[\W_]+", "", bare or text).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """What a line at the edge of a page has that a running head would share with other pages."""

    key: tuple[str, float]
    """Text without punctuation, and font size."""
    shifts: frozenset[int]
    """Numbers at its ends minus the page index; empty where they cannot be page numbers."""


def without_running_heads(pages: Sequence[list[Line]], *, min_repeats: int) -> list[list[Line]]:
    """Pages without the texts that recur at the upper or lower edge, and without page numbers there."""
    body = body_size(pages)
    edges = [_edges(page, body) for page in pages]
    repeats = Counter(name for edge in edges for name in {line.key for line in edge.values()})
    shift = _page_shift(edges, least=max(min_repeats, len(pages) // 2))
    kept = []
    for page, edge in zip(pages, edges, strict=True):
        drop = {place for place, line in edge.items() if repeats[line.key] >= min_repeats or shift in line.shifts}
        drop |= {place for place in edge if PAGE_NUMBER.match(page[place].text)}
        kept.append([line for place, line in enumerate(page) if place not in drop])
    return kept


def _edges(page: Sequence[Line], body: float) -> dict[int, _Edge]:
    """The first and last two lines by position (the drawing order says nothing about it), by their place."""
    ranked = sorted(range(len(page)), key=lambda place: -page[place].y)
    found: dict[int, _Edge] = {}
    for edge in (ranked[:3], ranked[:-4:-1]):
        lines = [page[place] for place in edge]
        gaps = [abs(a.y - b.y) > 1.5 * max(a.size, b.size) for a, b in pairwise(lines)]
        for depth, line in enumerate(lines[:2]):
            found[edge[depth]] = _edge(line, small=any(gaps[depth:]) and line.size < body + 1)
    return found


def _edge(line: Line, *, small: bool) -> _Edge:
    """Numbers are ignored, or read as page numbers, only in small lines with space between them and the text.

    `Chapter 1` and `Chapter 2` on top of a page are titles, and two lines of text may differ in a number alone.
    """
    name = re.sub(r"[\d\W_]+" if small else r"[\W_]+", "", line.text).casefold() or line.text
    words = line.text.split()
    numbers = {int(word) for word in (words[0], words[-1]) if small and word.isdecimal() and len(word) < 5}
    return _Edge(key=(name, round(line.size)), shifts=frozenset(number - line.page for number in numbers))


def _page_shift(edges: Sequence[dict[int, _Edge]], *, least: int) -> int | None:
    """Printed page number minus page index, where enough pages agree on one.

    A running head that changes with the chapter recurs too rarely to be seen, but carries the page's number.
    """
    votes = Counter(shift for edge in edges for shift in {s for line in edge.values() for s in line.shifts})
    best = max(votes, key=lambda shift: (votes[shift], -abs(shift)), default=None)
    return best if best is not None and votes[best] >= least else None


def body_size(pages: Sequence[list[Line]]) -> float:
    """Font size of most characters, points; 0 for a document without text."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page:
            sizes[round(line.size * 2) / 2] += len(line.text)
    return min(sizes, key=lambda size: (-sizes[size], size)) if sizes else 0.0


def mark_headings(pages: Sequence[list[Line]], outline: Sequence[OutlineEntry]) -> list[list[Line]]:
    """Pages whose heading lines carry a level, multi-line titles put together.

    Outline entries are matched first. Then large or bold numbered lines are added, with the level that the outline
    gives to their font size, because an outline may be absent or name the chapters only.
    """
    marked = [list(page) for page in pages]
    level_of_size = _match_outline(marked, outline)
    body = body_size(pages)
    if not level_of_size:
        sizes = sorted({line.size for page in marked for line in page if _looks_large(line, body)}, reverse=True)
        level_of_size = {size: level for level, size in enumerate(sizes[:FONT_LEVELS], start=1)}
    for page in marked:
        for place, line in enumerate(page):
            if not line.level and (level := _font_level(line, body, level_of_size)):
                page[place] = replace(line, level=level)
        _join_titles(page)
    return marked


def _match_outline(pages: list[list[Line]], outline: Sequence[OutlineEntry]) -> dict[float, int]:
    votes: Counter[tuple[float, int]] = Counter()
    for entry in outline:
        for number in (entry.page, entry.page + 1, entry.page - 1):
            if entry.page >= 0 and 0 <= number < len(pages) and (line := _claim(pages[number], entry)):
                votes[(line.size, entry.level)] += 1
                break
    best: dict[float, int] = {}
    for (size, level), _ in sorted(votes.items(), key=lambda vote: (vote[1], -vote[0][1])):
        best[size] = level
    return best


def _claim(page: list[Line], entry: OutlineEntry) -> Line | None:
    """The line, or the run of two or three lines, that prints the entry's title; replaced by one heading line."""
    wanted = key(entry.title)
    for place in range(len(page)):
        for span in (1, 2, 3):
            run = page[place : place + span]
            text = " ".join(line.text for line in run)
            taken = any(line.level for line in run) or len(text) > 3 * HEADING_CHARS
            if taken or not wanted or (CONTENTS_LINE.search(text) and text != entry.title):
                continue
            if key(text) == wanted:
                page[place : place + span] = [replace(run[0], text=text, level=entry.level, x1=run[-1].x1, y=run[-1].y)]
                return page[place]
    return None


def _looks_large(line: Line, body: float) -> bool:
    return line.size >= body + 1 and _could_be_title(line)


def _could_be_title(line: Line) -> bool:
    text = line.text
    wordy = any(c.isalpha() for c in text)
    return wordy and len(text) < HEADING_CHARS and not text.endswith(".") and not CONTENTS_LINE.search(text)


def _font_level(line: Line, body: float, level_of_size: dict[float, int]) -> int:
    if _looks_large(line, body):
        if line.size in level_of_size:
            return level_of_size[line.size]
        larger = [level for size, level in level_of_size.items() if size > line.size]
        return min(max(larger, default=0) + 1, 6)
    number = NUMBERED.match(line.text)
    if line.bold and not line.mono and number and _could_be_title(line) and line.size >= body - 0.5:
        return min(number[1].count(".") + 1, 6)
    return 0


def _join_titles(page: list[Line]) -> None:
    """A title that runs over two lines by font alone is one heading."""
    place = 1
    while place < len(page):
        above, line = page[place - 1], page[place]
        close = 0 < above.y - line.y < 1.5 * line.size
        if line.level and line.level == above.level and line.size == above.size and close:
            page[place - 1 : place + 1] = [replace(above, text=f"{above.text} {line.text}", y=line.y)]
        else:
            place += 1
