"""Running heads, page footers and page numbers: recognised by their place on the page, removed with a record.

Such a line stands at the same height, in the same size, on many pages, with space between itself and the text. What it
says decides second: it recurs there, carries the page's number, or the place is taken on most pages. Code and prose at
the end of a page have none of this, however often they recur.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from corpus.read.formulas.stacks import is_formula
from corpus.read.lines import Line, body_size, key
from corpus.read.printed import Removed

PAGE_NUMBER = re.compile(
    r"^(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,5})?$|^[-\u2013\u2014]\s*\d{1,5}\s*[-\u2013\u2014]$",
    re.I,
)
CONTINUED = re.compile(r"^\(?continue[sd] (?:on|from) (?:the )?(?:next|previous) page\)?\.*$", re.I)
"""Notes that a listing or a table goes on over the page, at any height."""
MIN_REPEATS = 3
"""Pages on which a text must stand at the edge to count as a running head."""
OFTEN = 0.3
"""Share of the pages on which a place is taken by running heads whatever they say."""
KNOWN = 0.5
"""Share of the pages there whose line carries the page's number or is another page's as well."""
ALWAYS_APART = 0.8
"""Share of the lines at such a place that have space between themselves and the text."""
ALWAYS_THERE = 0.5
"""Share of the lines with one text at the edges of pages that stand at that place."""
NEAR = 2.5
"""Distance within which lines of several pages are at the same height, points."""
APART = 1.5
"""Least distance from the text, in units of the font size."""
LARGE = 1.35
"""Size from which a number is no page's, in units of the text's."""
HEAD, NUMBER = "running_head", "page_number"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """A line at the upper or lower edge of a page."""

    line: Line
    """The line."""
    name: str
    """Its text without numbers and punctuation."""
    shifts: frozenset[int]
    """Numbers at its ends minus the page index."""
    apart: bool
    """Whether it has space between itself and the text."""
    larger: bool
    """Whether it is larger than the text, as titles are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """A height that running heads have on many pages."""

    y: float
    """Height above the page's lower edge, points."""
    size: float
    """Font size, points."""
    names: frozenset[str]
    """Texts that recur there."""
    often: bool
    """Whether the place is taken on so many pages that any text there is one."""


