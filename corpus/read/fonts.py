"""Fonts of a page's characters: size, bold, typewriter, slanted; asked for once for all that one object draws."""

import ctypes
import math
import re
from statistics import median
from typing import Any

import pypdfium2.raw as raw

BOLD = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx|ecbx|cmb\d|-bd|\bmedi\b", re.IGNORECASE)
MONO = re.compile(
    r"mono|courier|typewriter|consol|cm[a-z]{0,2}tt|sftt|ectt|xb?tt|code\b|menlo|inconsolata|nimbusmon", re.IGNORECASE
)
SUBSET = re.compile(r"^[A-Z]{6}\+")
BOLD_WEIGHT = 600
FIXED_PITCH = 1
PITCH = 0.04
"""Difference of the advances of a typewriter font that rounding leaves, as a share."""
PROBED = 25
"""Characters before and behind a place that say how wide those of a font are."""
ITALIC = 1 << 6
SLANTED = re.compile(r"ital|obli|cmmi|cmsl|cmti|math|mtmi|txmi|pxmi|eurm", re.IGNORECASE)
BLANK, NO_BREAK = 0x20, 0xA0
LETTERS = frozenset(code for code in range(0x250) if chr(code).isalpha())
"""Characters whose advances tell a typewriter's font: digits and East Asian signs are equally wide in all."""
LEAST_SIZE = 0.1
"""Font size where the file has none, points."""


def by_address(function: Any, result: Any, *arguments: Any) -> Any:
    """The same function with addresses for pointers: making pointers takes a third of a call's time."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


_object_of = by_address(raw.FPDFText_GetTextObject, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_font_of = by_address(raw.FPDFTextObj_GetFont, ctypes.c_void_p, ctypes.c_void_p)


class TextObjects:
    """Objects of one page by their characters. Those of an object lie side by side, on one straight line."""

    def __init__(self, textpage: Any, count: int) -> None:
        self.textpage, self.page = ctypes.cast(textpage, ctypes.c_void_p), textpage
        self.matrix = raw.FS_MATRIX()
        self.known: list[int | None] = [None] * count
        self.fonts: dict[int, int] = {0: 0}
        self.sizes: dict[int, float] = {}

    def of(self, index: int) -> int:
        """The object that draws a character; 0 for those that PDFium made up."""
        drawn = self.known[index]
        if drawn is None:
            drawn = self.known[index] = _object_of(self.textpage, index) or 0
        return drawn

    def font_of(self, index: int) -> int:
        """Identity of a character's font on this page; 0 where it has none."""
        drawn = self.of(index)
        if drawn not in self.fonts:
            self.fonts[drawn] = _font_of(drawn) or 0
        return self.fonts[drawn]

    def size_of(self, index: int) -> float:
        """Font size of a character as printed, points."""
        drawn = self.of(index)
        if drawn not in self.sizes:
            scale = 1.0
            if raw.FPDFText_GetMatrix(self.page, index, self.matrix):
                scale = math.hypot(self.matrix.c, self.matrix.d) or 1.0
            # A font can be drawn at a size that rounds to nothing, and nothing divides by its size.
            self.sizes[drawn] = round(raw.FPDFText_GetFontSize(self.page, index) * scale, 1) or LEAST_SIZE
        return self.sizes[drawn]

    def end(self, first: int, last: int) -> int:
        """One past the last of the characters from `first` on, before `last`, that its object draws."""
        drawn = self.of(first)
        if not drawn:
            return first + 1
        known, step, place = self.known, 1, first
        while place + step < last and self.of(place + step) == drawn:
            place += step
            step *= 2
        beyond = min(place + step, last)
        while beyond - place > 1:
            middle = (place + beyond) // 2
            if self.of(middle) == drawn:
                place = middle
            else:
                beyond = middle
        known[first:beyond] = [drawn] * (beyond - first)
        return beyond


class Fonts:
    """Fonts of one page; one that neither name nor file calls a typewriter's, by the advance of its letters."""

    def __init__(self, textpage: Any, codes: list[int], objects: TextObjects) -> None:
        self.textpage = textpage
        self.codes = codes
        self.objects = objects
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.name = ctypes.create_string_buffer(128)
        self.fixed: dict[int, bool] = {}
        self.named: dict[bytes, tuple[str, bool, bool]] = {}
        self.drawn: dict[int, tuple[str, bool, bool]] = {}
        self.turns = 0
        self.probes: list[int] = []

    def expect(self, probes: list[int], turns: int) -> None:
        """Characters of every line, from which fonts without a name are measured, and the page's quarter turns."""
        self.probes, self.turns, self.fixed = probes, turns, {}
        self.named.clear()
        self.drawn.clear()

    def of(self, index: int) -> tuple[str, bool, bool]:
        """(name, bold, typewriter)"""
        drawn = self.objects.of(index)
        if drawn not in self.drawn:
            self.drawn[drawn] = self._found(index) if drawn else ("", False, False)
        return self.drawn[drawn]

    def _found(self, index: int) -> tuple[str, bool, bool]:
        flags = ctypes.c_int()
        raw.FPDFText_GetFontInfo(self.textpage, index, self.name, len(self.name), flags)
        value = self.name.value
        if not value:
            return "", raw.FPDFText_GetFontWeight(self.textpage, index) >= BOLD_WEIGHT, self._is_fixed(index)
        if value not in self.named:
            name = SUBSET.sub("", value.decode("utf-8", "replace"))
            heavy = raw.FPDFText_GetFontWeight(self.textpage, index) >= BOLD_WEIGHT or bool(BOLD.search(name))
            named = bool(MONO.search(name))
            # Files say of fonts of text that all letters are equally wide: what is printed counts.
            self.named[value] = (name, heavy, named or self._is_fixed(index, bool(flags.value & FIXED_PITCH)))
        return self.named[value]

    def face(self, index: int) -> str:
        """Identity of a character's font on this page: fonts of old TeX installations have no name."""
        return self.of(index)[0] or str(self.objects.font_of(index))

    def is_slanted(self, index: int) -> bool:
        """Whether a character is in italics or a font of mathematical letters."""
        flags = ctypes.c_int()
        raw.FPDFText_GetFontInfo(self.textpage, index, self.name, len(self.name), flags)
        return bool(flags.value & ITALIC) or bool(SLANTED.search(self.name.value.decode("utf-8", "replace")))

    def _is_fixed(self, index: int, said: bool = False) -> bool:
        """Whether a font is a typewriter's: by the advance of its letters, or where few are printed, as `said`."""
        if not self.fixed:
            self.fixed[0] = False
            for probe in self.probes:
                self._measure(probe)
        return self.fixed.get(self.objects.font_of(index), said)

    def _measure(self, index: int) -> None:
        font = self.objects.font_of(index)
        if not font or font in self.fixed:
            return
        codes, advances, seen, before = self.codes, [], set[int](), None
        for place in range(max(0, index - PROBED), min(len(codes), index + PROBED)):
            if codes[place] <= BLANK or codes[place] == NO_BREAK or self.objects.font_of(place) != font:
                before = None
                continue
            raw.FPDFText_GetCharOrigin(self.textpage, place, self.x, self.y)
            here = (self.x.value, self.y.value, -self.x.value, -self.y.value)[self.turns]
            if before is not None and here > before and codes[place - 1] in LETTERS:
                advances.append(here - before)
                seen.add(codes[place - 1])
            before = here
        if len(advances) >= 6 and len(seen) >= 4:
            usual = median(advances)
            alike = sum(abs(advance - usual) < PITCH * usual for advance in advances)
            self.fixed[font] = alike >= 0.9 * len(advances)
