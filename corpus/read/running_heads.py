"""Removal of running heads, footers and page numbers, which are recognised by their position on the page.

A running head is at the same height, in the same font size, on many pages, with space between itself and the text. In
addition its text recurs at that height, it has the page's number, or many pages have a line there. Code and prose at
the end of a page meet none of these conditions, however often they recur.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise

from corpus.read.formulas.stacks import is_formula
from corpus.read.lines import PdfLine, body_size, title_key
from corpus.read.printed import RemovedText

PAGE_NUMBER = re.compile(
    r"^(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,5})?$|^[-\u2013\u2014]\s*\d{1,5}\s*[-\u2013\u2014]$",
    re.I,
)
CONTINUED = re.compile(r"^\(?continue[sd] (?:on|from) (?:the )?(?:next|previous) page\)?\.*$", re.I)
"""Notes, at any height, that a listing or a table continues on another page."""
LINES = 4
"""Most lines of a running head; its left, middle and right parts are on one."""
MIN_REPEATS = 3
"""Least number of pages with the same text at their edge for it to be a running head."""
OFTEN = 0.3
"""Least share of the pages with a line at one height for lines of any text there to be running heads."""
KNOWN = 0.5
"""Least share of the lines at such a height that have the page's number or recur on another page."""
ALWAYS_APART = 0.8
"""Least share of the lines at such a height that have space between themselves and the text."""
ALWAYS_THERE = 0.5
"""Least share of a text's occurrences at page edges that are at such a height."""
NEAR = 2.5
"""Largest difference between heights that count as the same on several pages, points."""
APART = 1.5
"""Least distance of a running head from the text, in units of the font size."""
LARGE = 1.35
"""Font size from which a number is not a page number, in units of the text's font size."""
HEAD, NUMBER = "running_head", "page_number"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One of the uppermost or lowest lines of a page, a candidate for a running head."""

    line: PdfLine
    name: str
    """Its text without numbers and punctuation."""
    shifts: frozenset[int]
    """Numbers at its ends minus the page index."""
    is_apart: bool
    """Whether it has space between itself and the text."""
    is_larger: bool
    """Whether it is larger than the text, as titles are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """A height at which many pages have running heads."""

    y: float
    """Height above the page's lower edge, points."""
    size: float
    """Font size, points."""
    names: frozenset[str]
    """Texts that recur there."""
    is_frequent: bool
    """Whether enough pages have a line there for any text there to be a running head."""