def without_running_heads(
    pages: Sequence[list[Line]], titles: Set[tuple[int, str]]
) -> tuple[list[list[Line]], list[Removed]]:
    """Pages without their running heads and page numbers, and those lines.

    `titles` are (page, key) of known headings: a title that happens to stand on top of several pages stays.
    """
    body = body_size(pages)
    edges = [_edges(page, body) for page in pages]
    every = [edge for page in edges for edge in page.values()]
    shift = _page_shift(edges, least=max(MIN_REPEATS, len(pages) // 2))
    slots = _slots(every, pages=len(pages), shift=shift, body=body)
    kept: list[list[Line]] = []
    removed: list[Removed] = []
    for page, edge in zip(pages, edges, strict=True):
        drop = {
            place
            for place, found in edge.items()
            if _is_head(found, slots, shift) and not _is_title(page, place, titles)
        }
        drop |= {place for place, line in enumerate(page) if CONTINUED.match(line.text)}
        kept.append([line for place, line in enumerate(page) if place not in drop])
        for line in (page[place] for place in sorted(drop)):
            reason = NUMBER if PAGE_NUMBER.match(line.text) else HEAD
            removed.append(Removed(page=line.page, text=line.text, reason=reason))
    return kept, removed


def _is_title(page: Sequence[Line], place: int, titles: Set[tuple[int, str]]) -> bool:
    """Whether a line is the only one on its page that prints the title of a heading there."""
    name = key(page[place].text)
    return (page[place].page, name) in titles and sum(key(line.text) == name for line in page) == 1


def _edges(page: Sequence[Line], body: float) -> dict[int, _Edge]:
    """The first and last two lines by position (the drawing order says nothing about it), by their place."""
    ranked = sorted(range(len(page)), key=lambda place: -page[place].y)
    number_alone = len(page) == 1 and bool(PAGE_NUMBER.match(page[0].text))
    found: dict[int, _Edge] = {}
    for edge in (ranked[:3], ranked[:-4:-1]):
        lines = [page[place] for place in edge]
        gaps = [abs(a.y - b.y) > APART * max(a.size, b.size) for a, b in pairwise(lines)]
        level = [abs(a.y - b.y) < NEAR for a, b in pairwise(lines)]
        for depth, line in enumerate(lines[:2]):
            # Two lines of a head, or its left and right part.
            apart = any(gaps[depth:]) or (depth == 0 and bool(level) and level[0] and any(gaps)) or number_alone
            found[edge[depth]] = _edge(line, apart=apart, body=body)
    return found


def _edge(line: Line, *, apart: bool, body: float) -> _Edge:
    larger = line.size >= body + 1
    words = line.text.split()
    # A page number may be larger than the text, and the number above a chapter's title is still larger.
    small = not larger or (bool(PAGE_NUMBER.match(line.text)) and line.size < LARGE * body)
    numbers = {int(word) for word in (words[0], words[-1]) if word.isdecimal() and len(word) < 5} if words else set()
    return _Edge(
        line=line,
        name=re.sub(r"[\d\W_]+", "", line.text).casefold(),
        shifts=frozenset(number - line.page for number in numbers) if apart and small else frozenset(),
        apart=apart,
        larger=larger,
    )


def _page_shift(edges: Sequence[dict[int, _Edge]], *, least: int) -> int | None:
    """Printed page number minus page index, where enough pages agree on one."""
    votes = Counter(shift for edge in edges for shift in {s for found in edge.values() for s in found.shifts})
    best = max(votes, key=lambda shift: (votes[shift], -abs(shift)), default=None)
    return best if best is not None and votes[best] >= least else None


def _slots(edges: Sequence[_Edge], *, pages: int, shift: int | None, body: float) -> list[_Slot]:
    """Heights at which small lines stand apart from the text on many pages, for a reason that heads have."""
    found: list[_Slot] = []
    everywhere = Counter(edge.name for edge in edges)
    heights = Counter((round(edge.line.y), edge.line.size) for edge in edges if edge.apart)
    for (y, size), _ in heights.most_common():
        here = [edge for edge in edges if abs(edge.line.y - y) <= NEAR]
        apart = [edge for edge in here if edge.apart and abs(edge.line.size - size) < 0.5]
        # A head's title and its number may differ in size.
        if len(_pages(apart)) < MIN_REPEATS or sum(edge.apart for edge in here) < ALWAYS_APART * len(here):
            continue
        # A head has one height; the last line of a listing ends where the page's text does.
        # The word above the titles of chapters recurs as well, on fewer pages.
        large = any(edge.larger for edge in apart)
        least = max(MIN_REPEATS, int(ALWAYS_THERE * pages)) if large else MIN_REPEATS
        here_by_name = Counter(edge.name for edge in apart)
        recurring = _recurring(apart, least)
        names = frozenset(name for name in recurring if here_by_name[name] >= ALWAYS_THERE * everywhere[name])
        # Page numbers, and lines that carry that of their page.
        numbered = _pages(
            edge for edge in apart if shift in edge.shifts or (shift is None and PAGE_NUMBER.match(edge.line.text))
        )
        taken = 0 if large else len(_pages(edge for edge in apart if not edge.line.mono))
        many = taken >= max(MIN_REPEATS + 2, OFTEN * pages) or len(numbered) >= MIN_REPEATS
        # Pages whose text begins or ends with a line above a displayed formula have one here as well, in its size.
        twice = _recurring(apart, 2)
        known = numbered | _pages(edge for edge in apart if edge.name in twice)
        often = many and (size <= body - 1 or len(known) >= KNOWN * len(_pages(apart)))
        if names or often:
            found.append(_Slot(y=y, size=size, names=names, often=often))
    return found


def _recurring(edges: Sequence[_Edge], least: int) -> frozenset[str]:
    counts = Counter(name for name, _ in {(edge.name, edge.line.page) for edge in edges if edge.name})
    return frozenset(name for name, count in counts.items() if count >= least)


def _pages(edges: Iterable[_Edge]) -> set[int]:
    return {edge.line.page for edge in edges}


def _is_head(edge: _Edge, slots: Sequence[_Slot], shift: int | None) -> bool:
    """Whether a line stands where running heads do and is one, or is its page's own number."""
    line = edge.line
    for slot in slots:
        if abs(line.y - slot.y) <= NEAR and abs(line.size - slot.size) < 0.5:
            # A displayed formula at the end of a page stands apart as well.
            usual = edge.apart and not edge.larger and slot.often
            if edge.name in slot.names or (usual and not is_formula(line.text)):
                return True
    return edge.apart and not line.mono and shift in edge.shifts and bool(PAGE_NUMBER.match(line.text))
