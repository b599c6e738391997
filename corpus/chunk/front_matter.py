"""Front and back matter of a book: first chapter and end marker, by rules on the headings or by a language model.

Where this pass is off, the judge does the discarding.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.chunk.chunk import Discard, Excluded, Section, sections
from corpus.model_reply import ModelCall, ReplyProblem, ask
from infuser_core.engines.protocols import ChatModel
from infuser_core.prompts.load import Template
from infuser_core.schemas import Page

RULES = 5
"""Version of the rules, for recipes: the titles below, and what they take with them."""

FRONT = re.compile(
    r"(?:table of )?contents|(?:brief|detailed) contents"
    r"|(?:list of )?(?:figures|tables|contributors|abbreviations|symbols)"
    r"|preface.*|foreword.*|acknowledge?ments?|dedication|about (?:the|this) (?:authors?|books?|text|series|publisher)"
    r"|copyright.*|how to use this book|to the (?:student|reader|instructor)s?|colophon|credits|contributors"
    r"|\u76ee\u5f55|\u76ee\u6b21|\u524d\u8a00|\u5e8f\u8a00?|\u81f4\u8c22",
    re.IGNORECASE,
)
BACK = re.compile(
    r"(?:.* )?index(?: of .*)?|references|(?:.* )?bibliography|works cited|literature(?: list)?|list of references"
    r"|further reading|glossary(?: of .*)?"
    r"|(?:the )?(?:gnu|creative commons) .*licen[cs]e.*|(?:.* )?copying (?:conditions|information|this .*)"
    r"|(?:answers?|solutions?)(?: keys?| manual| to .*| for .*)?|answer keys?(?: .*)?"
    r"|about the authors?|credits|endnotes|colophon"
    r"|licen[cs](?:es?|ing)|change history|revision history|\u53c2\u8003\u6587\u732e|\u7d22\u5f15|\u7b54\u6848",
    re.IGNORECASE,
)
SOURCES = re.compile(
    r"(?:references|(?:.* )?bibliography|works cited|further reading|list of references"
    r"|(?:answers?|solutions?)(?: keys?| to .*)?|answer keys?(?: .*)?|\u53c2\u8003\u6587\u732e)",
    re.IGNORECASE,
)
NUMBER = re.compile(
    r"^(?:(?:chapter|appendix|part|annex)\s+)?(?:\d+(?:\.\d+)*|[A-Z](?=[.:)]|\s\s)|[IVX]+(?=[.:)]))[.:)]?\s+(?=\S)"
    r"|^(?:appendix|annex)\s+[A-Z]\s+(?=\S)",
    re.IGNORECASE,
)
FIRST = re.compile(
    r"(?:chapter|unit|lesson|lecture|part|module|kapitel|chapitre)\s*(?:[01]|I|one|zero)(?:\b|:).*|[01][.:)]?\s+\S.*|I[.:)]\s+\S.*"
    r"|\u7b2c(?:\u4e00|1)[\u7ae0\u90e8\u7bc7\u8bb2].*",
    re.IGNORECASE,
)
TEACHES = re.compile(
    r"(?:introduction|prologue|overview|abstract|summary|executive summary|synopsis)\b.*", re.IGNORECASE
)
FRONT_SHARE = 0.35
"""Largest share of the text that may lie before the first chapter, or below the title of front or back matter."""
BACK_SHARE = 0.5
"""Share of the text before which no end marker stands."""
SHOWN = 300
"""Headings in one prompt; a longer book is shown in several."""
MAX_TOKENS = 256
"""Length limit of a reply, tokens."""
TITLE_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BookBounds:
    """First and last line of a book's teaching text."""

    source_id: str
    """The book."""
    first: int
    """Start of the first chapter, characters of its Markdown; 0 where none was recognised."""
    end: int
    """Start of the matter that closes the book, characters; the text's length where there is none."""
    decided_by: str
    """`rules`, or the name of the model."""
    problem: str
    """Why a model that was asked did not decide; empty otherwise."""


def exclude(page: Page, bounds: BookBounds | None = None) -> list[Excluded]:
    """Spans that are front or back matter, in order, without overlap.

    `bounds` are those that a model found; the rules find them where there are none.

    Before the first chapter everything goes that is not an introduction; from the end marker on everything goes; in
    between, sections named like front or back matter go with their subsections.
    """
    parts = sections(page.markdown)
    if not any(part.path for part in parts):
        return []
    bounds = bounds or by_rules(page.source_id, parts)
    depth = _chapter_level(parts, bounds)
    spans: list[Excluded] = []
    kept_until = 0
    for place, part in enumerate(parts):
        if part.start < kept_until or (spans and part.start < spans[-1].end):
            continue
        title = bare_title(part.path[-1]) if part.path else ""
        if part.start < bounds.first and TEACHES.fullmatch(title):
            kept_until = subtree_end(parts, place)
            continue
        reason = _reason(title, part, bounds, depth)
        if reason:
            whole = subtree_end(parts, place) if part.path and _named(title, part, depth) else part.end
            # Where the contents alone have a heading of the highest level, the whole book would be below it.
            end = whole if whole - part.start <= FRONT_SHARE * parts[-1].end else part.end
            spans.append(Excluded(start=part.start, end=_clipped(end, part, bounds), reason=reason))
    return spans


def _reason(title: str, part: Section, bounds: BookBounds, depth: int) -> Discard | None:
    if part.start >= bounds.end:
        return Discard.BACK_MATTER
    if part.start < bounds.first or not part.path:
        return Discard.FRONT_MATTER
    return _named(title, part, depth)


