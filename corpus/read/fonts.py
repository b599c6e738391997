"""Fonts of a PDF page's characters (size, bold, monospaced, slanted), read once per text object of the PDF."""

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
"""Relative difference between the advances of a monospaced font that rounding may cause."""
PROBED = 25
"""Number of characters before and after a position from which a font's advances are measured."""
ITALIC = 1 << 6
SLANTED = re.compile(r"ital|obli|cmmi|cmsl|cmti|math|mtmi|txmi|pxmi|eurm", re.IGNORECASE)
BLANK, NO_BREAK = 0x20, 0xA0
LETTERS = frozenset(code for code in range(0x250) if chr(code).isalpha())
"""Letters, whose advances identify a monospaced font; digits and East Asian characters have equal widths anyway."""
LEAST_SIZE = 0.1
"""Font size that replaces a size of 0, points."""


def bind_by_address(function: Any, result: Any, *arguments: Any) -> Any:
    """Bind a PDFium function so that it takes plain addresses: creating pointers takes a third of a call's time."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


_object_of = bind_by_address(raw.FPDFText_GetTextObject, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_font_of = bind_by_address(raw.FPDFTextObj_GetFont, ctypes.c_void_p, ctypes.c_void_p)


class TextObjects:
    """Text objects of one page, by character index. Each object draws consecutive characters on a straight line."""

    def __init__(self, textpage: Any, count: int) -> None:
        self.textpage, self.page = ctypes.cast(textpage, ctypes.c_void_p), textpage
        self.matrix = raw.FS_MATRIX()
        self.ids: list[int | None] = [None] * count
        """Text object of each character; None for one that was not looked up yet."""
        self.fonts: dict[int, int] = {0: 0}
        self.sizes: dict[int, float] = {}

    def of(self, index: int) -> int:
        """Address of the text object that draws a character; 0 for a character that PDFium inserted."""
        object_id = self.ids[index]
        if object_id is None:
            object_id = self.ids[index] = _object_of(self.textpage, index) or 0
        return object_id

    def font_of(self, index: int) -> int:
        """Identity of a character's font on this page; 0 if it has none."""
        object_id = self.of(index)
        if object_id not in self.fonts:
            self.fonts[object_id] = _font_of(object_id) or 0
        return self.fonts[object_id]

    def size_of(self, index: int) -> float:
        """Font size of a character as printed, points."""
        object_id = self.of(index)
        if object_id not in self.sizes:
            scale = 1.0
            if raw.FPDFText_GetMatrix(self.page, index, self.matrix):
                scale = math.hypot(self.matrix.c, self.matrix.d) or 1.0
            # A font may be drawn at a size that rounds to 0, by which nothing can be divided.
            self.sizes[object_id] = round(raw.FPDFText_GetFontSize(self.page, index) * scale, 1) or LEAST_SIZE
        return self.sizes[object_id]

    def end(self, first: int, last: int) -> int:
        """Index after the last character, at most `last`, of the text object that draws the character `first`."""
        object_id = self.of(first)
        if not object_id:
            return first + 1
        step, place = 1, first
        while place + step < last and self.of(place + step) == object_id:
            place += step
            step *= 2
        beyond = min(place + step, last)
        while beyond - place > 1:
            middle = (place + beyond) // 2
            if self.of(middle) == object_id:
                place = middle
            else:
                beyond = middle
        self.ids[first:beyond] = [object_id] * (beyond - first)
        return beyond


class Fonts:
    """Fonts of one page. A monospaced font is recognised by its name, else by the equal advances of its letters."""

    def __init__(self, textpage: Any, codes: list[int], objects: TextObjects) -> None:
        self.textpage = textpage
        self.codes = codes
        self.objects = objects
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.name = ctypes.create_string_buffer(128)
        self.fixed: dict[int, bool] = {}
        self.by_name: dict[bytes, tuple[str, bool, bool]] = {}
        self.by_object: dict[int, tuple[str, bool, bool]] = {}
        self.turns = 0
        self.probes: list[int] = []

    def expect(self, probes: list[int], turns: int) -> None:
        """Set the characters near which fonts are measured (one per line) and the page's rotation in quarter turns."""
        self.probes, self.turns, self.fixed = probes, turns, {}
        self.by_name.clear()
        self.by_object.clear()

    def of(self, index: int) -> tuple[str, bool, bool]:
        """Font of a character: (name, whether it is bold, whether it is monospaced)."""
        object_id = self.objects.of(index)
        if object_id not in self.by_object:
            self.by_object[object_id] = self._read_font(index) if object_id else ("", False, False)
        return self.by_object[object_id]

    def _read_font(self, index: int) -> tuple[str, bool, bool]:
        flags = ctypes.c_int()
        raw.FPDFText_GetFontInfo(self.textpage, index, self.name, len(self.name), flags)
        value = self.name.value
        if not value:
            return "", raw.FPDFText_GetFontWeight(self.textpage, index) >= BOLD_WEIGHT, self._is_fixed(index)
        if value not in self.by_name:
            name = SUBSET.sub("", value.decode("utf-8", "replace"))
            heavy = raw.FPDFText_GetFontWeight(self.textpage, index) >= BOLD_WEIGHT or bool(BOLD.search(name))
            # The printed advances decide, because files wrongly declare text fonts as fixed-pitch.
            mono = bool(MONO.search(name)) or self._is_fixed(index, bool(flags.value & FIXED_PITCH))
            self.by_name[value] = (name, heavy, mono)
        return self.by_name[value]

    def face(self, index: int) -> str:
        """Name of a character's font, or its identity on this page: fonts of old TeX installations have no name."""
        return self.of(index)[0] or str(self.objects.font_of(index))

    def is_slanted(self, index: int) -> bool:
        """Whether a character is in italics or a font of mathematical letters."""
        flags = ctypes.c_int()
        raw.FPDFText_GetFontInfo(self.textpage, index, self.name, len(self.name), flags)
        return bool(flags.value & ITALIC) or bool(SLANTED.search(self.name.value.decode("utf-8", "replace")))

    def _is_fixed(self, index: int, declared: bool = False) -> bool:
        """Whether the advances of a font's letters are equal; `declared` if too few letters are printed."""
        if not self.fixed:
            self.fixed[0] = False
            for probe in self.probes:
                self._measure(probe)
        return self.fixed.get(self.objects.font_of(index), declared)

    def _measure(self, index: int) -> None:
        font = self.objects.font_of(index)
        if not font or font in self.fixed:
            return
        codes, advances, letters, last = self.codes, [], set[int](), None
        for place in range(max(0, index - PROBED), min(len(codes), index + PROBED)):
            if codes[place] <= BLANK or codes[place] == NO_BREAK or self.objects.font_of(place) != font:
                last = None
                continue
            raw.FPDFText_GetCharOrigin(self.textpage, place, self.x, self.y)
            here = (self.x.value, self.y.value, -self.x.value, -self.y.value)[self.turns]
            if last is not None and here > last and codes[place - 1] in LETTERS:
                # By the font size, since code in a sentence is often larger than a listing.
                advances.append((here - last) / self.objects.size_of(place - 1))
                letters.add(codes[place - 1])
            last = here
        if len(advances) >= 6 and len(letters) >= 4:
            usual = median(advances)
            alike = sum(abs(advance - usual) < PITCH * usual for advance in advances)
            self.fixed[font] = alike >= 0.9 * len(advances)
