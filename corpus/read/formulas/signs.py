"""Signs of TeX's mathematical fonts: codes without a Unicode value named, accents composed, the unknown marked.

Many files give the characters of these fonts no Unicode value; PDFium then hands out their codes in the font, which
would read as other letters (`hu, vi` for angle brackets). The tables follow Knuth, The TeXbook, appendix F.
"""

import ctypes
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import pypdfium2.raw as raw

from corpus.read.printed import Rule

GARBLED = "\ue0ff"
"""Stands behind text that cannot be read as one formula; the print of the book says so in words."""
ROOT = 0x221A
HOLE = 0x200B
"""Code of a character that is no longer there: an accent that its letter has taken up."""
BIG = "()[]\u230a\u230b\u2308\u2309{}\u27e8\u27e9"
NEGATION = "\u0338"
MAPSTO, ARROW, ARROW_CODE = 0x21A6, 0x2192, 0x21
SYMBOL = (
    "\u2212\u00b7\u00d7\u2217\u00f7\u22c4\u00b1\u2213\u2295\u2296\u2297\u2298\u2299\u25cb\u2218\u2022"
    "\u224d\u2261\u2286\u2287\u2264\u2265\u2aaf\u2ab0\u223c\u2248\u2282\u2283\u226a\u226b\u227a\u227b"
    "\u2190\u2192\u2191\u2193\u2194\u2197\u2198\u2243\u21d0\u21d2\u21d1\u21d3\u21d4\u2196\u2199\u221d"
    f"\u2032\u221e\u2208\u220b\u25b3\u25bd{NEGATION}\u21a6\u2200\u2203\u00ac\u2205\u211c\u2111\u22a4\u22a5"
    "\u2135ABCDEFGHIJKLMNOPQRSTUVWXYZ\u222a\u2229\u228e\u2227\u2228"
    "\u22a2\u22a3\u230a\u230b\u2308\u2309{}\u27e8\u27e9|\u2225\u2195\u21d5\\\u2240"
    "\u221a\u2a3f\u2207\u222b\u2294\u2293\u2291\u2292\u00a7\u2020\u2021\u00b6\u2663\u2662\u2661\u2660"
)
LETTERS = (
    "\u0393\u0394\u0398\u039b\u039e\u03a0\u03a3\u03a5\u03a6\u03a8\u03a9\u03b1\u03b2\u03b3\u03b4\u03f5"
    "\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc\u03bd\u03be\u03c0\u03c1\u03c3\u03c4\u03c5\u03d5\u03c7"
    "\u03c8\u03c9\u03b5\u03d1\u03d6\u03f1\u03c2\u03c6\u21bc\u21bd\u21c0\u21c1\u02d3\u02d2\u25b9\u25c3"
    "0123456789.,</>\u22c6\u2202ABCDEFGHIJKLMNOPQRSTUVWXYZ\u266d\u266e\u266f\u2323\u2322"
    "\u2113abcdefghijklmnopqrstuvwxyz\u0131\u0237\u2118\u20d7\u2040"
)
_WIDE = {0x62: "\u02c6", 0x63: "\u02c6", 0x64: "\u02c6", 0x65: "\u02dc", 0x66: "\u02dc", 0x67: "\u02dc"}
EXTENSION_SIGNS = {
    **dict(enumerate(BIG + "|\u2016/\\")),
    **dict(zip(range(0x10, 0x20), "()()[]\u230a\u230b\u2308\u2309{}\u27e8\u27e9/\\", strict=True)),
    **dict(zip(range(0x20, 0x30), BIG + "/\\/\\", strict=True)),
    **dict(zip(range(0x44, 0x60), "\u27e8\u27e9\u2294\u2294\u222e\u222e\u2299\u2299\u2295\u2295\u2297\u2297"
               + 2 * "\u2211\u220f\u222b\u22c3\u22c2\u228e\u22c0\u22c1", strict=True)),
    **dict(zip(range(0x60, 0x62), "\u2210\u2210", strict=True)),
    **_WIDE,
    **dict(zip(range(0x68, 0x70), "[]\u230a\u230b\u2308\u2309{}", strict=True)),
    **dict.fromkeys(range(0x70, 0x74), "\u221a"),
}  # fmt: skip
"""Without the pieces of tall brackets and of braces above and below: what they hold has several lines."""
FAMILIES: tuple[tuple[re.Pattern[str], dict[int, str]], ...] = (
    (re.compile(r"cmex|math-?extension|mathex|txex|pxex", re.IGNORECASE), EXTENSION_SIGNS),
    (re.compile(r"cmb?sy|math-?symbols|mathsy|txsy\b|pxsy\b", re.IGNORECASE), dict(enumerate(SYMBOL))),
    (re.compile(r"cmmi|math-?italic|txmi\b|pxmi\b", re.IGNORECASE), dict(enumerate(LETTERS))),
    (re.compile(r"msam", re.IGNORECASE),
     {0x03: "\u25a1", 0x04: "\u25a0", 0x26: "\u2273", 0x2E: "\u2272", 0x36: "\u2a7d", 0x3E: "\u2a7e"}),
)  # fmt: skip
STRICT = re.compile(r"^cmb?sy\d", re.IGNORECASE)
FOREIGN = frozenset(map(ord, "!?<>=;:0123456789")) | frozenset(range(0x0E, 0x20))
"""Codes that no sign of TeX's font of symbols has as its value: a file that gives them as values says its codes."""
NAMELESS = dict(enumerate("\u2013\u2014", 0x15)) | dict(enumerate("\ufb00\ufb01\ufb02\ufb03\ufb04", 0x1B))
DASHES_POINTS = frozenset(map(ord, "{|:;"))
"""Codes of the dashes of old TeX fonts of text, and of the period and comma of their fonts of mathematical letters."""
LIGATURE = 0x1B
"""Signs of TeX's text fonts in the T1 encoding; other control codes of text are letters that the file does not name."""
INTEGRALS = re.compile("esint", re.IGNORECASE)
"""Fonts of integrals; the one sign of theirs that is known is the plain one."""
BULLET = 0x88
"""Code of the bullet in TeX's companion fonts."""
EXTENSION = FAMILIES[0][0]
"""Fonts of large operators and brackets; their signs hang below the baseline."""
SUITS, HEARTS_SPADES = frozenset({0x2662, 0x2663, 0x2666}), frozenset({0x2660, 0x2661, 0x2664, 0x2665})
BRACES = {0xB6: 0x7B, 0x2663: 0x7C, 0x2662: 0x7D, 0x2666: 0x7D}
"""Braces and the bar under the names of the signs that TeX has at their codes; cards have four suits."""
PIECES = re.compile("[\uf8e5-\uf8fe\u239b-\u23ae]")
"""Pieces of tall brackets that have a value of their own."""
ACCENTS = {
    0x5E: "\u0302", 0x60: "\u0300", 0x7E: "\u0303", 0xA8: "\u0308", 0xAF: "\u0304", 0xB4: "\u0301", 0xB8: "\u0327",
    0x2C6: "\u0302", 0x2C7: "\u030c", 0x2C9: "\u0304", 0x2D8: "\u0306", 0x2D9: "\u0307", 0x2DA: "\u030a",
    0x2DC: "\u0303", 0x2DD: "\u030b", 0x20D7: "\u20d7", 0x2F: NEGATION, 0x338: NEGATION,
}  # fmt: skip
"""Accents that stand by themselves, and the combining ones."""
RELATIONS = frozenset(
    "=\u2261\u2208\u220b\u2282\u2283\u2286\u2287\u223c\u2248\u2243<>\u2264\u2265|\u2225\u2203\u2190\u2192\u21d2\u21d4"
)
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

