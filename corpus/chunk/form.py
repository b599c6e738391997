"""Rules on a chunk's form: licences, notices of a course, indexes, contents, lists of sources, torn formulas."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corpus.chunk.blocks import Kind, scan
from corpus.read.garble import SHORT_WORDS, WIDE, math_garbled

RULES = "rules-6"
"""Name of the rules as a whole, for recipes."""
MIN_LINES = 6
"""Lines or entries below which a list is too short to be told from prose."""
LIST_SHARE = 0.6
"""Share of a chunk's lines that have the form of a list of contents, an index, or a list of references."""
RUNNING = 0.3
"""Share of a paragraph's words that stand beside another word of a language from which it is prose.

Names, numbers and debris lie below 0.2, prose above 0.5.
"""
SENTENCE_WORDS = 30
"""Words of a sentence; one of names and numbers has no two words of a language side by side."""
SIGN = 2
"""Characters of an initial or of a number of a list, which a full stop follows as well."""
SAID = 0.2
"""Share of a chunk's words in such paragraphs below which it says nothing."""
SIGN_WORDS = 20
"""Words of a formula or of a function's head for each of its signs."""
FORMULA = 0.4
"""`math_garbled` of a formula below which its signs have kept together."""
SIGNS = re.compile(
    r"(?<=[\w)}\]]) ?[=<>\u2248\u2260\u2261\u2264\u2265\u2208\u2282\u2286\u2192\u21d2\u21d4\u223c\u221d](?!\s*[,;=<>])"
    r"|\w\([^()]*[\s,][^()]*\)"
)
LATEX = re.compile(r"\$\$.+?\$\$|(?<!\\)\$[^$\n]+(?<!\\)\$|\\\(.+?\\\)", re.DOTALL)
LONGEST = 25
"""Letters of a word; a longer one is several, from which the blanks between them are lost."""
NO_LETTER = re.compile(r"[\d_!-&*-,./:-@\[-`{-~]")
INDENTED = 0.3
"""Share of the lines of a listing that are indented."""
FENCE = re.compile(r"(?:(\A|[^\n]\n)|^) {0,3}(?:`{3,}|~{3,})([ \t]*(?:\n[ \t]*(?:\n|\Z)|\Z))?", re.MULTILINE)
ENTRY = re.compile(r"\S.*?(?P<leader>\s*\.(?:\s*\.)+\s*|\s+)(?P<page>\d{1,4}|[ivxlc]{1,7})\s*$")
RISING = 0.9
"""Share of neighbouring entries whose page numbers do not fall: exercises end in numbers, too, but in any order."""
NUMBERED = re.compile(
    r"[-*#\s]*(?:chapter |section |appendix |part )?[A-Z\d]{1,3}(?:[.-]\d+)+[.:]?\s+\W{0,3}[^\W\d]", re.I
)
SENTENCE = re.compile(r"[.;?!:][)\"'*_`]*$|(?:\S+\s+){15}")
INDEX = re.compile(r"\S[^.!?]{0,80}?,\s*\d{1,4}(?:\s*[-\u2013,]\s*\d{1,4}|\s*,?\s*see(?: also)? [^.]+)*\.?\s*$")
ENTRIES = re.compile(r"\n\s*\n|\n(?=[-*] |\\?\[\w{1,12}\\?\])|(?<=[.\d]) (?=\[\d{1,3}\] [A-Z])")
ENTRY_WORDS = 80
"""Words of an entry of a list of sources; a paragraph that cites has more."""
REFERENCE = re.compile(
    r"^\s*(?:[-*]\s+)?\\?\[\w{1,12}\\?\]|\bdoi\b|\bISBN\b|\bpp?\.\s*\d|\bet al\.|\bProc\.|\bJournal\b|\bPress\b|\bvol\."
    r"|^\W*(?:[A-Z]\.[ -]?){1,3}\s?[A-Z][a-z]+|^\W*[A-Z][\w-]+,? [A-Z](?:[A-Z]?\b|\.)"
    r"|\b\d+\s?(?:\(\d+\))?\s?:\s?\d+\s?[-\u2013]\s?\d+"
)
YEAR = re.compile(r"\b(?:1[89]|20)\d\d[a-z]?\b")
LEGAL = re.compile(
    r"\b(?:licen[cs](?:e[sd]?|ing|ees?|ors?)|copyright(?:ed|s)?|warrant(?:y|ies)|(?:re)?distribut(?:e[sd]?|ing|ion)"
    r"|liab(?:le|ility)|(?:in)?fring(?:e|es|ing|ement)|damages|permissions?|derivative|patents?|modif(?:y|ied|ications?)"
    r"|permitted|granted|trademarks?|rights reserved|free software|public domain|general public|merchantability"
    r"|cop(?:y|ies|ying)|convey(?:s|ed|ing)?|covered (?:work|code|software)|invariant sections?|cover texts?"
    r"|(?:you|licen[cs]ors?|licen[cs]ees?|contributors?) (?:may|must|shall|need) not|you may|this licen[cs]e"
    r"|the document|modified versions?|object code|corresponding source|source code form|derived works?"
    r"|third part(?:y|ies)|under the terms|terms (?:and conditions|of this)|provided that|to the extent"
    r"|royalt(?:y|ies)|without limitation"
    r"|here(?:by|in|of|to|under)|there(?:of|under)|notwithstanding|obligations?|statut(?:e|ory)|applicable law"
    r"|contributors?|recipients?)\b"
)
LEGAL_SHARE = 0.05
"""Share of a paragraph's words that are those of a licence from which it is part of one."""
SEVERAL = 4
"""Different words of a licence, or of the notices of a course, in a chunk that is one."""
STEM = 5
"""Letters in which forms of the same word agree."""
LEGAL_PART = 0.5
"""Share of a chunk's words in such paragraphs from which it is a licence."""
COURSE = re.compile(
    r"\b(?:congrat\w*|well done|homeworks?|mid-?terms?|exams?|quiz(?:zes)?|syllabus|office hours|gradescope|moodle"
    r"|piazza|deadlines?|due (?:on|by|date|at)|hand in|submit|submissions?|grad(?:es?|ed|ing)|late policy|lecturers?"
    r"|instructors?|teaching assistants?|students|certificates?|semesters?|enroll\w*|prerequisites?|feedback"
    r"|fill (?:in|out|this)|next (?:\(?bonus\)? )?(?:unit|chapter|section|lecture|week|class|part|module|lesson)"
    r"|(?:last|this) (?:year|week|lecture|class|unit|course|chapter)|(?:the|our) course|to cover|my notes|taught by"
    r"|tutorials?|thank\w*|grateful|gratitude|acknowledg\w*|reviewers?|suggestions|sign up|join us|welcome"
    r"|assignments?|problem sets?|projects|meetings?)\b"
)
"""Words of sentences about the course itself: dates, work to hand in, the next part, thanks."""
COURSE_PART = 0.3
"""Share of a chunk's words in sentences of a course's notices from which it teaches nothing."""
SENTENCES = re.compile(r"\n+|(?<=[.!?])\**\s+")
TORN = re.compile(
    r"(?<!\S)[=\u2248\u2261\u2264\u2265\u2208\u223c] +[=\u2248\u2261\u2264\u2265\u2208\u223c+\u00d7](?!\S)"
)
"""Two relations side by side, blanks around them."""
QUOTED = re.compile(r"`[^`\n]*`")
DEGREE = re.compile(
    r"\b(?:received|holds?|earned|obtained|completed) (?:his|her|their|the|an?)\b[^.]{0,40}?"
    r"\b(?:B\.?\s?S|B\.?\s?A|M\.?\s?S|Ph\.?\s?D|D\.?\s?Phil|bachelor|master|doctora?t?e?|diploma|degrees?)\b"
)
CAREER = re.compile(
    r"\bresearch interests\b|\b(?:assistant|associate|full|emeritus) professor\b|\bProfessor (?:of|at)\b", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A chunk's paragraphs, and the number of its words that say something."""

    text: str
    """The whole of it."""
    paragraphs: Sequence[str]
    """Its text without headings, code, tables and display formulas."""
    words: int
    """Words of the paragraphs."""
    said: int
    """Those of them in paragraphs of prose."""
    shown: int
    """Words in code, tables and formulas."""

    @property
    def titles(self) -> list[str]:
        """Lines of the text, with its headings."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    @property
    def lines(self) -> list[str]:
        """Lines of the paragraphs."""
        return [line.strip() for part in self.paragraphs for line in part.splitlines() if line.strip()]


def fault_of(text: str) -> str:
    """Reason for which a chunk teaches nothing by its form; empty when it may teach something."""
    form = form_of(text)
    return next((reason for reason, holds in FAULTS if holds(form)), "")


def form_of(text: str) -> Form:
    """The parts of a chunk, which may begin within code: below its first fence is a blank line, and none above."""
    fence = FENCE.search(text)
    source = f"```\n{text}" if fence and fence[1] is not None and fence[2] is not None else text
    paragraphs: list[str] = []
    words = said = shown = 0
    for block in scan(source):
        if block.kind is Kind.HEADING:
            continue
        part = source[block.start : block.end]
        if block.kind is not Kind.PARAGRAPH:
            shown += len(part.split())
            continue
        paragraphs.append(part)
        tokens = [token for token in _spaced(LATEX.sub("", part)).split() if any(map(str.isalnum, token))]
        if _is_prose(tokens):
            said += len(tokens)
        elif _is_shown(part, tokens):
            shown += len(tokens)
            continue
        words += len(tokens)
    return Form(text=text, paragraphs=paragraphs, words=words, said=said, shown=shown)


def _is_shown(part: str, tokens: Sequence[str]) -> bool:
    """Whether a paragraph is a formula, a function's head with its arguments, or a listing of indented lines."""
    if SIGN_WORDS * len(SIGNS.findall(part)) >= len(tokens) and math_garbled(part) < FORMULA:
        return True
    lines = part.splitlines()
    return len(lines) >= MIN_LINES and sum(line[:1] in " \t" for line in lines) >= INDENTED * len(lines)


def _spaced(text: str) -> str:
    """Text whose every wide character is a word."""
    return WIDE.sub(r" \g<0> ", text)


def _is_prose(tokens: Sequence[str]) -> bool:
    """Whether words of a language stand side by side without a comma, or in sentences with an end, in any script."""
    plain = [_is_plain(token) for token in tokens]
    joined = [left and right for left, right in pairwise(plain)]
    joined = [both and token[-1] not in ",;" for both, token in zip(joined, tokens, strict=False)]
    beside = sum(left or right for left, right in pairwise([False, *joined, False]))
    ended = sum(token[-1] in ".!?" and len(token) > SIGN for token in tokens) * SENTENCE_WORDS >= len(tokens)
    return (sum(plain) if ended else beside) >= RUNNING * len(tokens)


def _is_plain(token: str) -> bool:
    """Whether a word is written as in the midst of a sentence: no name, number, identifier or letter of a formula."""
    bare = token.strip("\"'\u201c\u201d\u2018\u2019()*_,;:.!?-\u2013\u2014\u2026")
    if WIDE.search(bare):
        return True
    known = 1 < len(bare) <= LONGEST or bare in SHORT_WORDS
    return known and not bare[0].isupper() and not NO_LETTER.search(bare)


def _says_nothing(form: Form) -> bool:
    return form.words >= form.shown and form.said <= SAID * form.words


def _is_torn(form: Form) -> bool:
    """Whether a relation stands beside another: what stood between them is lost, or behind the formula."""
    return any(TORN.search(QUOTED.sub("x", LATEX.sub("x", part))) for part in form.paragraphs)


def _is_course(form: Form) -> bool:
    """Whether many sentences are about the course: what is due, what comes next, thanks and congratulations."""
    parts = [part for text in form.paragraphs for part in SENTENCES.split(text.casefold())]
    found = [COURSE.findall(part) for part in parts]
    told = sum(len(part.split()) for part, words in zip(parts, found, strict=True) if words)
    return _is_several(found) and told > COURSE_PART * len(form.text.split())


def _is_several(found: Sequence[Sequence[str]]) -> bool:
    """Whether words of a kind differ: one alone is the subject."""
    return len({word[:STEM] for words in found for word in words}) >= SEVERAL


def _is_legal(form: Form) -> bool:
    """Whether most of a text is in paragraphs about rights, in several words of a licence."""
    parts = re.split(r"\n\s*\n", _spaced(form.text.casefold()))
    found = [LEGAL.findall(part) for part in parts]
    if not _is_several(found):
        return False
    sizes = [len(part.split()) for part in parts]
    legal = sum(size for size, words in zip(sizes, found, strict=True) if len(words) > max(1, LEGAL_SHARE * size))
    return legal > LEGAL_PART * sum(sizes) or sum(map(len, found)) > LEGAL_SHARE * sum(sizes)


def _is_lives(form: Form) -> bool:
    degrees = len(DEGREE.findall(form.text))
    return degrees > 0 and degrees + len(CAREER.findall(form.text)) > 1


def _is_index(form: Form) -> bool:
    return _most(form.lines, lambda line: bool(INDEX.match(line)))


def _most(lines: Sequence[str], holds: Callable[[str], bool]) -> bool:
    """Whether most lines are of a kind, with most of the words: a list may stand below prose that explains it."""
    found = [line for line in lines if holds(line)]
    words, listed = (sum(len(line.split()) for line in part) for part in (lines, found))
    return len(lines) >= MIN_LINES and len(found) >= LIST_SHARE * len(lines) and listed >= LIST_SHARE * words


def _is_contents(form: Form) -> bool:
    """Entries with leaders, with page numbers that rise, or titles each behind its number."""
    if _most(form.titles, lambda line: bool(NUMBERED.match(line)) and not SENTENCE.search(line)):
        return True
    lines = form.lines
    found = [match for line in lines if (match := ENTRY.match(line))]
    if len(lines) < MIN_LINES or len(found) < LIST_SHARE * len(lines):
        return False
    if sum("." in match["leader"] for match in found) >= LIST_SHARE * len(found):
        return True
    pages = [int(match["page"]) for match in found if match["page"].isdecimal()]
    rising = sum(left <= right for left, right in pairwise(pages))
    return len(pages) >= MIN_LINES and pages[0] < pages[-1] and rising >= RISING * (len(pages) - 1)


def _is_sources(form: Form) -> bool:
    """Entries that cite a work with its year; in a list of them most words are theirs."""
    entries = [entry for entry in ENTRIES.split("\n\n".join(form.paragraphs)) if entry.strip()]
    cited = [e for e in entries if YEAR.search(e) and REFERENCE.search(e) and len(e.split()) < ENTRY_WORDS]
    if len(entries) < MIN_LINES or len(cited) < MIN_LINES / 2:
        return False
    words = sum(len(entry.split()) for entry in cited)
    return len(cited) >= LIST_SHARE * len(entries) or words >= LIST_SHARE * form.words


FAULTS: tuple[tuple[str, Callable[[Form], bool]], ...] = (
    ("a licence: its words are about rights", _is_legal),
    ("notices of a course: what is due or comes next, thanks", _is_course),
    ("a torn formula: a relation stands beside another", _is_torn),
    ("biographies: degrees and posts of authors", _is_lives),
    ("an index: most lines are a term and page numbers", _is_index),
    ("a list of contents: most lines end in a page number", _is_contents),
    ("a list of references: most entries cite a work with its year", _is_sources),
    ("says nothing: most words are names, numbers or debris", _says_nothing),
)
"""Reasons and their tests, in order: the first that holds is given."""
