"""Blanks that a PDF neither holds nor PDFium adds between words, because they are narrow: by the letters' places."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2.raw as raw

RUN_ON = re.compile(r"[a-z]{2}[,;:.](?=[A-Za-z][a-z])")
"""A mark with no blank behind it: the sign of such a book, where there is a gap."""
LEAST, MOST = 0.12, 1.0
"""Width of a gap between two words, in units of the font size; kerning stays below."""
SAME_LINE = 0.3
"""Distance of the lower edges of two letters of one line, points."""
BEFORE = re.compile(r"[^\W\d_]|[,;:.)\u2019\u201d]")
BEHIND = re.compile(r"[^\W\d_]|[\u2018\u201c]")


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
        return frozenset(self._places(textpage, text)) if self.found else frozenset()

    def _places(self, textpage: Any, text: str) -> Iterator[int]:
        gaps = [
            self._gap(textpage, place) if BEFORE.match(text[place]) and BEHIND.match(text[place + 1]) else 0.0
            for place in range(len(text) - 1)
        ]
        for place, gap in enumerate(gaps):
            # Letters that are set apart have gaps on both sides.
            if gap and not any((*gaps[place - 1 : place], *gaps[place + 1 : place + 2])):
                yield place

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
