"""Composition of a PDF page's accents with their letters, and recovery of underscores drawn as horizontal lines."""

import ctypes
import unicodedata
from collections.abc import Sequence
from typing import Any

import pypdfium2.raw as raw

from corpus.read.formulas.signs import ACCENTS, HOLE, RELATIONS, ROOT
from corpus.read.printed import Rule

OPERATORS = frozenset({0x2202, 0x2207})
"""Symbols other than letters that may have accents: those of scaled derivatives."""
STROKES = (0x2F, 0x338)
FIRST = frozenset((*STROKES, 0xB4, 0x60, 0xA8))
"""Accents that are usually drawn before their letter; the others follow it."""
UNDERSCORE, ON_BASELINE = 6.0, 1.2
"""Longest rule (horizontal line) that is an underscore, and its largest distance from the baseline, points."""
SPACE = 1.5
"""Least distance between an underscore and a character that counts as a space, points."""
REACH, NEAR = 40, 4
"""Characters before and after an accent among which its letter is searched, and those that are surely on its line."""


class Accents:
    """Combining accents of a page's characters, by the index of the letter that has the accent."""

    def __init__(self, textpage: Any, codes: list[int]) -> None:
        self.textpage, self.codes = textpage, codes
        self.rect = raw.FS_RECTF()
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.of: dict[int, str] = {}
        accents = ACCENTS.keys() & set(codes)
        for index, code in enumerate(codes if accents else []):
            if code in accents and (letter := self._letter(index)) is not None:
                self.of[letter] = self.of.get(letter, "") + ACCENTS[code]
                codes[index] = HOLE

    def _letter(self, index: int) -> int | None:
        """Index of the nearest letter below an accent, or, for a stroke, of the nearest relation; None without one."""
        is_stroke = self.codes[index] in STROKES
        left, right = self._edges(index)
        middle = (left + right) / 2
        # An accent that is drawn apart is to the left of the character before it.
        reach = REACH if index and left < self._edges(index - 1)[0] else NEAR
        for distance in sorted(range(-reach, reach + 1), key=abs)[1:]:
            place = index + distance if self.codes[index] in FIRST else index - distance
            if not 0 <= place < len(self.codes):
                continue
            code = self.codes[place]
            is_letter = code in OPERATORS or (code > 0x20 and chr(code).isalpha())
            if not (chr(code) in RELATIONS if is_stroke else is_letter):
                continue
            begin, end = self._edges(place)
            if abs(distance) > NEAR and not self._is_level(index, place):
                continue
            if begin - 0.1 <= middle <= end + 0.1 or (is_stroke and begin - 0.5 <= left < (begin + end) / 2):
                return place if right - left < 2 * (end - begin) + 2 else None
        return None

    def _edges(self, index: int) -> tuple[float, float]:
        raw.FPDFText_GetLooseCharBox(self.textpage, index, self.rect)
        return self.rect.left, self.rect.right

    def _is_level(self, index: int, place: int) -> bool:
        """Whether two characters are on the same line."""
        raw.FPDFText_GetLooseCharBox(self.textpage, index, self.rect)
        bottom = self.rect.bottom
        raw.FPDFText_GetLooseCharBox(self.textpage, place, self.rect)
        return abs(self.rect.bottom - bottom) < (self.rect.top - self.rect.bottom) / 2

    def add_underscores(self, rules: Sequence[Rule]) -> list[Rule]:
        """Turn short rules on a baseline into underscores, as TeX's old fonts draw them; returns the other rules."""
        return [rule for rule in rules if rule.x1 - rule.x0 > UNDERSCORE or not self._add_underscore(rule)]

    def _add_underscore(self, rule: Rule) -> bool:
        """Add an underscore to the text if the rule is on the baseline after a character; returns whether it is."""
        # Find the last character before the rule: at the rule's left end, or before the character at its right end.
        height = rule.y + 2.5
        before = raw.FPDFText_GetCharIndexAtPos(self.textpage, rule.x0 - 1, height, 3.0, 5.0)
        if before < 0:
            before = raw.FPDFText_GetCharIndexAtPos(self.textpage, rule.x1 + 2, height, 6.0, 5.0) - 1
            before -= before > 0 and self._is_generated_blank(before)
        # The rule after a root sign is the root's bar, not an underscore.
        if not 0 <= before < len(self.codes) - 1 or self.codes[before] <= 0x20 or self.codes[before] == ROOT:
            return False
        raw.FPDFText_GetCharOrigin(self.textpage, before, self.x, self.y)
        right = self._edges(before)[1]
        if abs(rule.y - self.y.value) > ON_BASELINE or right > rule.x0 + 2:
            return False
        text = (" " if rule.x0 - right > SPACE else "") + "_"
        # PDFium usually, but not always, inserts a space into the gap at the rule.
        if self._is_generated_blank(before + 1):
            self.codes[before + 1] = HOLE
            after = before + 2
            if after < len(self.codes) and self.codes[after] > 0x20 and self._edges(after)[0] - rule.x1 > SPACE:
                text += " "
        self.of[before] = self.of.get(before, "") + text
        return True

    def _is_generated_blank(self, index: int) -> bool:
        return self.codes[index] == 0x20 and bool(raw.FPDFText_IsGenerated(self.textpage, index))

    def compose(self, signs: Sequence[str], places: Sequence[int]) -> str:
        """Join the characters at the given indices into one text with their accents composed."""
        text = "".join([sign + self.of.get(place, "") for place, sign in zip(places, signs, strict=True)])
        return unicodedata.normalize("NFC", text)
