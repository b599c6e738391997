"""Garbled text: the share of a page that is debris of formulas or of fonts without Unicode values."""

import re
import unicodedata
from collections import Counter

# Short words of ordinary prose; other short tokens are what formulas leave behind.
_SHORT = (
    "a i of to in is it be as at so we he by or on do if me my up an go no us am de la le et en un du il "
    "ne se ce sa au da di du es el lo al su si ja er in im am zu so ob um wo"
)
SHORT_WORDS = frozenset(_SHORT.split())
LAYOUT = frozenset({".", "..", "|", "-", "#", "##", "\\", "\u2022", "$", ">"})
WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\u3040-\u30ff]")
MEANINGLESS = frozenset({"Co", "Cn", "Cs", "Cc"})


def math_garbled(text: str) -> float:
    """Share of tokens that are one or two signs and no word, 0 to 1; 0 for an empty page.

    Ordinary prose stays below 0.15, a page of display formulas lies above 0.4.
    """
    tokens = [token for token in text.split() if token not in LAYOUT]
    if not tokens:
        return 0.0
    odd = sum(1 for token in tokens if len(token) < 3 and _is_debris(token))
    private = sum(1 for token in tokens if len(token) >= 3 and any("\ue000" <= c <= "\uf8ff" for c in token))
    return round((odd + private) / len(tokens), 3)


def _is_debris(token: str) -> bool:
    if token.casefold() in SHORT_WORDS or WIDE.search(token):
        return False
    return not (
        token.isdecimal()
        or token[0] in "\u2022-*|#`"
        or (len(token) == 2 and token[1] in ".),:" and token[0].isalnum())
    )


def meaningless(text: str) -> float:
    """Share of characters that stand for nothing: private use, unassigned, control, or the replacement sign."""
    counts = Counter(text)
    ink = sum(count for c, count in counts.items() if not c.isspace())
    bad = sum(
        count
        for c, count in counts.items()
        if c == "\ufffd" or (not c.isspace() and unicodedata.category(c) in MEANINGLESS)
    )
    return bad / ink if ink else 0.0
