"""Right-to-left text (Hebrew, Arabic): characters in the order in which they are printed, and text in reading order.

PDFium turns the parts of a line around one by one, by the class of their characters, which tears formulas apart. Here a
line is read from left to right as it is printed, and its text is turned as a whole at the end, after the Unicode
bidirectional algorithm: words of Latin letters, numbers and formulas keep their direction with all that is within them.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corpus.read.characters import BLANKS

LEFTWARD = re.compile("[\u0590-\u07ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""Signs of the scripts that are written from right to left."""
_PAIRS = (
    "()[]{}<>\u00ab\u00bb\u2039\u203a\u2208\u220b\u2209\u220c\u2264\u2265\u2266\u2267\u226a\u226b\u227a\u227b"
    "\u2282\u2283\u2284\u2285\u2286\u2287\u228f\u2290\u22a2\u22a3\u22b2\u22b3\u2308\u2309\u230a\u230b\u223c\u223d"
    "\u27e8\u27e9\u27ea\u27eb\u2a7d\u2a7e\u3008\u3009\u300a\u300b"
)
MIRRORED = {ord(sign): ord(_PAIRS[place ^ 1]) for place, sign in enumerate(_PAIRS)}
"""The sign that each is in a mirror."""
OPENING, CLOSING = "([{\u27e8\u230a\u2308", ")]}\u27e9\u230b\u2309"
_CLASSES = {"L": "L", "R": "R", "AL": "R", **dict.fromkeys(("AN", "EN", "NSM", "CS", "ES", "ET", "BN"), "weak")}
_MARKUP = re.compile(r"(?:[\^_]|\\[a-z]+(?:\[[^\]]*\])?)(?=\{)|(?<=\})(?=\{)")
BEFORE = re.compile(r"[\u00b1\u2212\u2213+\-\u221a\u2202\u2207\u2211\u220f\u222b\u00ac\u2200\u2203|\u2016$\\#]")
BEHIND = re.compile(r"[|\u2016'\u2032%\u00b0]")
"""Signs that belong to the formula or number that they touch."""
WORD = re.compile(r"[^\W\d_]{2,}")
COMMAND = re.compile(r"\\[a-z]+")
MARKS = frozenset(code for code in range(0x590, 0x800) if unicodedata.combining(chr(code)))
"""Points and other signs above or below letters."""
SAME_LINE = 3.0
"""Distance of the baselines of parts of one line, points."""

Edges = Callable[[int], tuple[float, float]]
"""Left and right edge of a character, points."""
BLANK = 0.1
"""Least gap between two characters that stands for a blank, in units of their height."""


def is_leftward(text: str) -> bool:
    """Whether most letters of a text are written from right to left; single ones are those of formulas."""
    if text.isascii() or not LEFTWARD.search(text):
        return False
    words = WORD.findall(COMMAND.sub("", text))
    return 2 * sum(len(word) for word in words if LEFTWARD.search(word)) > sum(map(len, words))


def runs_leftward(places: Sequence[tuple[float, float, float]]) -> bool:
    """Whether parts of lines (left and right edge, height) follow each other from right to left."""
    level = [(a, b) for a, b in pairwise(places) if abs(a[2] - b[2]) < SAME_LINE]
    return sum(b[1] <= a[0] for a, b in level) > sum(b[0] >= a[1] for a, b in level)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """A character with ink."""

    code: int
    """As it is drawn."""
    index: int
    """Its place in the page's text."""
    left: float
    """Left edge, points."""
    right: float
    """Right edge, points."""


def printed_order(line: Sequence[tuple[int, int]], edges: Edges, size: float) -> list[tuple[int, int]]:
    """(code, index) of a line's characters from left to right, as they are drawn; blanks stand where the gaps are."""
    turned = edges(line[0][1])[0] > edges(line[-1][1])[0]
    drawn = zip(_undone([code for code, _ in line], turned), line, strict=True)
    words: list[list[_Sign]] = [[]]
    marks: list[_Sign] = []
    for code, (written, index) in drawn:
        left, right = edges(index)
        sign = _Sign(code=code, index=index, left=left, right=right)
        if written in BLANKS:
            words.append([])
        elif code in MARKS:
            marks.append(sign)
        elif words[-1] and _kind(code) == _kind(words[-1][-1].code) == "R":
            words[-1].append(sign)
        else:
            words.append([sign])
    points = _with_letters(marks, [sign for word in words for sign in word])
    blank = next((index for code, index in line if code in BLANKS), None)
    made: list[tuple[int, int]] = []
    end: float | None = None
    for sign in _from_left(words):
        if end is not None and blank is not None and sign.left - end > BLANK * size:
            made.append((0x20, blank))
        made += [(one.code, one.index) for one in (sign, *points.get(sign.index, ()))]
        end = sign.right if end is None else max(end, sign.right)
    return made


def _from_left(words: Sequence[Sequence[_Sign]]) -> list[_Sign]:
    """Signs from left to right; letters of one word in the order of the file, as those of Arabic overlap."""
    turned = [word[::-1] if word[0].left > word[-1].left else word for word in words if word]
    return [sign for word in sorted(turned, key=lambda word: min(sign.left for sign in word)) for sign in word]


def _with_letters(marks: Sequence[_Sign], letters: Sequence[_Sign]) -> dict[int, list[_Sign]]:
    """Points by the letter that they stand over, or under."""
    found: dict[int, list[_Sign]] = {}
    for mark in marks:
        middle = mark.left + mark.right
        nearest = min(letters, key=lambda letter: abs(letter.left + letter.right - middle), default=mark)
        found.setdefault(nearest.index, []).append(mark)
    return found


