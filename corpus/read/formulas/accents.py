"""Accents of a page's characters composed with their letters, and the underscores that a page draws as rules."""

import ctypes
import unicodedata
from collections.abc import Sequence
from typing import Any

import pypdfium2.raw as raw

from corpus.read.formulas.signs import ACCENTS, HOLE, RELATIONS, ROOT
from corpus.read.printed import Rule

OPERATORS = frozenset({0x2202, 0x2207})
"""Signs beside letters that bear accents: of scaled derivatives."""
STROKES = (0x2F, 0x338)
FIRST = frozenset((*STROKES, 0xB4, 0x60, 0xA8))
"""Accents that are usually drawn in front of their letter; the others come behind it."""
UNDERSCORE, ON_BASELINE = 6.0, 1.2
"""Longest rule that is an underscore, and its largest distance from the baseline, points."""
SPACE = 1.5
"""Least distance of an underscore from a character that a blank parts it from, points."""
REACH = 4
"""Characters before and behind an accent among which its letter is looked for."""


class Accents:
    """Combining accents of a page's characters, by the index of their letter."""

    def __init__(self, textpage: Any, codes: list[int]) -> None:
        self.textpage, self.codes = textpage, codes
        self.rect = raw.FS_RECTF()
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.of: dict[int, str] = {}
        found = ACCENTS.keys() & set(codes)
        for index, code in enumerate(codes if found else []):
            if code in found and (letter := self._letter(index)) is not None:
                self.of[letter] = self.of.get(letter, "") + ACCENTS[code]
                codes[index] = HOLE

    def _letter(self, index: int) -> int | None:
        """The nearest letter, or for a stroke the relation, that an accent stands over."""
        left, right = self._edges(index)
        middle = (left + right) / 2
        for distance in sorted(range(-REACH, REACH + 1), key=abs)[1:]:
            place = index + distance if self.codes[index] in FIRST else index - distance
            if not 0 <= place < len(self.codes) or not self._bears(self.codes[place], self.codes[index]):
                continue
            begin, end = self._edges(place)
            if begin - 0.1 <= middle <= end + 0.1 or (
                self.codes[index] in STROKES and begin - 0.5 <= left < (begin + end) / 2
            ):
                return place if right - left < 2 * (end - begin) + 2 else None
        return None

    def _bears(self, code: int, accent: int) -> bool:
        if accent in STROKES:
            return chr(code) in RELATIONS
        return code in OPERATORS or (code > 0x20 and chr(code).isalpha())

    def _edges(self, index: int) -> tuple[float, float]:
        raw.FPDFText_GetLooseCharBox(self.textpage, index, self.rect)
        return self.rect.left, self.rect.right

    def add_underscores(self, rules: Sequence[Rule]) -> list[Rule]:
        """The rules without the short ones on a baseline: those are underscores of TeX's old fonts, and become text."""
        return [rule for rule in rules if rule.x1 - rule.x0 > UNDERSCORE or not self._is_underscore(rule)]

    def _is_underscore(self, rule: Rule) -> bool:
        """Whether a rule stands on the baseline behind a character; it is then written into the text."""
        before = self._left_of(rule)
        # A root's sign hangs from its bar.
        if before is None or self.codes[before] == ROOT:
            return False
        raw.FPDFText_GetCharOrigin(self.textpage, before, self.x, self.y)
        right = self._edges(before)[1]
        if abs(rule.y - self.y.value) > ON_BASELINE or right > rule.x0 + 2:
            return False
        written = (" " if rule.x0 - right > SPACE else "") + "_"
        # PDFium writes a blank into the gap that the rule leaves, and now and then none.
        if self._is_made_up(before + 1):
            self.codes[before + 1] = HOLE
            after = before + 2
            if after < len(self.codes) and self.codes[after] > 0x20 and self._edges(after)[0] - rule.x1 > SPACE:
                written += " "
        self.of[before] = self.of.get(before, "") + written
        return True

    def _left_of(self, rule: Rule) -> int | None:
        """The last character in front of a rule: the one at its left end, or the one before that at its right end."""
        height = rule.y + 2.5
        before = raw.FPDFText_GetCharIndexAtPos(self.textpage, rule.x0 - 1, height, 3.0, 5.0)
        if before < 0:
            before = raw.FPDFText_GetCharIndexAtPos(self.textpage, rule.x1 + 2, height, 6.0, 5.0) - 1
            before -= before > 0 and self._is_made_up(before)
        return before if 0 <= before < len(self.codes) - 1 and self.codes[before] > 0x20 else None

    def _is_made_up(self, index: int) -> bool:
        return self.codes[index] == 0x20 and bool(raw.FPDFText_IsGenerated(self.textpage, index))

    def over(self, signs: Sequence[str], places: Sequence[int]) -> str:
        """Characters that stand at these places, as one text with their accents."""
        text = "".join([sign + self.of.get(place, "") for place, sign in zip(places, signs, strict=True)])
        return unicodedata.normalize("NFC", text)
