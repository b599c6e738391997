"""Correction of characters in TeX's fonts whose Unicode value is missing, or is only their code in the font.

Many files give the characters of these fonts no Unicode value; PDFium then returns their codes in the font, which would
read as other letters (`hu, vi` for angle brackets). Other files give the codes as Unicode values. A control code that
is printed is a sign, that is a character, in any font: none is lost. The tables follow Knuth, The TeXbook, appendix F,
and the Cork encoding.
"""

import ctypes
import re
from functools import lru_cache
from typing import Any

import pypdfium2.raw as raw

from corpus.read.fonts import Fonts, bind_by_address

GARBLED = "\ue0ff"
"""Mark after text that cannot be read as one formula; it becomes `doubt.MARK` in the Markdown."""
ROOT = 0x221A
HOLE = 0x200B
"""Code of a character that was removed, such as an accent that was composed with its letter."""
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
"""Signs of the extension font, without pieces of tall brackets and of horizontal braces: these span several lines."""
LIGATURES = "\ufb00\ufb01\ufb02\ufb03\ufb04"
OT1 = dict(
    enumerate(
        f"{LETTERS[:11]}{LIGATURES}\u0131\u0237`\u00b4\u02c7\u02d8\u00af\u02da\u00b8"
        "\u00df\u00e6\u0153\u00f8\u00c6\u0152\u00d8"
    )
)
"""Signs of the control codes in TeX's old text fonts."""
T1 = {
    **{code: chr(code) for code in (*range(0x20, 0x7F), *range(0xC0, 0x100))},
    **dict(enumerate("`\u00b4\u02c6\u02dc\u00a8\u02dd\u02da\u02c7\u02d8\u00af\u02d9\u00b8\u02db\u201a\u2039\u203a"
                     f"\u201c\u201d\u201e\u00ab\u00bb\u2013\u2014\u200c\u2080\u0131\u0237{LIGATURES}")),
    **dict(enumerate("-"
                     "\u0102\u0104\u0106\u010c\u010e\u011a\u0118\u011e\u0139\u013d\u0141\u0143\u0147\u014a\u0150\u0154"
                     "\u0158\u015a\u0160\u015e\u0164\u0162\u0170\u016e\u0178\u0179\u017d\u017b\u0132\u0130\u0111\u00a7"
                     "\u0103\u0105\u0107\u010d\u010f\u011b\u0119\u011f\u013a\u013e\u0142\u0144\u0148\u014b\u0151\u0155"
                     "\u0159\u015b\u0161\u015f\u0165\u0163\u0171\u016f\u00ff\u017a\u017e\u017c\u0133\u00a1\u00bf\u00a3",
                     0x7F)),
    **{0xD7: "\u0152", 0xDF: "\u1e9e", 0xF7: "\u0153", 0xFF: "\u00df"},
}  # fmt: skip
"""Signs of the codes in TeX's text fonts with the Cork encoding."""
FAMILIES: tuple[tuple[re.Pattern[str], dict[int, str]], ...] = (
    (re.compile(r"cmex|math-?extension|mathex|txex|pxex", re.IGNORECASE), EXTENSION_SIGNS),
    (re.compile(r"cmb?sy|math-?symbols|mathsy|txsy\b|pxsy\b", re.IGNORECASE), dict(enumerate(SYMBOL))),
    (re.compile(r"cmmi|math-?italic|txmi\b|pxmi\b", re.IGNORECASE), dict(enumerate(LETTERS))),
    (re.compile(r"msam", re.IGNORECASE),
     {0x03: "\u25a1", 0x04: "\u25a0", 0x26: "\u2273", 0x2E: "\u2272", 0x36: "\u2a7d", 0x3E: "\u2a7e"}),
    (re.compile(r"msbm", re.IGNORECASE),
     {**{code: chr(code) for code in range(0x41, 0x5B)}, **dict(enumerate("\u2270\u2271\u226e\u226f", 0x02)),
      **dict(enumerate("\u228a\u228b\u2288\u2289\u2226\u2224", 0x28)), 0x39: "\u219b", 0x3B: "\u21cf",
      0x3F: "\u2205", 0x40: "\u2204", 0x6E: "\u22c9", 0x6F: "\u22ca", 0x72: "\u2216", 0x7B: "\u03f0", 0x7C: "k",
      0x7D: "\u210f", 0x7E: "\u210f"}),
    (re.compile(r"^(?:TeX-)?cm(?:r|b|bx|ti|sl|ss|csc|bxti|bxsl|ssbx)\d", re.IGNORECASE), OT1),
    (re.compile(r"^(?:TeX-)?(?:x?tipa|tips|tipx)[a-z]*\d", re.IGNORECASE), {}),
    (re.compile(r"^(?:ec|sf)(?:rm|bx|ti|sl|ss|cc|bi|xc|sx|bl|si)\d|^EuropeanComputerModern-(?!.*Typewriter)"), T1),
)  # fmt: skip
"""Font families by patterns of their names, with the signs of their codes; phonetic signs are unknown."""
STRICT = re.compile(r"^(?:TeX-)?(?:(?:cm(?:b?sy|mib?|ex)|msam)|(?:x?tipa|tips|tipx)[a-z]*)\d", re.IGNORECASE)
FOREIGN = frozenset(map(ord, "!?<>=;:0123456789"))
"""Unicode values that no sign of TeX's mathematical fonts has: a file with them gives codes as values."""
LARGE = re.compile(r"(?<![^\W_])[P-Zp-s](?![^\W_])")
"""Letters that are codes of large operators and roots, as the font of these has no letters."""
CONTROLS = frozenset((*range(1, 0x20), *range(0x7F, 0xA0)))
REPEATED = {**dict(enumerate(range(10), 0xA1)), **dict(enumerate(range(10, 33), 0xAD)), 0xC4: 0x7F}
"""Control codes of TeX's fonts by the alternative codes that fonts in Adobe's format have for them."""
DASHES = dict(enumerate("\u2013\u2014", 0x15))
OF_TEXT = {**DASHES, **dict(enumerate(LIGATURES, 0x0B)), **dict(enumerate(LIGATURES, 0x1B))}
"""Signs of control codes in TeX's text fonts of either encoding; other control codes are letters without a value."""
OLD = frozenset({0x0B, 0x0C, 0x0E, 0x0F})
"""Codes of ligatures in the old encoding, which has accents at the codes of the Cork encoding's dashes."""
PROSE = re.compile(r"[a-z]{5,}")
"""Consecutive letters, as in words and not in formulas."""
LETTERS_PROBED, SPREAD = 4, 0.1
"""Least number of letters that identify a monospaced font, and the largest relative spread of their widths."""
SYMBOLIC = re.compile(r"symbol|dingbat|wingding|math|awesome", re.IGNORECASE)
DASHES_POINTS = frozenset(map(ord, "{|:;"))
"""Codes of the dashes of old TeX fonts of text, and of the period and comma of their fonts of mathematical letters."""
MATH_LETTERS = re.compile(r"^(?:TeX-)?(?:cmmi|LMMathItalic)\d", re.IGNORECASE)
LATIN = frozenset(range(0xA1, 0x100)) - {0xB5}
"""Unicode values that no sign in fonts of mathematical letters has."""
INTEGRALS = re.compile("esint", re.IGNORECASE)
"""Fonts of integrals; only the plain integral of these is known."""
RETURN = 0x21B5
"""Sign of the return key, the Unicode value that Apple's programs give to the ligature ff in some fonts."""
ORNAMENTS = {
    **dict(enumerate("0123456789", 0x2735)), **dict(enumerate("ABCDEF", 0x2746)), **dict(enumerate("RST", 0x2758)),
    0x2751: "K", 0x2756: "O", 0x276F: "U", **dict(enumerate("VWX", 0x2771)), 0x2768: "Y", 0x2769: "Z",
}  # fmt: skip
"""Characters by the ornament as which PDFium reads them: TeX names bitmaps by codes, such as a67, like ornaments."""
BULLET = 0x88
"""Code of the bullet in TeX's companion fonts."""
EXTENSION = FAMILIES[0][0]
"""Fonts of large operators and brackets; their signs hang below the baseline."""
SUITS, HEARTS_SPADES = frozenset({0x2662, 0x2663, 0x2666}), frozenset({0x2660, 0x2661, 0x2664, 0x2665})
BRACES = {0xB6: 0x7B, 0x2663: 0x7C, 0x2662: 0x7D, 0x2666: 0x7D}
"""Braces and the bar by TeX's symbols at their codes, which some files give as values; all suits mean cards."""
PIECES = re.compile("[\uf8e5-\uf8fe\u239b-\u23ae]")
"""Pieces of tall brackets that have Unicode values."""
ACCENTS = {
    0x5E: "\u0302", 0x60: "\u0300", 0x7E: "\u0303", 0xA8: "\u0308", 0xAF: "\u0304", 0xB4: "\u0301", 0xB8: "\u0327",
    0x2C6: "\u0302", 0x2C7: "\u030c", 0x2C9: "\u0304", 0x2D8: "\u0306", 0x2D9: "\u0307", 0x2DA: "\u030a",
    0x2DC: "\u0303", 0x2DD: "\u030b", 0x20D7: "\u20d7", 0x2F: NEGATION, 0x338: NEGATION,
}  # fmt: skip
"""Combining accents by the codes of spacing accents."""
RELATIONS = frozenset(
    "=\u2261\u2208\u220b\u2282\u2283\u2286\u2287\u223c\u2248\u2243<>\u2264\u2265|\u2225\u2203\u2190\u2192\u21d2\u21d4"
)


