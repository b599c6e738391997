"""Split text into normalised words and word n-grams, and compute the exact overlap of two texts."""

import hashlib
import html
import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

NORMALISER = "entities-nfkc-casefold-nfkc-visible-skeleton-hyphens-latex-nopunct-cjk-3"
LONG_WORD = 1024
"""Characters; a longer word is replaced by its beginning and digest, so that pasted data cannot exhaust memory."""
GLUED = "'.$"
"""Characters removed from inside words: don't, U.S., 3.14, $x$. All other punctuation separates words, so that
`f(x)` and `f( x )` are the same words."""
PARTING = "".join(character for character in string.punctuation if character not in GLUED)
# Scripts that are written without blanks: every character counts as a word, otherwise a page would be one word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Otherwise NFKC would join a letter and its superscript to one word, which LaTeX separates by a caret.
_SCRIPTS = re.compile("[\u00b2\u00b3\u00b9\u2070-\u209c]+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});")
_SPACING = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|q?quad|,|;|!|:|>)(?![A-Za-z])")
# The pattern begins with the hyphen, so that the search is as fast as for a single character.
_HYPHEN = re.compile(r"-(?<=[^\W\d_]{2}-)\s*(?=[^\W\d_]{2})")
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
# Vowel points of Hebrew and Arabic, and the stroke that only lengthens a word: most texts omit them.
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
"""Case-folded letters to the Latin letters that they look like, after the confusables of Unicode TS 39; Persian to
Arabic letters."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))


class _Folds(dict[int, str]):
    """Table for str.translate: the replacement of each character, computed when it first occurs."""

    def __missing__(self, code: int) -> str:
        replacement = self[code] = _fold(chr(code))
        return replacement


def _fold(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" or _POINTS.match(character) or _INVISIBLE.match(character) or character in _APOSTROPHES:
        return ""
    if character in _HYPHENS:
        return "-"
    # LaTeX is ASCII, whose punctuation is replaced last.
    if character.isspace() or (category[0] in "PSZ" and not character.isascii()):
        return " "
    if _UNSPACED.match(character):
        return f" {character} "
    return _LOOK_ALIKES.get(character, character)


_FOLDS = _Folds()
_FOREIGN = re.compile("([^\x00-\x7f]+)")
_CACHED_CHARS, _CACHED_PIECES = 32, 1 << 16


def _fold_foreign(text: str) -> str:
    """Normalise the non-ASCII pieces of a text; a combining mark is processed together with the letter before it."""
    parts = _FOREIGN.split(text)
    for place in range(1, len(parts), 2):
        piece = parts[place]
        if unicodedata.combining(piece[0]):
            piece, parts[place - 1] = parts[place - 1][-1:] + piece, parts[place - 1][:-1]
        parts[place] = _cached_fold(piece) if len(piece) <= _CACHED_CHARS else _fold_piece(piece)
    return "".join(parts)


def _fold_piece(piece: str) -> str:
    spaced = _SCRIPTS.sub(r" \g<0> ", piece)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", spaced).casefold()).translate(_FOLDS)


_cached_fold = lru_cache(maxsize=_CACHED_PIECES)(_fold_piece)
_ASCII = str.maketrans(PARTING, " " * len(PARTING), GLUED)


def normalise(text: str) -> str:
    """Normalise a text, except for its ASCII case and punctuation.

    NFKC is applied twice because case folding can undo it. Letters that look like Latin ones are replaced by them, even
    in Russian or Greek: both sides of a comparison change in the same way. Words hyphenated at a line end are joined,
    and entities of HTML are the characters that they stand for.
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if not text.isascii():
        text = _fold_foreign(text)
    if "\\" in text:
        text = _SPACING.sub(" ", text)
    return _HYPHEN.sub("", text) if "-" in text else text


def words(text: str) -> list[str]:
    """Split a text into normalised words."""
    tokens = normalise(text).casefold().translate(_ASCII).split()
    return [shorten(word) for word in tokens] if len(text) > LONG_WORD else tokens


def shorten(word: str) -> str:
    """Replace a word longer than LONG_WORD by its beginning and digest; other words are unchanged."""
    if len(word) <= LONG_WORD:
        return word
    return word[:16] + hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()


def grams(tokens: Sequence[str], n: int) -> list[str]:
    """Word n-grams of a text in order, as strings; a text of fewer than n words is a single n-gram."""
    if len(tokens) < n:
        return [" ".join(tokens)] if tokens else []
    return [" ".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of words that two texts have in common: number of its first word in each text, and its length; 0: none."""

    first: int
    second: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Overlap of two texts, computed on their sets of n-grams."""

    num_common: int
    """Distinct n-grams in both."""
    containment_first: float
    """Share of the first text's n-grams that the second has."""
    containment_second: float
    """Share of the second text's n-grams that the first has."""
    jaccard: float
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
    """Overlap of two texts, given their words. A text of fewer than n words is searched for as a whole in the other.

    If a text of fewer than n words occurs inside a longer one, only its own containment is above 0: it covers none of
    the longer text's n-grams.
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
    """The longest run of at least `least` words that two texts have in common; of equally long ones the first.

    Common windows of `least` words in succession limit its length; most often it has the largest possible one. As every
    part of a common run is a common run, bisection on hashes of windows finds a smaller one. The result is compared
    word by word.
    """
    best = Span(first=0, second=0, length=0)
    if min(len(first), len(second)) < least:
        return best
    numbers: dict[str, int] = {}
    ours, theirs = (
        np.array([numbers.setdefault(word, len(numbers) + 1) for word in text], dtype=np.uint64)
        for text in (first, second)
    )
    is_common = np.isin(_windows(ours, least), _windows(theirs, least))
    edges = np.flatnonzero(np.diff(is_common, prepend=False, append=False))
    high = min(len(first), len(second), least - 1 + int(np.max(edges[1::2] - edges[::2], initial=0)))
    low, middle = least, high
    while low <= high:
        span = _common_window(ours, theirs, middle)
        if span is None:
            high = middle - 1
        else:
            best, low = span, middle + 1
        middle = (low + high) // 2
    return best


def _common_window(ours: np.ndarray, theirs: np.ndarray, length: int) -> Span | None:
    left, right = _windows(ours, length), _windows(theirs, length)
    for place in np.flatnonzero(np.isin(left, right)):
        for other in np.flatnonzero(right == left[place]):
            if np.array_equal(ours[place : place + length], theirs[other : other + length]):
                return Span(first=int(place), second=int(other), length=length)
    return None


def _windows(numbers: np.ndarray, length: int) -> np.ndarray:
    """Hash of every window of `length` words: a polynomial modulo 2^64.

    It is a difference of prefix sums, divided by the power of the window's first word.
    """
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(numbers), _FACTOR))
        back = np.cumprod(np.full(len(numbers), _INVERSE))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(numbers * powers)])
        spans: np.ndarray = (sums[length:] - sums[:-length]) * back[: len(numbers) - length + 1]
    return spans


_CHUNK = re.compile(r"(?:\S*[^\W\d_]{2}[-\u2010\u2011]\s+(?=[^\W\d_]{2}))*\S+")


def places(text: str) -> list[tuple[int, int]]:
    """Character span `(start, end)` of each normalised word; words of one piece without blanks share its span."""
    result: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        tokens = words(match[0])
        by_character = [] if len(tokens) < 2 else [(i, word) for i, c in enumerate(match[0]) for word in words(c)]
        if tokens and [word for _, word in by_character] == tokens:
            result += [(match.start() + i, match.start() + i + 1) for i, _ in by_character]
        else:
            result += [match.span()] * len(tokens)
    return result
