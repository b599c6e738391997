"""Characters of a PDF page: their codes, printed lines and rotation, and the spaces that are missing between words."""

import ctypes
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pypdfium2.raw as raw

from corpus.read.fonts import TextObjects

# PDFium marks the hyphen of a word divided at a line end with one of these instead of "-".
BROKEN_WORD = frozenset({0x02, 0xFFFE})
LINE_ENDS = frozenset({0x0A, 0x0D})
BLANKS = frozenset({0x20, 0xA0})
"""Codes of the space and the no-break space."""
SLANT, SLANTING = 0.15, -1
"""Largest deviation of straight text, as a share of a quarter turn, and the value for slanting text."""
SAMPLED = 24
"""Lines of a page that are sampled for its rotation."""
RUN_ON = re.compile(r"[a-z]{2}[,;:.](?=[A-Za-z][a-z])")
"""A punctuation mark with no space after it; if a gap is printed there, the file lacks its spaces."""
LEAST, MOST = 0.12, 1.0
"""Range of the width of a gap between two words, in units of the font size; kerning is narrower."""
SAME_LINE = 0.3
"""Largest distance between the lower edges of two letters of one line, points."""
BEFORE = re.compile(r"[^\W\d_]|[,;:.)\u2019\u201d]")
AFTER = re.compile(r"[^\W\d_]|[\u2018\u201c]")
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_DROPPED = (range(9), range(11, 13), range(14, 0x20), range(0x7F, 0xA0), range(0xFE00, 0xFE10), range(0xFFFE, 0x10000))
DROPPED = dict.fromkeys([*chain(*_DROPPED), 0xAD, 0x200B, 0xFEFF])


def clean(text: str) -> str:
    """Collapse whitespace, drop characters without ink, and join surrogates, which PDFium returns one by one."""
    if not text.isascii():
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = whole.replace("\u00a0", " ")
    return " ".join(text.translate(DROPPED).split())


class WordGaps:
    """Detector of missing spaces in a book. Pages are measured only from the first page that lacks a space."""

    def __init__(self) -> None:
        self.has_gaps = False
        """Whether any page so far lacks a space between words."""
        self.rect = raw.FS_RECTF()

    def missing_on(self, textpage: Any, codes: Sequence[int]) -> frozenset[int]:
        """Indices of a page's characters after which a space is missing."""
        text = "".join(map(chr, codes))
        if not self.has_gaps:
            self.has_gaps = any(self._gap(textpage, match.end() - 1) for match in RUN_ON.finditer(text))
        if not self.has_gaps:
            return frozenset()
        gaps = [
            self._gap(textpage, place) if BEFORE.match(text[place]) and AFTER.match(text[place + 1]) else 0.0
            for place in range(len(text) - 1)
        ]
        # Leave out spaced letters, which have gaps on both sides.
        return frozenset(
            place
            for place, gap in enumerate(gaps)
            if gap and not any((*gaps[place - 1 : place], *gaps[place + 1 : place + 2]))
        )

    def _gap(self, textpage: Any, place: int) -> float:
        """Width of the gap after a character, in units of the font size; 0 if it does not separate words."""
        rect = self.rect
        raw.FPDFText_GetLooseCharBox(textpage, place, rect)
        end, bottom = rect.right, rect.bottom
        raw.FPDFText_GetLooseCharBox(textpage, place + 1, rect)
        if abs(rect.bottom - bottom) > SAME_LINE or rect.top <= rect.bottom:
            return 0.0
        gap = float((rect.left - end) / (rect.top - rect.bottom))
        return gap if LEAST < gap < MOST else 0.0


Span = tuple[int, int, bool]
"""First character of a printed line, one past the last, and whether its last word continues on the next line."""


def printed_lines(codes: Sequence[int]) -> Iterator[Span]:
    """Yield the span of every printed line of a page."""
    start = 0
    for place, code in enumerate(codes):
        ends = code in LINE_ENDS
        if not ends and code not in BROKEN_WORD:
            continue
        if place > start:
            yield start, place, not ends
        start = place + 1
    if len(codes) > start:
        yield start, len(codes), False


def codes_of(textpage: Any) -> list[int]:
    """UTF-16 code of every character of a page, read in one call if the text has one unit per character."""
    count = raw.FPDFText_CountChars(textpage)
    buffer = (ctypes.c_ushort * (count + 2))()
    units = raw.FPDFText_GetText(textpage, 0, count, buffer) - 1
    if units == count:
        return array("H", bytes(buffer)[: 2 * count]).tolist()
    return [min(raw.FPDFText_GetUnicode(textpage, index), 0xFFFF) for index in range(count)]


class Turns:
    """Rotation of a page's text in quarter turns: most of it may be sideways, and some in yet another direction."""

    def __init__(self, textpage: Any, codes: Sequence[int], lines: Sequence[Span], objects: TextObjects) -> None:
        self.textpage, self.codes, self.objects = textpage, codes, objects
        self.matrix = raw.FS_MATRIX()
        self.turn_of_object: dict[int, int | None] = {}
        votes: Counter[int] = Counter()
        for start, end, _ in lines[:: max(1, len(lines) // SAMPLED)]:
            turn = self._turn(start)
            if turn is not None and turn != SLANTING:
                votes[turn] += end - start
        self.page = votes.most_common(1)[0][0] if votes else 0
        """Quarter turns of most text on the page."""

    def _turn(self, index: int) -> int | None:
        """Quarter turns of a character, or SLANTING; None for a space or control character."""
        if self.codes[index] <= 0x20:
            return None
        object_id = self.objects.of(index)
        if object_id not in self.turn_of_object:
            self.turn_of_object[object_id] = None
            if raw.FPDFText_GetMatrix(self.textpage, index, self.matrix):
                turn = math.atan2(self.matrix.b, self.matrix.a) / (math.pi / 2)
                self.turn_of_object[object_id] = round(turn) % 4 if abs(turn - round(turn)) < SLANT else SLANTING
        return self.turn_of_object[object_id]

    def split(self, line: Span) -> Iterator[tuple[Span, bool]]:
        """Cut a line where its rotation changes; yields each part and whether it is rotated like most of the page."""
        start, end, broken = line
        if all(self._turn(index) in (self.page, None) for index in (start, (start + end) // 2, end - 1)):
            yield line, True
            return
        turns = [self._turn(index) for index in range(start, end)]
        parts = [[start, start, next(turn for turn in turns if turn is not None)]]
        for index, turn in enumerate(turns, start):
            if turn is not None and turn != parts[-1][2]:
                parts.append([index, index, turn])
            parts[-1][1] = index + 1
        yield from (((first, last, broken and last == end), turn == self.page) for first, last, turn in parts)