_is_unmapped = bind_by_address(raw.FPDFText_HasUnicodeMapError, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


@lru_cache(maxsize=1024)
def signs_of(name: str) -> dict[int, str] | None:
    """Signs of a TeX font by their codes, given the font's name; None for any other font."""
    return next((signs for family, signs in FAMILIES if family.search(name)), None)


class Signs:
    """Corrector of one page's characters. Fonts that give codes as Unicode values are added to the book's `coded`."""

    def __init__(self, textpage: Any, codes: list[int], fonts: Fonts, coded: set[str]) -> None:
        self.textpage, self.codes, self.face, self.coded = textpage, codes, fonts.face, coded
        self.name = lambda index: fonts.of(index)[0]
        self.edges = [ctypes.c_double() for _ in range(4)]
        self.prose: set[str] | None = None
        self.typewriters: dict[str, bool] = {}
        self.originals = list(codes)

    def replace_codes(self) -> None:
        """Replace the font codes on the page by the signs that they mean, and unknown codes by GARBLED."""
        originals, page, is_unmapped = self.originals, ctypes.cast(self.textpage, ctypes.c_void_p), _is_unmapped
        for index, code in enumerate(originals):
            if code > 0x7E:
                self._replace_high(index, code)
            elif code in CONTROLS:
                self._replace_control(index, code)
            elif is_unmapped(page, index) or not code:
                signs = signs_of(self.name(index))
                if not code or (signs is not None and signs is not OT1 and signs is not T1):
                    self._set(index, (signs or {}).get(code, GARBLED))
                elif self._is_unclear(index, code):
                    self._set(index, GARBLED)
            elif code in FOREIGN:
                self._replace_foreign(index, code)
        for match in LARGE.finditer("".join(map(chr, originals))):
            if EXTENSION.search(self.name(match.start())):
                self._replace_foreign(match.start(), originals[match.start()])
        # Fonts that give codes as Unicode values.
        for index, code in enumerate(originals if self.coded else []):
            if 0x20 < code < 0x100 and self.codes[index] in (code, ord(GARBLED)) and self.name(index) in self.coded:
                signs = signs_of(self.name(index)) or {}
                self._set(index, signs.get(code if signs is T1 else REPEATED.get(code, code), GARBLED))
        if not SUITS.isdisjoint(originals) and HEARTS_SPADES.isdisjoint(originals):
            for index, code in enumerate(originals):
                if code in BRACES and FAMILIES[1][0].search(self.name(index)):
                    self.codes[index] = BRACES[code]

    def _set(self, index: int, sign: str) -> None:
        codes = self.codes
        if codes[index] == HOLE:
            return
        codes[index] = ord(sign)
        # Drop the arrow of this sign, which is a separate character in the font.
        if codes[index] == MAPSTO and codes[index + 1 : index + 2] in ([ARROW], [ARROW_CODE]):
            codes[index + 1] = HOLE

    def _replace_control(self, index: int, code: int) -> None:
        """Replace a control code that has ink, and is not a line end, space or hyphen that PDFium generated."""
        page, edges = self.textpage, self.edges
        if not raw.FPDFText_HasUnicodeMapError(page, index):
            if raw.FPDFText_IsGenerated(page, index) or raw.FPDFText_IsHyphen(page, index):
                return
            has_box = raw.FPDFText_GetCharBox(page, index, *edges)
            if not has_box or edges[1].value <= edges[0].value or edges[3].value <= edges[2].value:
                return
        self._set(index, self._control_sign(index, code))

    def _control_sign(self, index: int, code: int) -> str:
        """Sign of a printed control code; GARBLED if it is unknown."""
        if code == BULLET:
            return "\u2022"
        name = self.name(index)
        signs = signs_of(name)
        if signs is not None:
            if not raw.FPDFText_HasUnicodeMapError(self.textpage, index) and (signs is T1 or STRICT.search(name)):
                self.coded.add(name)
            return signs.get(code, GARBLED)
        if code in DASHES and self._has_only_dashes(index):
            return DASHES[code]
        face = self.face(index)
        if code < 0x20 and self._is_prose(index):
            if code in DASHES:
                # The font has no dashes if it has a code that is a ligature of the old encoding.
                is_known = not any(other in OLD and self.face(n) == face for n, other in enumerate(self.originals))
            else:
                is_known = self._is_in_word(index)
            return OF_TEXT.get(code, GARBLED) if is_known else GARBLED
        if code >= 0x80 and not SYMBOLIC.search(name):
            near = self._neighbours(index, 2)
            # A letter or digit of the same font is next to it, or only a space or mark away.
            if any(chr(self.codes[place]).isalnum() and self.face(place) == face for place in near):
                return bytes([code]).decode("cp1252", "replace").replace("\ufffd", GARBLED)
        return GARBLED

    def _replace_high(self, index: int, code: int) -> None:
        if code in CONTROLS:
            self._replace_control(index, code)
        elif code == RETURN and self._is_in_word(index):
            self._set(index, LIGATURES[0])
        elif code in ORNAMENTS and not self.name(index):
            self._set(index, ORNAMENTS[code])
        elif PIECES.match(chr(code)) or (code in LATIN and MATH_LETTERS.search(self.name(index))):
            self._set(index, GARBLED)
        elif code in ACCENTS and INTEGRALS.search(self.name(index)):
            self._set(index, "\u222b" if code == 0x2C6 else GARBLED)

    def _replace_foreign(self, index: int, code: int) -> None:
        """Replace a value that no sign of its font has: it is a code, as are all values of a font of unknown signs."""
        name = self.name(index)
        if STRICT.search(name):
            signs = signs_of(name) or {}
            if not signs:
                self.coded.add(name)
            self._set(index, signs.get(code, GARBLED))

    def _neighbours(self, index: int, reach: int = 1) -> list[int]:
        """Indices of the characters around a character, up to the distance `reach`."""
        places = range(max(0, index - reach), min(len(self.codes), index + reach + 1))
        return [place for place in places if place != index]

    def _is_in_word(self, index: int) -> bool:
        """Whether a letter of the same font is next to a ligature's code, which is another sign in symbol fonts."""
        face = self.face(index)
        return any(chr(self.codes[place]).isalpha() and self.face(place) == face for place in self._neighbours(index))

    def _has_only_dashes(self, index: int) -> bool:
        """Whether a character's font has only dashes at the beginning of lines on this page, as before items."""
        face = self.face(index)
        inked = [place for place, code in enumerate(self.originals) if code > 0x20 or code in DASHES]
        places = [place for place in inked if self.face(place) == face]
        starts = [not place or self.originals[place - 1] in (0x0A, 0x0D) for place in places]
        return all(starts) and all(self.originals[place] in DASHES for place in places)

    def _is_prose(self, index: int) -> bool:
        """Whether a character's font prints words on this page; codes of mathematical letters are other signs."""
        if self.prose is None:
            self.prose = {self.face(match.start() + 2) for match in PROSE.finditer("".join(map(chr, self.codes)))}
        return self.face(index) in self.prose

    def _is_typewriter(self, index: int) -> bool:
        """Whether the letters of a character's font have one width on this page."""
        face, rect = self.face(index), raw.FS_RECTF()
        if face not in self.typewriters:
            places = {
                code: place for place, code in enumerate(self.codes) if chr(code).isalpha() and self.face(place) == face
            }
            widths = []
            for place in places.values():
                raw.FPDFText_GetLooseCharBox(self.textpage, place, rect)
                widths.append(rect.right - rect.left)
            self.typewriters[face] = len(widths) >= LETTERS_PROBED and max(widths) < (1 + SPREAD) * min(widths)
        return self.typewriters[face]

    def _is_unclear(self, index: int, code: int) -> bool:
        """Whether a code without a known sign may be another sign: within a word of another font, or in old TeX fonts.

        Old TeX fonts have no name, and each has other codes for its dashes, periods and commas.
        """
        if code <= 0x20:
            return False
        neighbours = [(place, chr(self.codes[place])) for place in self._neighbours(index)]
        if not self.name(index):
            is_between = code in DASHES_POINTS and all(sign.isalnum() for _, sign in neighbours)
            return is_between and not self._is_typewriter(index)
        return any(
            sign.isalpha() and not raw.FPDFText_HasUnicodeMapError(self.textpage, place) for place, sign in neighbours
        )