def split_running_heads(
    pages: Sequence[list[PdfLine]], titles: Set[tuple[int, str]]
) -> tuple[list[list[PdfLine]], list[RemovedText]]:
    """Separate running heads and page numbers from the text; returns the remaining lines by page and the removed text.

    `titles` are (page, title key) of known headings: a title that happens to be at the top of several pages stays.
    """
    body = body_size(pages)
    edges = [_edges(page, body) for page in pages]
    all_edges = [edge for page in edges for edge in page.values()]
    # Printed page number minus page index, if enough pages agree on one.
    votes = Counter(shift for page in edges for shift in {s for edge in page.values() for s in edge.shifts})
    shift = max(votes, key=lambda shift: (votes[shift], -abs(shift)), default=None)
    if shift is not None and votes[shift] < max(MIN_REPEATS, len(pages) // 2):
        shift = None
    slots = _find_slots(all_edges, pages=len(pages), shift=shift, body=body)
    texts: list[list[PdfLine]] = []
    removed: list[RemovedText] = []
    for page, page_edges in zip(pages, edges, strict=True):
        heads = {
            place
            for place, edge in page_edges.items()
            if _is_head(edge, slots, shift) and not _is_title(page, place, titles)
        }
        heads |= {place for place, line in enumerate(page) if CONTINUED.match(line.text)}
        texts.append([line for place, line in enumerate(page) if place not in heads])
        for line in (page[place] for place in sorted(heads)):
            reason = NUMBER if PAGE_NUMBER.match(line.text) else HEAD
            removed.append(RemovedText(page=line.page, text=line.text, reason=reason))
    return texts, removed


def _is_title(page: Sequence[PdfLine], place: int, titles: Set[tuple[int, str]]) -> bool:
    """Whether a line is the only one on its page with the title of a known heading on that page."""
    key = title_key(page[place].text)
    return (page[place].page, key) in titles and sum(title_key(line.text) == key for line in page) == 1


def _edges(page: Sequence[PdfLine], body: float) -> dict[int, _Edge]:
    """The uppermost and lowest lines (the drawing order may differ), by their index on the page."""
    ranked = sorted(range(len(page)), key=lambda place: -page[place].y)
    number_alone = len(page) == 1 and bool(PAGE_NUMBER.match(page[0].text))
    edges: dict[int, _Edge] = {}
    for edge in (ranked, ranked[::-1]):
        level = [abs(page[one].y - page[other].y) < NEAR for one, other in pairwise(edge)]
        rows = [0, *accumulate(not is_level for is_level in level)]
        lines = [page[place] for place, row in zip(edge, rows, strict=False) if row <= LINES]
        gaps = [abs(a.y - b.y) > APART * max(a.size, b.size) for a, b in pairwise(lines)]
        for depth, line in enumerate(lines[: bisect_left(rows, LINES)]):
            # A head may have several lines, or a left and a right part.
            is_apart = any(gaps[depth:]) or (depth == 0 and bool(level) and level[0] and any(gaps)) or number_alone
            edges[edge[depth]] = _edge(line, is_apart=is_apart, body=body)
    return edges


def _edge(line: PdfLine, *, is_apart: bool, body: float) -> _Edge:
    is_larger = line.size >= body + 1
    words = line.text.split()
    # A page number may be larger than the text, and the number above a chapter's title is still larger.
    is_small = not is_larger or (bool(PAGE_NUMBER.match(line.text)) and line.size < LARGE * body)
    numbers = {int(word) for word in (words[0], words[-1]) if word.isdecimal() and len(word) < 5} if words else set()
    return _Edge(
        line=line,
        name=re.sub(r"[\d\W_]+", "", line.text).casefold(),
        shifts=frozenset(number - line.page for number in numbers) if is_apart and is_small else frozenset(),
        is_apart=is_apart,
        is_larger=is_larger,
    )


def _find_slots(edges: Sequence[_Edge], *, pages: int, shift: int | None, body: float) -> list[_Slot]:
    """Heights at which many pages have a small line, separate from the text, that recurs or has the page's number."""
    slots: list[_Slot] = []
    everywhere = Counter(edge.name for edge in edges)
    heights = Counter((round(edge.line.y), edge.line.size) for edge in edges if edge.is_apart)
    for (y, size), _ in heights.most_common():
        here = [edge for edge in edges if abs(edge.line.y - y) <= NEAR]
        apart = [edge for edge in here if edge.is_apart and abs(edge.line.size - size) < 0.5]
        # A head's title and its number may differ in size.
        if len(_pages(apart)) < MIN_REPEATS or sum(edge.is_apart for edge in here) < ALWAYS_APART * len(here):
            continue
        # A head is always at the same height; the last line of a listing is wherever the page's text ends.
        # The label above the titles of chapters recurs as well, but on fewer pages.
        large = any(edge.is_larger for edge in apart)
        least = max(MIN_REPEATS, int(ALWAYS_THERE * pages)) if large else MIN_REPEATS
        here_by_name = Counter(edge.name for edge in apart)
        recurring = _recurring(apart, least)
        names = frozenset(name for name in recurring if here_by_name[name] >= ALWAYS_THERE * everywhere[name])
        # Page numbers, and lines that include the number of their page.
        numbered = _pages(
            edge for edge in apart if shift in edge.shifts or (shift is None and PAGE_NUMBER.match(edge.line.text))
        )
        occupied = 0 if large else len(_pages(edge for edge in apart if not edge.line.mono))
        many = occupied >= max(MIN_REPEATS + 2, OFTEN * pages) or len(numbered) >= MIN_REPEATS
        # Pages that begin or end with a line above a displayed formula have a line here as well, in the text's size.
        twice = _recurring(apart, 2)
        explained = numbered | _pages(edge for edge in apart if edge.name in twice)
        is_frequent = many and (size <= body - 1 or len(explained) >= KNOWN * len(_pages(apart)))
        if names or is_frequent:
            slots.append(_Slot(y=y, size=size, names=names, is_frequent=is_frequent))
    return slots


def _recurring(edges: Sequence[_Edge], least: int) -> frozenset[str]:
    counts = Counter(name for name, _ in {(edge.name, edge.line.page) for edge in edges if edge.name})
    return frozenset(name for name, count in counts.items() if count >= least)


def _pages(edges: Iterable[_Edge]) -> set[int]:
    return {edge.line.page for edge in edges}


def _is_head(edge: _Edge, slots: Sequence[_Slot], shift: int | None) -> bool:
    """Whether a line is a running head, or the number of its page."""
    line = edge.line
    for slot in slots:
        if abs(line.y - slot.y) <= NEAR and abs(line.size - slot.size) < 0.5:
            # A displayed formula at the end of a page also has space between itself and the text.
            usual = edge.is_apart and not edge.is_larger and slot.is_frequent
            if edge.name in slot.names or (usual and not is_formula(line.text)):
                return True
    return edge.is_apart and not line.mono and shift in edge.shifts and bool(PAGE_NUMBER.match(line.text))
