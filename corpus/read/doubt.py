"""Doubt: the share of a text that may read differently than its book, by the reason.

A paragraph is doubtful if it has a formula that the converter marked as unreadable or that lost an operand, cells of a
table that was not assembled, a sign without a Unicode value, markup of its source, a hole in a sentence, or words of no
language. A question about such a paragraph may ask for what the book does not say: a chunk with too much doubt does not
enter the pool, and a book that loses too much of its text is read by another converter.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

RULES = "doubt-6"
"""Name and version of the rules by which a paragraph is doubtful, for recipes."""
MARK = "<!-- garbled formula -->"
"""Comment in the Markdown after a block with a formula that could not be read."""
UNREAD = (MARK, "<!-- formula-not-decoded -->")
"""That comment, and docling's."""
TORN_TABLE = "<!-- torn table -->"
"""Comment in the Markdown after a block with cells of a table whose rows or columns are unknown."""


LARGE_LOSS = 1 / 3
"""Share of a book's characters with doubt above which another converter should read it."""


class Doubtful(StrEnum):
    """Reasons to doubt a paragraph, by the columns of `schemas.DoubtShares`; the first one that holds counts."""

    FORMULA = "garbled_formula"
    TABLE = "torn_table"
    SIGN = "unmapped_sign"
    MARKUP = "stray_markup"
    HOLE = "lost_words"
    WORD = "no_language"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """The doubtful paragraphs of a text."""

    characters: int
    """Characters of all paragraphs."""
    passages: Sequence[tuple[Doubtful, str]]
    """Reason and text of each doubtful paragraph, in order."""

    @property
    def share(self) -> float:
        """Share of the characters in doubtful paragraphs, 0 to 1."""
        return sum(len(text) for _, text in self.passages) / max(self.characters, 1)

    def shares(self) -> dict[str, float]:
        """Share of the characters in paragraphs that are doubtful for each reason, 0 to 1; they add up to `share`."""
        sizes = Counter({reason: 0 for reason in Doubtful})
        for reason, text in self.passages:
            sizes[reason] += len(text)
        return {str(reason): size / max(self.characters, 1) for reason, size in sizes.items()}

    @property
    def heaviest(self) -> tuple[Doubtful | None, str]:
        """The reason with the largest share, and the longest paragraph with it; None and empty without doubt."""
        shares = self.shares()
        return max(self.passages, key=lambda passage: (shares[passage[0]], len(passage[1])), default=(None, ""))