def _named(title: str, part: Section, depth: int) -> Discard | None:
    """The role of a title. Lists of sources are so named anywhere, everything else on the level of chapters only.

    A section 2.7 called "Figures" or "Index" teaches something.
    """
    if SOURCES.fullmatch(title):
        return Discard.BACK_MATTER
    if not part.path or level_of(part) > depth:
        return None
    if FRONT.fullmatch(title):
        return Discard.FRONT_MATTER
    return Discard.BACK_MATTER if BACK.fullmatch(title) else None


def _chapter_level(parts: Sequence[Section], bounds: BookBounds) -> int:
    """Level of the first chapter's heading, or the highest level there is."""
    levels = [level_of(part) for part in parts if part.path]
    return next((level_of(part) for part in parts if part.path and part.start == bounds.first), min(levels))


def _clipped(end: int, part: Section, bounds: BookBounds) -> int:
    """Not beyond a boundary: what lies behind it is judged for itself."""
    return min([end, *(edge for edge in (bounds.first, bounds.end) if part.start < edge)])


def by_rules(source_id: str, parts: Sequence[Section], problem: str = "") -> BookBounds:
    """The first chapter is numbered 1, or 0; the end marker is the first of the closing matter that runs to the end."""
    length = parts[-1].end if parts else 0
    headed = [place for place, part in enumerate(parts) if part.path]
    first = next((place for place in headed if _is_first(parts, place, length)), None)
    depth = level_of(parts[first]) if first is not None else min((level_of(parts[n]) for n in headed), default=0)
    end = length
    for place in reversed(headed):
        if level_of(parts[place]) > depth:
            continue
        if parts[place].start < BACK_SHARE * length or not BACK.fullmatch(bare_title(parts[place].path[-1])):
            break
        end = parts[place].start
    start = parts[first].start if first is not None else 0
    return BookBounds(source_id=source_id, first=start, end=end, decided_by="rules", problem=problem)


def _is_first(parts: Sequence[Section], place: int, length: int) -> bool:
    part = parts[place]
    return part.start <= FRONT_SHARE * length and bool(FIRST.fullmatch(part.path[-1].strip(" *_")))


def bare_title(title: str) -> str:
    """A title without emphasis and section number."""
    return NUMBER.sub("", title.strip(" *_:"), count=1).strip()


def level_of(part: Section) -> int:
    """Level of a section's heading."""
    return part.blocks[0].level


def subtree_end(parts: Sequence[Section], place: int) -> int:
    """End of a section with its subsections."""
    depth = level_of(parts[place])
    return next((part.start for part in parts[place + 1 :] if level_of(part) <= depth), parts[-1].end)


def find_bounds(page: Page, model: ChatModel, template: Template) -> tuple[BookBounds, list[ModelCall]]:
    """Bounds named by the model, and its replies. Numbers that are no headings of the list are refused and asked again.

    Where no usable answer comes, the rules decide and `problem` says why. `template` has the slot `{headings}`.
    """
    parts = sections(page.markdown)
    headed = [place for place, part in enumerate(parts) if part.path]
    if not headed:
        return by_rules(page.source_id, parts, "the book has no headings"), []
    windows = [headed[start : start + SHOWN] for start in range(0, len(headed), SHOWN)]
    prompts = [template.messages(headings=_listed(parts, window)) for window in windows]
    items = [f"{page.source_id}: headings {window[0]}-{window[-1]}" for window in windows]

    def parse(place: int, found: dict[str, Any]) -> tuple[int | None, int | None]:
        return _checked(found, windows[place])

    asked = ask(model, prompts, parse, task="structure", items=items, max_tokens=MAX_TOKENS)
    return _bounds(page.source_id, parts, asked.values, model.name), asked.calls


def _listed(parts: Sequence[Section], window: Sequence[int]) -> str:
    """Number, level, title and length of every heading."""
    return "\n".join(
        f"{place} | level {level_of(parts[place])} | {parts[place].path[-1][:TITLE_CHARS]} "
        f"| {parts[place].end - parts[place].start} characters"
        for place in window
    )


def _checked(found: dict[str, Any], window: Sequence[int]) -> tuple[int | None, int | None]:
    """(first chapter, end marker). Raises ReplyProblem for anything but numbers of the list in their order, or null."""
    values: list[int | None] = []
    for name in ("first_chapter", "end_marker"):
        if name not in found:
            raise ReplyProblem(f'"{name}" is missing')
        value = found[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in set(window)):
            raise ReplyProblem(f'"{name}" is {value!r}, which is neither null nor a number of the list')
        values.append(value)
    first, end = values
    if first is not None and end is not None and end <= first:
        raise ReplyProblem(f"the end marker {end} does not come after the first chapter {first}")
    return first, end


def _bounds(
    source_id: str, parts: Sequence[Section], values: Sequence[tuple[int | None, int | None] | None], name: str
) -> BookBounds:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return by_rules(source_id, parts, f"{len(values) - len(known)} of {len(values)} prompts had no usable answer")
    first = next((start for start, _ in known if start is not None), None)
    # An end marker in front of a window that goes on with chapters was a chapter's own list of references.
    ends = [stop for _, stop in known[-1:] if stop is not None]
    if first is None:
        return by_rules(source_id, parts, "no first chapter was named")
    if ends and ends[0] <= first:
        return by_rules(source_id, parts, "the end marker comes before the first chapter")
    end = parts[ends[0]].start if ends else parts[-1].end
    return BookBounds(source_id=source_id, first=parts[first].start, end=end, decided_by=name, problem="")
