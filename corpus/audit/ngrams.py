"""Words of a text, word n-grams, and what two texts have in common, exactly."""

import hashlib
import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

NORMALISER = "nfkc-casefold-nfkc-visible-skeleton-hyphens-latex-nopunct-cjk-2"
LONG_WORD = 1024
"""A longer word stands for itself by its digest, characters: nothing then grows with what somebody pasted."""
GLUED = "'.$"
"""Characters that are taken out of a word: don't, U.S., 3.14, $x$. All other punctuation parts words, so that
`f(x)` and `f( x )` are the same words."""
PARTING = "".join(character for character in string.punctuation if character not in GLUED)
# Scripts without blanks: every character counts as a word, else a page would be one.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Without this NFKC would make one word of a letter and its raised number, which LaTeX parts by a caret.
_SCRIPTS = re.compile("[\u00b2\u00b3\u00b9\u2070-\u209c]+")
_SPACING = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|q?quad|,|;|!|:|>)(?![A-Za-z])")
# The hyphen stands first, so that the search for it is as fast as for a single character.
_HYPHEN = re.compile(r"-(?<=[^\W\d_]{2}-)\s*(?=[^\W\d_]{2})")
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
# Vowel points of Hebrew and Arabic, and the stroke that only lengthens a word: most texts are printed without.
_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u0652\u0670]")
_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u00b4"
_HYPHENS = "\u2010\u2011\u2043"
_LOOK_ALIKES = dict(
    zip(
        "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458\u04bb\u04cf\u0501\u051b\u051d"
        "\u06a9\u06cc\u0649\u03b1\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0251\u0261\u04af",
        "abekmhopctyxsijhldqw\u0643\u064a\u064aaikvoptuxiagy",
        strict=True,
    )
)
"""Folded letters and the Latin letters that they look like, after the confusables of Unicode TS 39; Persian letters and
the Arabic ones."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))


class _Folds(dict[int, str]):
    """Replacements of single characters, found by their categories when they first occur."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _fold(chr(code))
        return found