PARAGRAPH = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})(?s:.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|(?:^(?![ \t]*(?:`{3,}|~{3,}))[^\n]*\S[^\n]*(?:\n|\Z))+",
    re.MULTILINE,
)
"""A block of code between fences, or consecutive lines that are not empty."""
VERBATIM = re.compile(
    r"`[^`\n]+`|\$\$.+?\$\$|(?<!\\)\$[^$]+(?<!\\)\$|\\\(.+?\\\)|\]\([^()\s]*\)|https?://\S+|&\w+;", re.DOTALL
)
"""Inline code, formulas in LaTeX, addresses, and names of signs in HTML."""
TORN = re.compile(
    r"(?<!\S)[=\u2248\u2261\u2264\u2265\u2208\u223c] +[=\u2248\u2261\u2264\u2265\u2208\u223c+\u00d7](?!\S)"
    r"|(?<![^\s(])[_^]\{|\\overline\{[\d.]*\}|[\u2211\u220f\u222b]\s*\Z"
)
"""Relations next to each other, a script without a base, a rule above a number, or an operator at the end: a part was
lost or moved."""
GLYPHS = re.compile(
    r"\ufffd+|\bGLYPH(?:<|&lt;)[^<>\s]{1,30}|\(cid:\d{1,5}\)|/gid\d{5}|(?:/uni[0-9A-F]{4}){2,}|glyph\[\w+\]"
)
"""Characters without a Unicode value, and the names that other converters give to them."""
MEANINGLESS = frozenset({"Co", "Cn", "Cs", "Cc"})
"""Unicode categories of characters for private use, unassigned ones, halves of characters and control codes."""
NAME = re.compile(r"[^\w.:/+-]+|_")
MARKUP = re.compile(
    r"</?(?:a|br|center|div|figure|font|h[1-6]|iframe|img|li|ol|p|script|span|style|sub|sup|table|t[dhr]|ul)\b[^<>]*>"
    r"|\\(?:begin|end)\{|&[^&\n]*&[^\n]*\\$",
    re.IGNORECASE | re.MULTILINE,
)
"""Tags of HTML, and environments and rows of tables of LaTeX outside formulas."""
_SPACE = "[ \u00a0]"
HOLE = re.compile(
    rf"(?<=[a-z]){_SPACE}+,(?=\s|$)|(?<=[a-z]{{2}}){_SPACE}+\.(?=\s*$|\s+[A-Z(])"
    rf"|,{_SPACE},(?=\s)|(?<=[a-z]),{_SPACE}?\.(?=\s*$|\s+[A-Z])|{_SPACE}\((?:see)?{_SPACE}*\)(?=[\s.,;:]|$)",
    re.MULTILINE,
)
"""Punctuation after a space, or brackets without text: a reference, a formula or a macro was lost."""
_PICTURE = r"(?:graph|figure|picture|diagram|image|plot|photo(?:graph)?|drawing|illustration|screenshot)s?"
PICTURE = re.compile(
    rf"\b(?:above|following|given|accompanying) {_PICTURE}\b"
    rf"|\b{_PICTURE} (?:\w+ ){{0,3}}(?:above|below|shown|at (?:the )?right|on the (?:right|left))\b",
    re.IGNORECASE,
)
"""Words that point to a picture; none is in a book's text."""
QUESTION = re.compile(
    r"\?[*_)\"\u201d]*\s*$|^\W*(?:\w{1,2}[.)]\W+)?(?:\*\*[^*]+\*\*\W*)?(?:Based|Complete|Compute|Consider|Describe|Determine"
    r"|Estimate|Explain|Find|From|Give|Identify|Label|List|Match|Name|Refer|State|Use|Using|Write)\b",
    re.MULTILINE,
)
"""A line that asks or sets a task."""
EMPTY_CODE = re.compile(r"[^\n]*\n[\s>`~]*|(?s:.*\ninclude::\S+\[[^\n]*\]\n.*)")
"""A block of code without a line, or with an inclusion: what it includes is missing."""
UNSEEN = re.compile(
    r"\W*(?:exercise|problem|question)\b.{0,400}\b(?:figure|fig\.|graph|diagram)\s+\(?[A-Z]?\d", re.I | re.S
)
"""An exercise about a picture, which was left out."""
UNRESOLVED, CODE = re.compile(r"\[\?[\w.:/+-]+\\?\]"), re.compile(r"`[^`\n]+`")
"""The mark of `unresolved`, also in a formula; inline code, which may look like one."""


def unresolved(name: str) -> str:
    """Mark in a book's Markdown for a reference, macro or entity whose text is unknown, with the name in the source."""
    return f"[?{NAME.sub('-', name).strip('-') or 'unknown'}]"


def find_doubt(text: str) -> Doubt:
    """Find the doubtful paragraphs of a Markdown text: those with a fault, or all if the text is in no language."""
    paragraphs = [(match["fence"] is not None, match[0]) for match in PARAGRAPH.finditer(text)]
    prose = "\n".join(VERBATIM.sub("", paragraph) for is_code, paragraph in paragraphs if not is_code)
    share = language_share(prose)
    otherwise = Doubtful.WORD if share is not None and share < LANGUAGE else None
    passages = [
        (reason, paragraph)
        for is_code, paragraph in paragraphs
        if (reason := _fault_of(paragraph, is_code=is_code) or otherwise)
    ]
    return Doubt(characters=sum(len(paragraph) for _, paragraph in paragraphs), passages=passages)


def _fault_of(paragraph: str, *, is_code: bool) -> Doubtful | None:
    """The fault of a single formula, sign or tag in a paragraph."""
    if any(mark in paragraph for mark in UNREAD):
        return Doubtful.FORMULA
    if TORN_TABLE in paragraph:
        return Doubtful.TABLE
    signs = {sign for sign in set(paragraph) if unicodedata.category(sign) in MEANINGLESS and not sign.isspace()}
    if signs or GLYPHS.search(paragraph):
        return Doubtful.SIGN
    if is_code:
        return Doubtful.HOLE if EMPTY_CODE.fullmatch(paragraph) else None
    prose = VERBATIM.sub("X", paragraph)
    if TORN.search(prose):
        return Doubtful.FORMULA
    if MARKUP.search(prose) or UNRESOLVED.search(CODE.sub("", paragraph)):
        return Doubtful.MARKUP
    has_hole = HOLE.search(prose) or UNSEEN.match(paragraph) or (PICTURE.search(prose) and QUESTION.search(prose))
    return Doubtful.HOLE if has_hole and not paragraph.lstrip().startswith("|") else None


def doubt_by_page(text: str, page_starts: Sequence[int]) -> list[Doubt]:
    """Find the doubtful paragraphs of each page of a book, or of pieces of PAGE_CHARS if it has no pages."""
    edges = [*(page_starts if len(page_starts) > 1 else range(0, len(text), PAGE_CHARS)), len(text)]
    return [find_doubt(text[start:end]) for start, end in pairwise(edges)]


def share_leftward(text: str) -> float:
    """Share of letters that belong to right-to-left scripts, 0 to 1; 0 for a text without letters."""
    letters = sum(map(str.isalpha, text))
    return min(1.0, sum(map(len, LEFTWARD.findall(text))) / letters) if letters else 0.0


PAGE_CHARS = 2500
"""Length of a page for a source without pages, characters."""
WORDS = 30
"""Least number of words from which a text can be judged."""
LANGUAGE = 0.8
"""Least share of a text's words that look like words: books have .93 or more, with shifted letters .75 or less."""
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{3,}")
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
