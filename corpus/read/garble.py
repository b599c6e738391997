"""Detection of garbled text: remains of formulas, characters without Unicode values, and text in no language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

MARK = "<!-- garbled formula -->"
"""Comment in the Markdown after a block with a formula that could not be read."""
GLYPHS = re.compile(r"\ufffd+|\bGLYPH(?:<|&lt;)[^<>\s]{1,30}|\(cid:\d{1,5}\)|/gid\d{5}|(?:/uni[0-9A-F]{4}){2,}")
"""Characters without a Unicode value, and the names that other converters give to them."""
GARBLED_PAGE = 0.4
"""Value of `math_garbled` from which a page counts as garbled; a page with MARK has at least this value."""
# Short words of ordinary prose; other short tokens are remains of formulas.
_SHORT = (
    "a i of to in is it be as at so we he by or on do if me my up an go no us am de la le et en un du il "
    "ne se ce sa au da di du es el lo al su si ja er in im am zu so ob um wo"
)
SHORT_WORDS = frozenset(_SHORT.split())
LAYOUT = frozenset({".", "..", "|", "-", "#", "##", "\\", "\u2022", "$", ">"})
WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\u3040-\u30ff]")
MEANINGLESS = frozenset({"Co", "Cn", "Cs", "Cc"})


def math_garbled(text: str) -> float:
    """Share of a page's tokens that are one or two characters but no word, or have private-use signs, 0 to 1.

    It is 0 for an empty page, and at least 0.4 for a page with MARK. Ordinary prose has less than 0.15, a page of
    displayed formulas more than 0.4.
    """
    tokens = [token for token in text.split() if token not in LAYOUT]
    if not tokens:
        return 0.0
    odd = sum(1 for token in tokens if len(token) < 3 and _is_debris(token))
    private = sum(1 for token in tokens if len(token) >= 3 and any("\ue000" <= c <= "\uf8ff" for c in token))
    share = round((odd + private) / len(tokens), 3)
    return max(share, GARBLED_PAGE) if MARK in text else share


def _is_debris(token: str) -> bool:
    if token.casefold() in SHORT_WORDS or WIDE.search(token):
        return False
    return not (
        token.isdecimal()
        or token[0] in "\u2022-*|#`"
        or (len(token) == 2 and token[1] in ".),:" and token[0].isalnum())
    )


def meaningless(text: str) -> float:
    """Share of characters without a meaning in Unicode: private use, unassigned, control, or the replacement sign."""
    counts = Counter(text)
    ink = sum(count for c, count in counts.items() if not c.isspace())
    bad = sum(
        count
        for c, count in counts.items()
        if c == "\ufffd" or (not c.isspace() and unicodedata.category(c) in MEANINGLESS)
    )
    return bad / ink if ink else 0.0


def share_leftward(text: str) -> float:
    """Share of letters that belong to right-to-left scripts, 0 to 1; 0 for a text without letters."""
    letters = sum(map(str.isalpha, text))
    return min(1.0, sum(map(len, LEFTWARD.findall(text))) / letters) if letters else 0.0


WORDS = 30
"""Least number of words from which a page can be judged."""
LANGUAGE = 0.8
"""Least share of a page's words that look like words: books have .93 or more, with shifted letters .75 or less."""
PAGES = 0.5
"""Largest share of the judged pages that may be below LANGUAGE; above it the book is rejected."""
PAGE_CHARS = 2500
"""Length of a page for a source without pages, characters."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_VOWEL = re.compile("[aeiouy\u00e6\u00f8\u0153\u0131]")
_CONSONANTS = re.compile("[^aeiouy\u00e6\u00f8\u0153\u0131]{7,}")
_MIXED_CASE = re.compile("[a-z\u00df-\u00ff][A-Z\u00c0-\u00de]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_COMMON_HAN = frozenset(
    "\u7684\u4e00\u662f\u4e0d\u5728\u4e86\u6709\u548c\u4eba\u8fd9\u9019\u4e2d\u5927\u4e3a\u70ba\u4e0a\u4e2a\u500b\u4ee5\u8981\u7528\u4e8e\u65bc\u5230\u5176\u53ef\u4e0e\u8207\u6211\u4e5f\u4e4b\u540c\u6210\u65b9\u6cd5\u5982\u80fd\u5bf9\u5c0d\u4f1a\u6703\u4e0b\u51fa\u884c\u5b50\u65f6\u6642\u8005\u800c\u540e\u5f8c\u5b83\u4eec\u5011\u65e5\u5206\u5206\u6570\u6578\u5b57"
)
_FEW_HAN = 0.05
_RTL = "\u0590-\u07ff\ufb1d-\ufdff\ufe70-\ufefc"
LEFTWARD = re.compile(f"[{_RTL}]+")
"""Letters of the scripts that are written from right to left, such as Hebrew and Arabic."""
_MIXED_SCRIPTS = re.compile(f"[{_RTL}][A-Za-z]|[A-Za-z][{_RTL}]")


def debris(pages: Sequence[str]) -> str:
    """Return why to reject a book, with sample words, if most judged pages are in no language; empty otherwise.

    Latin words are judged by their form (a vowel, no long run of consonants, no capital inside), Chinese by the share
    of its most frequent characters, Hebrew and Arabic by Latin letters within words; other scripts are not judged.
    """
    shares = [share for page in pages if (share := language_share(page)) is not None]
    bad = sum(share < LANGUAGE for share in shares)
    if bad <= PAGES * len(shares):
        return ""
    odd = Counter(word for page in pages for word in _WORD.findall(page) if not _is_word(word))
    examples = ", ".join(repr(word[:20]) for word, _ in odd.most_common(5))
    sample = f", such as {examples}" if examples else ""
    return f"debris: {bad} of {len(shares)} pages are in no language{sample}; at most {PAGES:.0%} may be"


def language_share(page: str) -> float | None:
    """Share of a page's words that look like words of a language, 0 to 1; None for a page with too few words."""
    han = _HAN.findall(page)
    if len(han) >= 4 * WORDS and not re.search("[\u3040-\u30ff]", page):
        return float(sum(sign in _COMMON_HAN for sign in han) >= _FEW_HAN * len(han))
    leftward = [word for word in LEFTWARD.findall(page) if len(word) > 1]
    if len(leftward) >= WORDS:
        return 1 - min(1.0, len(_MIXED_SCRIPTS.findall(page)) / len(leftward))
    words = [word for word in _WORD.findall(page) if max(word) < "\u0250"]
    count = len(words) + len(GLYPHS.findall(page))
    return sum(map(_is_word, words)) / count if count >= WORDS else None


def _is_word(word: str) -> bool:
    letters = [sign for sign in unicodedata.normalize("NFD", word.casefold()) if not unicodedata.combining(sign)]
    bare = "".join(letters)
    if not _VOWEL.search(bare) or _CONSONANTS.search(bare) or _MIXED_CASE.search(word):
        return False
    # Letters of another script that were decoded as Latin ones are all accented.
    return 2 * sum(sign > "\x7f" for sign in word) <= len(word)
