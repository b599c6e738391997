"""Rules that recognise chunks without teaching text from their form alone, without a language model.

They find licences, notices of a course, biographies, indexes, and lists of contents and of references.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corpus.chunk.blocks import BlockType, scan

RULES = "rules-9"
"""Name and version of this set of rules, for recipes."""
MIN_LINES = 6
"""Lines or entries below which a list is too short to be distinguished from prose."""
LIST_SHARE = 0.6
"""Share of a chunk's lines that have the form of a list of contents, an index, or a list of references."""
RUNNING = 0.3
"""Least share of plain words next to another plain word in a paragraph of prose.

Names, numbers and debris are below 0.2, prose is above 0.5.
"""
SENTENCE_WORDS = 30
"""Most words per sentence end in a paragraph with sentences; its plain words need not be neighbours to be prose."""
SIGN = 2
"""Longest word (with its full stop) that is an initial or a list number and does not end a sentence, characters."""
PROSE_SHARE = 0.2
"""Largest share of words in paragraphs of prose at which a chunk counts as one without content."""
SIGN_WORDS = 20
"""Most words per relation sign or call in a paragraph that counts as a formula or the head of a function."""
SIGNS = re.compile(
    r"(?<=[\w)}\]]) ?[=<>\u2248\u2260\u2261\u2264\u2265\u2208\u2282\u2286\u2192\u21d2\u21d4\u223c\u221d](?!\s*[,;=<>])"
    r"|\w\([^()]*[\s,][^()]*\)"
)
WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\u3040-\u30ff]")
_SHORT = (
    "a i of to in is it be as at so we he by or on do if me my up an go no us am de la le et en un du il "
    "ne se ce sa au da di du es el lo al su si ja er in im am zu so ob um wo"
)
SHORT_WORDS = frozenset(_SHORT.split())
"""Short words of ordinary prose."""
LATEX = re.compile(r"\$\$.+?\$\$|(?<!\\)\$[^$\n]+(?<!\\)\$|\\\(.+?\\\)", re.DOTALL)
LONGEST = 25
"""Most letters of a word; a longer one is several words that lost the blanks between them."""
NO_LETTER = re.compile(r"[\d_!-&*-,./:-@\[-`{-~]")
INDENTED = 0.3
"""Least share of indented lines in a listing."""
FENCE = re.compile(r"(?:(\A|[^\n]\n)|^) {0,3}(?:`{3,}|~{3,})([ \t]*(?:\n[ \t]*(?:\n|\Z)|\Z))?", re.MULTILINE)
ENTRY = re.compile(r"\S.*?(?P<leader>\s*\.(?:\s*\.)+\s*|\s+)(?P<page>\d{1,4}|[ivxlc]{1,7})\s*$")
RISING = 0.9
"""Least share of neighbouring entries of a list of contents whose page numbers do not fall.

Exercises end in unordered numbers.
"""
NUMBERED = re.compile(
    r"[-*#\s]*(?:chapter |section |appendix |part )?[A-Z\d]{1,3}(?:[.-]\d+)+[.:]?\s+\W{0,3}[^\W\d]", re.I
)
SENTENCE = re.compile(r"[.;?!:][)\"'*_`]*$|(?:\S+\s+){15}")
INDEX = re.compile(r"\S[^.!?]{0,80}?,\s*\d{1,4}(?:\s*[-\u2013,]\s*\d{1,4}|\s*,?\s*see(?: also)? [^.]+)*\.?\s*$")
ENTRIES = re.compile(r"\n\s*\n|\n(?=[-*] |\\?\[\w{1,12}\\?\])|(?<=[.\d]) (?=\[\d{1,3}\] [A-Z])")
ENTRY_WORDS = 80
"""An entry of a list of references has fewer words than this; a paragraph of text with citations has more."""
REFERENCE = re.compile(
    r"^\s*(?:[-*]\s+)?\\?\[\w{1,12}\\?\]|\bdoi\b|\bISBN\b|\bpp?\.\s*\d|\bet al\.|\bProc\.|\bJournal\b|\bPress\b|\bvol\."
    r"|^\W*(?:[A-Z]\.[ -]?){1,3}\s?[A-Z][a-z]+|^\W*[A-Z][\w-]+,? [A-Z](?:[A-Z]?\b|\.)"
    r"|\b\d+\s?(?:\(\d+\))?\s?:\s?\d+\s?[-\u2013]\s?\d+"
)
LINK = re.compile(r"https?://|\bwww\.")
YEAR = re.compile(r"\b(?:1[89]|20)\d\d[a-z]?\b")
CHANGE = re.compile(
    r"(?i)^\W*(?:n-i-bz|#?\d{5,7}\b|(?:release |version |v)\d+(?:\.\d+)+"
    r"|(?:add|bump|chang|deprecat|drop|fix|mov|refactor|remov|renam|updat|upgrad)(?:e|s|es|ed)?\b(?! to ))"
)
"""An entry of a list of changes: a version, the number of a bug, or what was done."""
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
"""Share of legal words above which a paragraph counts as legal."""
SEVERAL = 4
"""Least number of different legal words in a licence, or of course words in notices of a course."""
STEM = 5
"""Number of first letters by which forms of the same word are recognised."""
LEGAL_PART = 0.5
"""Share of a chunk's words in legal paragraphs above which it is a licence."""
COURSE = re.compile(
    r"\b(?:congrat\w*|well done|homeworks?|mid-?terms?|exams?|quiz(?:zes)?|syllabus|office hours|gradescope|moodle"
    r"|piazza|deadlines?|due (?:on|by|date|at)|hand in|submit|submissions?|grad(?:es?|ed|ing)|late policy|lecturers?"
    r"|instructors?|teaching assistants?|students|certificates?|semesters?|enroll\w*|prerequisites?|feedback"
    r"|fill (?:in|out|this)|next (?:\(?bonus\)? )?(?:unit|chapter|section|lecture|week|class|part|module|lesson)"
    r"|(?:last|this) (?:year|week|lecture|class|unit|course|chapter)|(?:the|our) course|to cover|my notes|taught by"
    r"|tutorials?|thank\w*|grateful|gratitude|acknowledg\w*|reviewers?|suggestions|sign up|join us|welcome"
    r"|assignments?|problem sets?|projects|meetings?|surveys?|errata|donat\w*|subscri\w*|newsletters?|mailing lists?"
    r"|e-?mail(?:ed|s)?|bug reports?|pull requests?|git(?:hub|lab)|websites?|editions?|authors?|readers?|publishers?"
    r"|this (?:book|textbook|manual|guide|series)|discounts?|workshops?|consult(?:ing|ants?))\b"
)
"""Words that occur in sentences about the course or the book itself: dates, the next part, thanks, offers, help."""
PERSON = re.compile(
    r"\b(?:you|your|we|us|our|i|me|my|authors?|readers?|please|thank\w*|this (?:assignment|book|course|edition))\b"
)
"""Words of a sentence that speaks to its reader."""
COURSE_PART = 0.3
"""Share of a chunk's words in sentences about the course above which it teaches nothing."""
SENTENCES = re.compile(r"\n+|(?<=[.!?])\**\s+")
DEGREE = re.compile(
    r"\b(?:received|holds?|earned|obtained|completed) (?:his|her|their|the|an?)\b[^.]{0,40}?"
    r"\b(?:B\.?\s?S|B\.?\s?A|M\.?\s?S|Ph\.?\s?D|D\.?\s?Phil|bachelor|master|doctora?t?e?|diploma|degrees?)\b"
)
CAREER = re.compile(
    r"\bresearch interests\b|\b(?:assistant|associate|full|emeritus) professor\b|\bProfessor (?:of|at)\b", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A chunk's paragraphs, and the number of its words in prose, in displays and in all paragraphs."""

    text: str
    paragraphs: Sequence[str]
    """The text without headings, code, tables and display formulas."""
    words: int
    """Number of words in paragraphs that are not displays."""
    prose: int
    """Number of words in paragraphs of prose."""
    displays: int
    """Number of words in displays: code, tables and formulas."""
    titles: int
    """Number of words in headings."""

    @property
    def all_lines(self) -> list[str]:
        """Lines of the text, headings included."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    @property
    def lines(self) -> list[str]:
        """Lines of the paragraphs."""
        return [line.strip() for part in self.paragraphs for line in part.splitlines() if line.strip()]


def fault_of(text: str) -> str:
    """Reason why the form of a chunk shows that it teaches nothing; empty if no rule applies."""
    form = form_of(text)
    return next((reason for reason, holds in FAULTS if holds(form)), "")


def form_of(text: str) -> Form:
    """Split a chunk into paragraphs and count its words by kind: prose, displays, other."""
    # A chunk may begin within code: then its first fence is a closing one, with a blank line after it and none before.
    fence = FENCE.search(text)
    source = f"```\n{text}" if fence and fence[1] is not None and fence[2] is not None else text
    paragraphs: list[str] = []
    words = prose = displays = titles = 0
    for block in scan(source):
        if block.kind is BlockType.HEADING:
            titles += len(block.title.split())
            continue
        part = source[block.start : block.end]
        if block.kind is not BlockType.PARAGRAPH:
            displays += len(part.split())
            continue
        paragraphs.append(part)
        tokens = [token for token in _space_wide(LATEX.sub("", part)).split() if any(map(str.isalnum, token))]
        if _is_prose(tokens):
            prose += len(tokens)
        elif _is_display(part, tokens):
            displays += len(tokens)
            continue
        words += len(tokens)
    return Form(text=text, paragraphs=paragraphs, words=words, prose=prose, displays=displays, titles=titles)


def _is_display(part: str, tokens: Sequence[str]) -> bool:
    """Whether a paragraph is a formula, a function's head with its arguments, or a listing of indented lines."""
    if SIGN_WORDS * len(SIGNS.findall(part)) >= len(tokens):
        return True
    lines = part.splitlines()
    return len(lines) >= MIN_LINES and sum(line[:1] in " \t" for line in lines) >= INDENTED * len(lines)


def _space_wide(text: str) -> str:
    """Put blanks around every wide character, so that each counts as a word."""
    return WIDE.sub(r" \g<0> ", text)


def _is_prose(tokens: Sequence[str]) -> bool:
    """Whether a paragraph of any script is prose: sentences of plain words, or rows of such words without commas."""
    plain = [_is_plain(token) for token in tokens]
    joined = [left and right for left, right in pairwise(plain)]
    joined = [both and token[-1] not in ",;" for both, token in zip(joined, tokens, strict=False)]
    neighbours = sum(left or right for left, right in pairwise([False, *joined, False]))
    ends = sum(token[-1] in ".!?" and len(token) > SIGN for token in tokens)
    has_sentences = ends * SENTENCE_WORDS >= len(tokens)
    return (sum(plain) if has_sentences else neighbours) >= RUNNING * len(tokens)


def _is_plain(token: str) -> bool:
    """Whether a token looks like an ordinary word of a sentence: not a name, number, identifier or formula letter."""
    bare = token.strip("\"'\u201c\u201d\u2018\u2019()*_,;:.!?-\u2013\u2014\u2026")
    if WIDE.search(bare):
        return True
    is_word = 1 < len(bare) <= LONGEST or bare in SHORT_WORDS
    return is_word and not bare[0].isupper() and not NO_LETTER.search(bare)


def _is_course(form: Form) -> bool:
    """Whether much of a chunk is about the course or the book: work that is due, the next part, thanks, help."""
    parts = [part for text in form.paragraphs for part in SENTENCES.split(text.casefold())]
    matches = [COURSE.findall(part) if PERSON.search(part) else [] for part in parts]
    size = sum(len(part.split()) for part, words in zip(parts, matches, strict=True) if words)
    return _has_several(matches) and size > COURSE_PART * len(form.text.split())


def _has_several(matches: Sequence[Sequence[str]]) -> bool:
    """Whether several different words were matched: a single one may be the subject that the text teaches."""
    return len({word.removeprefix("this ")[:STEM] for words in matches for word in words}) >= SEVERAL


def _is_legal(form: Form) -> bool:
    """Whether most of a chunk is legal text, with several different words of a licence."""
    parts = re.split(r"\n\s*\n", _space_wide(form.text.casefold()))
    matches = [LEGAL.findall(part) for part in parts]
    if not _has_several(matches):
        return False
    sizes = [len(part.split()) for part in parts]
    legal = sum(size for size, words in zip(sizes, matches, strict=True) if len(words) > max(1, LEGAL_SHARE * size))
    return legal > LEGAL_PART * sum(sizes) or sum(map(len, matches)) > LEGAL_SHARE * sum(sizes)


def _is_biography(form: Form) -> bool:
    """Whether a chunk has biographies: degrees and positions of authors."""
    degrees = len(DEGREE.findall(form.text))
    return degrees > 0 and degrees + len(CAREER.findall(form.text)) > 1


def _are_most(lines: Sequence[str], holds: Callable[[str], bool]) -> bool:
    """Whether `holds` is true of most lines and these have most words: one line of prose can outweigh a list."""
    entries = [line for line in lines if holds(line)]
    words, entry_words = (sum(len(line.split()) for line in part) for part in (lines, entries))
    return len(lines) >= MIN_LINES and len(entries) >= LIST_SHARE * len(lines) and entry_words >= LIST_SHARE * words


def _is_contents(form: Form) -> bool:
    """Whether a chunk is a list of contents: numbered titles, or entries with dot leaders or rising page numbers."""
    if _are_most(form.all_lines, lambda line: bool(NUMBERED.match(line)) and not SENTENCE.search(line)):
        return True
    lines = form.lines
    entries = [match for line in lines if (match := ENTRY.match(line))]
    if len(lines) < MIN_LINES or len(entries) < LIST_SHARE * len(lines):
        return False
    if sum("." in match["leader"] for match in entries) >= LIST_SHARE * len(entries):
        return True
    pages = [int(match["page"]) for match in entries if match["page"].isdecimal()]
    rising = sum(left <= right for left, right in pairwise(pages))
    return len(pages) >= MIN_LINES and pages[0] < pages[-1] and rising >= RISING * (len(pages) - 1)


def is_sources(form: Form, *, least: int = MIN_LINES) -> bool:
    """Whether a text is a list of references: most entries, or most words, cite a work with its year, or a page.

    A list of fewer than `least` entries is none.
    """
    entries = [entry for entry in ENTRIES.split("\n\n".join(form.paragraphs)) if entry.strip()]
    cited = [
        entry
        for entry in entries
        if (LINK.search(entry) or (YEAR.search(entry) and REFERENCE.search(entry))) and len(entry.split()) < ENTRY_WORDS
    ]
    if len(entries) < least or len(cited) < least / 2:
        return False
    words = sum(len(entry.split()) for entry in cited)
    return len(cited) >= LIST_SHARE * len(entries) or words >= LIST_SHARE * form.words


FAULTS: tuple[tuple[str, Callable[[Form], bool]], ...] = (
    ("a licence: its words are about rights", _is_legal),
    ("notices of a course: what is due or comes next, thanks", _is_course),
    ("biographies: degrees and posts of authors", _is_biography),
    (
        "an index: most lines are a term and page numbers",
        lambda form: _are_most(form.lines, lambda line: bool(INDEX.match(line))),
    ),
    ("a list of contents: most lines end in a page number", _is_contents),
    (
        "a list of changes: most lines are a version, a bug or what was done",
        lambda form: _are_most(form.lines, lambda line: bool(CHANGE.match(line))),
    ),
    ("a list of references: most entries cite a work with its year, or a page", is_sources),
    ("an outline: its headings have more words than its sentences", lambda form: form.titles >= form.words > 0),
    (
        "says nothing: most words are names, numbers or debris",
        lambda form: form.words >= form.displays and form.prose <= PROSE_SHARE * form.words,
    ),
)
"""Reasons to drop a chunk, each with its test; the first one that holds is reported."""