def _fold(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" or _POINTS.match(character) or _INVISIBLE.match(character) or character in _APOSTROPHES:
        return ""
    if character in _HYPHENS:
        return "-"
    # LaTeX is written in ASCII, of which the punctuation goes last.
    if character.isspace() or (category[0] in "PSZ" and not character.isascii()):
        return " "
    if _UNSPACED.match(character):
        return f" {character} "
    return _LOOK_ALIKES.get(character, character)


_FOLDS = _Folds()
_FOREIGN = re.compile("([^\x00-\x7f]+)")
_KEPT_CHARS, _KEPT_PIECES = 32, 1 << 16


def _folded(text: str) -> str:
    """The text with its pieces folded that are not ASCII; a mark joins the letter before it, and nothing behind it."""
    parts = _FOREIGN.split(text)
    for place in range(1, len(parts), 2):
        piece = parts[place]
        if unicodedata.combining(piece[0]):
            piece, parts[place - 1] = parts[place - 1][-1:] + piece, parts[place - 1][:-1]
        parts[place] = _kept_fold(piece) if len(piece) <= _KEPT_CHARS else _fold_piece(piece)
    return "".join(parts)


def _fold_piece(piece: str) -> str:
    spaced = _SCRIPTS.sub(r" \g<0> ", piece)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", spaced).casefold()).translate(_FOLDS)


_kept_fold = lru_cache(maxsize=_KEPT_PIECES)(_fold_piece)
_ASCII = str.maketrans(PARTING, " " * len(PARTING), GLUED)


def prepared(text: str) -> str:
    """The text in which ASCII case and punctuation are all that its words still lack.

    NFKC stands twice because folding the case can undo it. Look-alike letters become Latin ones in every text, also in
    a Russian or Greek one: both sides of a comparison change alike. Words that are broken at a line's end are joined.
    """
    if not text.isascii():
        text = _folded(text)
    if "\\" in text:
        text = _SPACING.sub(" ", text)
    return _HYPHEN.sub("", text) if "-" in text else text


def words(text: str) -> list[str]:
    """Normalised words."""
    found = prepared(text).casefold().translate(_ASCII).split()
    return [short(word) for word in found] if len(text) > LONG_WORD else found


def short(word: str) -> str:
    """The word, or its beginning and digest where it is longer than any word."""
    if len(word) <= LONG_WORD:
        return word
    return word[:16] + hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()


def grams(tokens: Sequence[str], n: int) -> list[str]:
    """Word n-grams in order, as strings; one whole-text shingle for a text of fewer than n words."""
    if len(tokens) < n:
        return [" ".join(tokens)] if tokens else []
    return [" ".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A common run of words in both texts, by word numbers."""

    first: int
    """Where it begins in the first text."""
    second: int
    """Where it begins in the second text."""
    length: int
    """Words; 0 when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Overlap of two texts, over sets of n-grams."""

    num_common: int
    """Distinct n-grams in both."""
    containment_first: float
    """Share of the first text's n-grams found in the second."""
    containment_second: float
    """Share of the second text's n-grams found in the first."""
    jaccard: float
    """Jaccard similarity of the two sets."""
    run: Span
    """The longest common run; runs of fewer than n words do not count."""


NOTHING = Shared(
    num_common=0,
    containment_first=0.0,
    containment_second=0.0,
    jaccard=0.0,
    run=Span(first=0, second=0, length=0),
)


def compare(first: Sequence[str], second: Sequence[str], n: int) -> Shared:
    """The two texts' words compared. A text of fewer than n words is one shingle, looked for at its own length.

    A short text inside a longer one covers none of the longer one's n-grams: it counts on its own side only.
    """
    if not first or not second:
        return NOTHING
    if min(len(first), len(second)) < n:
        return _compare_short(first, second, n)
    ours, theirs = set(grams(first, n)), set(grams(second, n))
    common = len(ours & theirs)
    if not common:
        return NOTHING
    return Shared(
        num_common=common,
        containment_first=common / len(ours),
        containment_second=common / len(theirs),
        jaccard=common / (len(ours) + len(theirs) - common),
        run=longest_run(first, second, n),
    )


def _compare_short(first: Sequence[str], second: Sequence[str], n: int) -> Shared:
    turned = len(first) < len(second)
    inner, outer = (first, second) if turned else (second, first)
    size = len(inner)
    place = next((i for i in range(len(outer) - size + 1) if list(outer[i : i + size]) == list(inner)), None)
    if place is None:
        return NOTHING
    whole = 1.0 if min(n, len(outer)) == size else 0.0
    return Shared(
        num_common=1,
        containment_first=1.0 if turned else whole,
        containment_second=whole if turned else 1.0,
        jaccard=whole,
        run=Span(first=0 if turned else place, second=place if turned else 0, length=size),
    )


def longest_run(first: Sequence[str], second: Sequence[str], least: int) -> Span:
    """The longest run of words that both texts have, if it has at least `least` words; the first of equals.

    Part of a common run is a common run, so its length is found by bisection on hashes of windows; what is
    reported was compared word by word.
    """
    numbers: dict[str, int] = {}
    ours, theirs = (
        np.array([numbers.setdefault(word, len(numbers) + 1) for word in text], dtype=np.uint64)
        for text in (first, second)
    )
    best = Span(first=0, second=0, length=0)
    low, high = least, min(len(first), len(second))
    while low <= high:
        middle = (low + high) // 2
        found = _common_window(ours, theirs, middle)
        if found is None:
            high = middle - 1
        else:
            best, low = found, middle + 1
    return best


def _common_window(ours: np.ndarray, theirs: np.ndarray, length: int) -> Span | None:
    left, right = _windows(ours, length), _windows(theirs, length)
    for place in np.flatnonzero(np.isin(left, right)):
        for other in np.flatnonzero(right == left[place]):
            if np.array_equal(ours[place : place + length], theirs[other : other + length]):
                return Span(first=int(place), second=int(other), length=length)
    return None


def _windows(numbers: np.ndarray, length: int) -> np.ndarray:
    """Hash of every window: a polynomial modulo 2^64, from prefix sums, brought to the power of its first word."""
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(numbers), _FACTOR))
        back = np.cumprod(np.full(len(numbers), _INVERSE))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(numbers * powers)])
        spans: np.ndarray = (sums[length:] - sums[:-length]) * back[: len(numbers) - length + 1]
    return spans


_CHUNK = re.compile(r"(?:\S*[^\W\d_]{2}[-\u2010\u2011]\s+(?=[^\W\d_]{2}))*\S+")


def places(text: str) -> list[tuple[int, int]]:
    """Characters `(start, end)` in the text that each of its words stands at; a chunk's where it makes several."""
    result: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        made = words(match[0])
        each = [] if len(made) < 2 else [(i, word) for i, c in enumerate(match[0]) for word in words(c)]
        if made and [word for _, word in each] == made:
            result += [(match.start() + i, match.start() + i + 1) for i, _ in each]
        else:
            result += [match.span()] * len(made)
    return result
