"""Characters of a page: their codes, printed lines and turns, and the blanks that are missing between words."""

import ctypes
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2.raw as raw

from corpus.read.fonts import TextObjects

# PDFium marks the hyphen of a word broken at a line end with one of these instead of "-".
BROKEN_WORD = frozenset({0x02, 0xFFFE})
LINE_ENDS = frozenset({0x0A, 0x0D})
BLANKS = frozenset({0x20, 0xA0})
"""Codes of a blank and of one that parts no line."""
SLANT, SLANTING = 0.15, -1
"""Share of a quarter turn up to which text is straight, and the turns of text that is not."""
SAMPLED = 24
"""Lines of a page that say how it is turned."""
RUN_ON = re.compile(r"[a-z]{2}[,;:.](?=[A-Za-z][a-z])")
"""A mark with no blank behind it: the sign of such a book, where there is a gap."""
LEAST, MOST = 0.12, 1.0
"""Width of a gap between two words, in units of the font size; kerning stays below."""
SAME_LINE = 0.3
"""Distance of the lower edges of two letters of one line, points."""
BEFORE = re.compile(r"[^\W\d_]|[,;:.)\u2019\u201d]")
BEHIND = re.compile(r"[^\W\d_]|[\u2018\u201c]")
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
DROPPED = dict.fromkeys(
    [
        *range(9),
        11,
        12,
        *range(14, 0x20),
        0x7F,
        *range(0x80, 0xA0),
        0xAD,
        0x200B,
        *range(0xFE00, 0xFE10),
        0xFEFF,
        0xFFFE,
        0xFFFF,
    ]
)


def clean(text: str) -> str:
    """Blanks collapsed, controls without ink dropped, surrogate halves (PDFium returns them one by one) joined."""
    if not text.isascii():
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = whole.replace("\u00a0", " ")
    return " ".join(text.translate(DROPPED).split())


class WordGaps:
    """Places of missing blanks in a book; pages are measured from the first one on that shows such a gap."""

    def __init__(self) -> None:
        self.found = False
        self.rect = raw.FS_RECTF()

    def on(self, textpage: Any, codes: Sequence[int]) -> frozenset[int]:
        """Characters of a page that a blank is missing behind."""
        text = "".join(map(chr, codes))
        if not self.found:
            self.found = any(self._gap(textpage, match.end() - 1) for match in RUN_ON.finditer(text))
        if not self.found:
            return frozenset()
        gaps = [
            self._gap(textpage, place) if BEFORE.match(text[place]) and BEHIND.match(text[place + 1]) else 0.0
            for place in range(len(text) - 1)
        ]
        # Letters that are set apart have gaps on both sides.
        return frozenset(
            place
            for place, gap in enumerate(gaps)
            if gap and not any((*gaps[place - 1 : place], *gaps[place + 1 : place + 2]))
        )

    def _gap(self, textpage: Any, place: int) -> float:
        """Width of the gap behind a character, in units of the font size; 0 where it parts no words."""
        rect = self.rect
        raw.FPDFText_GetLooseCharBox(textpage, place, rect)
        end, bottom = rect.right, rect.bottom
        raw.FPDFText_GetLooseCharBox(textpage, place + 1, rect)
        if abs(rect.bottom - bottom) > SAME_LINE or rect.top <= rect.bottom:
            return 0.0
        gap = float((rect.left - end) / (rect.top - rect.bottom))
        return gap if LEAST < gap < MOST else 0.0


Span = tuple[int, int, bool]
"""First character of a printed line, one past the last, and whether the last word goes on."""


def printed_lines(codes: Sequence[int]) -> Iterator[Span]:
    """Every printed line of a page."""
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
    """UTF-16 code of every character: read at once where the bulk text has one unit per character."""
    count = raw.FPDFText_CountChars(textpage)
    buffer = (ctypes.c_ushort * (count + 2))()
    written = raw.FPDFText_GetText(textpage, 0, count, buffer) - 1
    if written == count:
        return array("H", bytes(buffer)[: 2 * count]).tolist()
    return [min(raw.FPDFText_GetUnicode(textpage, index), 0xFFFF) for index in range(count)]


class Turns:
    """Quarter turns of a page's text: most of it may be printed sideways, and some along another edge than the rest."""

    def __init__(self, textpage: Any, codes: Sequence[int], lines: Sequence[Span], objects: TextObjects) -> None:
        self.textpage, self.codes, self.objects = textpage, codes, objects
        self.matrix = raw.FS_MATRIX()
        self.drawn: dict[int, int | None] = {}
        found: Counter[int] = Counter()
        for start, end, _ in lines[:: max(1, len(lines) // SAMPLED)]:
            turn = self._of(start)
            if turn is not None and turn != SLANTING:
                found[turn] += end - start
        self.most = found.most_common(1)[0][0] if found else 0

    def _of(self, index: int) -> int | None:
        """Quarter turns of a character, or SLANTING; None for a blank that PDFium made up."""
        if self.codes[index] <= 0x20:
            return None
        drawn = self.objects.of(index)
        if drawn not in self.drawn:
            self.drawn[drawn] = None
            if raw.FPDFText_GetMatrix(self.textpage, index, self.matrix):
                turn = math.atan2(self.matrix.b, self.matrix.a) / (math.pi / 2)
                self.drawn[drawn] = round(turn) % 4 if abs(turn - round(turn)) < SLANT else SLANTING
        return self.drawn[drawn]

    def parted(self, line: Span) -> Iterator[tuple[Span, bool]]:
        """A line in stretches, and whether each is turned as the page is; names of axes are not."""
        start, end, broken = line
        if all(self._of(index) in (self.most, None) for index in (start, (start + end) // 2, end - 1)):
            yield line, True
            return
        turns = [self._of(index) for index in range(start, end)]
        parts = [[start, start, next(turn for turn in turns if turn is not None)]]
        for index, turn in enumerate(turns, start):
            if turn is not None and turn != parts[-1][2]:
                parts.append([index, index, turn])
            parts[-1][1] = index + 1
        yield from (((first, last, broken and last == end), turn == self.most) for first, last, turn in parts)