Font = Callable[[int], str]
"""Name of a character's font."""


def name_signs(textpage: Any, codes: list[int], font: Font) -> None:
    """Codes of TeX's fonts replaced by the signs that they stand for, those that are no sign by GARBLED."""
    braced = not SUITS.isdisjoint(codes) and HEARTS_SPADES.isdisjoint(codes)
    for index, code in enumerate(codes):
        if braced and code in BRACES and FAMILIES[1][0].search(font(index)):
            codes[index] = BRACES[code]
            continue
        if code > 0x7F:
            if PIECES.match(chr(code)):
                codes[index] = ord(GARBLED)
            elif code == BULLET:
                codes[index] = 0x2022
            elif code in ACCENTS and INTEGRALS.search(font(index)):
                codes[index] = 0x222B if code == 0x2C6 else ord(GARBLED)
            continue
        if not raw.FPDFText_HasUnicodeMapError(textpage, index) and code:
            if code in FOREIGN and STRICT.search(font(index)):
                codes[index] = ord(SYMBOL[code])
                if codes[index] == MAPSTO and codes[index + 1 : index + 2] == [ARROW_CODE]:
                    codes[index + 1] = HOLE
            continue
        name = font(index)
        signs = next((signs for family, signs in FAMILIES if family.search(name)), NAMELESS)
        if signs is not NAMELESS or code < 0x20:
            lone = signs is NAMELESS and code >= LIGATURE and not _is_in_word(codes, index, name, font)
            codes[index] = ord(GARBLED if lone else signs.get(code, GARBLED))
            if codes[index] == MAPSTO and codes[index + 1 : index + 2] == [ARROW]:
                codes[index + 1] = HOLE
        elif _is_unclear(textpage, codes, index, name):
            codes[index] = ord(GARBLED)


def _is_in_word(codes: Sequence[int], index: int, name: str, font: Font) -> bool:
    """Whether a letter of the same font stands beside a ligature: in fonts of symbols its code is another sign."""
    beside = [place for place in (index - 1, index + 1) if 0 <= place < len(codes) and chr(codes[place]).isalpha()]
    return any(font(place) == name for place in beside)


def _is_unclear(textpage: Any, codes: Sequence[int], index: int, name: str) -> bool:
    """Whether the code of an unknown font need not be its letter: within a word of another font, or for old TeX fonts.

    Those have no name, and their dashes, periods and commas the codes of other signs, each font its own.
    """
    beside = [place for place in (index - 1, index + 1) if 0 <= place < len(codes)]
    if codes[index] <= 0x20:
        return False
    if not name:
        return codes[index] in DASHES_POINTS and all(chr(codes[place]).isalnum() for place in beside)
    return any(chr(codes[place]).isalpha() and not raw.FPDFText_HasUnicodeMapError(textpage, place) for place in beside)


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

    def over(self, signs: Sequence[str], first: int) -> str:
        """Characters from the index `first` on, as one text with their accents."""
        text = "".join([sign + self.of.get(place, "") for place, sign in enumerate(signs, first)])
        return unicodedata.normalize("NFC", text)