def _kind(code: int) -> str:
    return _CLASSES.get(unicodedata.bidirectional(chr(code)), "neutral")


def _undone(codes: Sequence[int], turned: bool) -> list[int]:
    """Codes with the signs turned back that PDFium has mirrored: those behind letters written from right to left.

    `turned` says whether it has put the parts of the line from right to left.
    """
    kinds = [_kind(code) for code in codes]
    current = "R" if turned else "L"
    made = []
    for code, kind in zip(codes, kinds, strict=True):
        current = kind if kind in "LR" else current
        made.append(MIRRORED.get(code, code) if kind == "neutral" and current == "R" else code)
    return made


def reading_order(text: str, leftward: bool) -> str:
    """Text of a line that stands as it is printed, in the order in which it is read.

    `leftward` says whether the page is written from right to left; elsewhere only some words or lines are.
    """
    if text.isascii() or not LEFTWARD.search(text):
        return text
    units = _units(text)
    if leftward or is_leftward(text):
        return _turned(units)
    first = next(place for place, unit in enumerate(units) if LEFTWARD.search(unit))
    made, run, waiting = units[:first], list[str](), list[str]()
    for unit in units[first:]:
        if LEFTWARD.search(unit):
            run += [*waiting, unit]
            waiting = []
        elif unit[0].isalpha() or len(unit) > 2:
            made += [_turned(run), *waiting, unit]
            run, waiting = [], []
        elif run:
            waiting.append(unit)
        else:
            made.append(unit)
    return "".join([*made, _turned(run), *waiting])


def _units(text: str) -> list[str]:
    """Characters with their accents; a script, root or fraction is one unit."""
    units: list[str] = []
    place = 0
    while place < len(text):
        stop = place + 1
        if markup := _MARKUP.match(text, place):
            stop = _closed(text, markup.end())
        while stop < len(text) and unicodedata.combining(text[stop]):
            stop += 1
        units.append(text[place:stop])
        place = stop
    return units


def _closed(text: str, place: int) -> int:
    """One past the brace that closes the one at a place."""
    depth = 0
    for stop in range(place, len(text)):
        depth += (text[stop] == "{") - (text[stop] == "}")
        if not depth:
            return stop + 1
    return len(text)


def _turned(units: Sequence[str]) -> str:
    """Units from right to left, but the formulas, numbers and words among them from left to right."""
    kept = [False] * len(units)
    for start, stop in _rightward(units):
        kept[start:stop] = [True] * (stop - start)
    made: list[str] = []
    signs: list[int] = []
    place = len(units)
    while place:
        stop = place
        while place and kept[place - 1]:
            place -= 1
        if place < stop:
            made.append("".join(units[place:stop]))
            continue
        place -= 1
        unit = units[place]
        # Relations mean what is drawn: formulas are not turned.
        if unit in _PAIRS and unicodedata.category(unit)[0] == "P":
            signs.append(len(made))
            unit = chr(MIRRORED[ord(unit)])
        made.append(unit)
    _paired(made, signs)
    return "".join(made)


def _paired(made: list[str], signs: Sequence[int]) -> None:
    """Brackets turned so that they open before they close: some files have those that are meant, not those drawn."""
    unmatched: list[int] = []
    for place in signs:
        partner = chr(MIRRORED[ord(made[place])])
        if not unmatched or made[unmatched[-1]] != partner:
            unmatched.append(place)
            continue
        first = unmatched.pop()
        made[first], made[place] = sorted((made[first], made[place]))


def _rightward(units: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of the stretches that are read from left to right, with the brackets and signs that belong to them."""
    strong = [
        place
        for place, unit in enumerate(units)
        if unit[0].isdecimal() or ((unit[0].isalpha() or len(unit) > 1) and not LEFTWARD.match(unit))
    ]
    runs: list[tuple[int, int]] = []
    for place in strong:
        if runs and _is_one(units, runs[-1][1] - 1, place):
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    before = 0
    for start, stop in runs:
        start, stop = _widened(units, start, stop, before)
        before = stop
        yield start, stop


def _is_one(units: Sequence[str], one: int, other: int) -> bool:
    """Whether two strong units are of one stretch: no leftward letter, and no mark of a list between them.

    A comma stands at the end of what it follows; numbers that are read from right to left have it at their left.
    """
    between = "".join(units[one + 1 : other])
    if LEFTWARD.search(between):
        return False
    listed = re.match(r" +[,;:.]", between)
    numbers = units[one][0].isdecimal() and units[other][0].isdecimal()
    return not listed and not (numbers and between.isspace())


def _widened(units: Sequence[str], start: int, stop: int, least: int) -> tuple[int, int]:
    """A stretch with the signs and brackets at its ends that are its own."""
    while start > least and BEFORE.match(units[start - 1]):
        start -= 1
    while stop < len(units) and BEHIND.match(units[stop]):
        stop += 1
    left, right = (units[start - 1] if start > least else ""), (units[stop] if stop < len(units) else "")
    inner = "".join(units[start:stop])
    depths = [sum((sign in OPENING) - (sign in CLOSING) for sign in inner[:end]) for end in range(len(inner) + 1)]
    brackets = OPENING + CLOSING
    if left and right and left in brackets and right in brackets and ("," in inner or left in OPENING):
        return start - 1, stop + 1
    if right and right in CLOSING and depths[-1] > 0:
        return _widened(units, start, stop + 1, least)
    if left and left in OPENING and min(depths) < 0:
        return _widened(units, start - 1, stop, least)
    return start, stop
