"""Find the front and back matter of a book, by rules on its headings or with a language model.

The teaching text begins at the first chapter and ends at the end marker, the first heading of the closing matter. If
this pass is off, the judge has to discard such matter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.chunk.chunk import Discard, Excluded, Section, split_sections
from corpus.chunk.form import form_of, is_sources
from corpus.model_reply import ModelCall, ReplyProblem, ask_model
from infuser_core.prompts.templates import Template
from infuser_core.protocols import ChatModel
from infuser_core.schemas import Page

RULES = 9
"""Version of the rules, for recipes: the titles below, and the subsections that are excluded with them."""

FRONT = re.compile(
    r"(?:table of )?contents|(?:brief|detailed) contents"
    r"|(?:list of )?(?:figures|tables|contributors|abbreviations|symbols)"
    r"|preface.*|foreword.*|acknowledge?ments?|dedication|about (?:the|this) (?:authors?|books?|text|series|publisher)"
    r"|copyright.*|how to use this book|to the (?:student|reader|instructor)s?|colophon|credits|contributors"
    r"|\u76ee\u5f55|\u76ee\u6b21|\u524d\u8a00|\u5e8f\u8a00?|\u81f4\u8c22",
    re.IGNORECASE,
)
_WORK = r"(?:this|the) (?:book|manual|guide|document|tutorial|handbook|text)"
ABOUT = re.compile(
    rf"typographic(?:al)? conventions|document conventions|(?:conventions|terminology) (?:used )?in {_WORK}"
    rf"|intended audience.*|who should read {_WORK}|how to (?:use|read) {_WORK}"
    rf"|how {_WORK} is (?:organi[sz]ed|structured)"
    rf"|(?:organi[sz]ation|structure|outline|scope|purpose) of {_WORK}|about {_WORK}",
    re.IGNORECASE,
)
"""Titles, at any level, of sections about the book itself."""
BACK = re.compile(
    r"(?:.* )?index(?: of .*)?|references|(?:.* )?bibliography|works cited|literature(?: list)?|list of references"
    r"|further reading|glossary(?: of .*)?"
    r"|(?:the )?(?:gnu|creative commons) .*licen[cs]e.*|(?:.* )?copying (?:conditions|information|this .*)"
    r"|(?:answers?|solutions?)(?: keys?| manual| to .*| for .*)?|answer keys?(?: .*)?"
    r"|legal (?:sections?|notices?|information)"
    r"|about the authors?|authors|credits|endnotes|colophon|(?:old(?:er)? )?news|release notes.*|change ?logs?"
    r"|readme\b.*|contributing(?: to .*)?|code of conduct"
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
"""Largest share of the text that can come before the first chapter, or be excluded with one title."""
BACK_SHARE = 0.5
"""Share of the text, from its start, in which no end marker is recognised."""
TITLES = 2
"""Most headings above the level of the first chapter that come before it: the book's title, its subtitle or author."""
HEADINGS_PER_PROMPT = 300
"""Headings in one prompt; a longer book takes several."""
MAX_TOKENS = 256
"""Length limit of a reply, tokens."""
TITLE_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BookBounds:
    """Start and end of the teaching text of a book."""

    source_id: str
    first: int
    """Start of the first chapter, in characters of the Markdown; 0 if none was recognised."""
    end: int
    """Start of the closing matter, in characters; the text's length if there is none."""
    decided_by: str
    """`rules`, or the name of the model."""
    problem: str
    """Why the model did not decide; empty if it did, or if no model was used."""


def exclude(page: Page, bounds: BookBounds | None = None) -> list[Excluded]:
    """Spans of a book to exclude as front or back matter, in order, without overlap.

    `bounds` were chosen by a model; without them the rules find them. Everything before the first chapter is excluded
    except introductions, and everything from the end marker on. In between, sections whose title is one of front or
    back matter are excluded with their subsections.
    """
    parts = split_sections(page.markdown)
    if not any(part.path for part in parts):
        return []
    bounds = bounds or by_rules(page.source_id, parts)
    # Level of the first chapter's heading, or the highest level in the book.
    levels = {part.start: level_of(part) for part in parts if part.path}
    depth = levels.get(bounds.first, min(levels.values()))
    spans: list[Excluded] = []
    introduction_end = 0
    for place, part in enumerate(parts):
        if part.start < introduction_end or (spans and part.start < spans[-1].end):
            continue
        title = bare_title(part.path[-1]) if part.path else ""
        if part.start < bounds.first and TEACHES.fullmatch(title):
            introduction_end = subtree_end(parts, place)
            continue
        by_title = _reason_of_title(title, parts, place, depth, page.markdown)
        if part.start >= bounds.end:
            reason: Discard | None = Discard.BACK_MATTER
        elif part.start < bounds.first or not part.path:
            reason = Discard.FRONT_MATTER
        else:
            reason = by_title
        if reason:
            end = subtree_end(parts, place) if part.path and by_title else part.end
            # If only the table of contents has a heading of the highest level, the whole book would be its subsection.
            end = end if end - part.start <= FRONT_SHARE * parts[-1].end else part.end
            # Do not exclude past a boundary: the sections after it have their own reasons.
            edges = [edge for edge in (bounds.first, bounds.end) if part.start < edge]
            spans.append(Excluded(start=part.start, end=min([end, *edges]), reason=reason))
    return spans


def _reason_of_title(title: str, parts: Sequence[Section], place: int, depth: int, text: str) -> Discard | None:
    """Front or back matter according to a section's title: lists of sources end a chapter, others are one.

    None for all other titles. A section 2.7 called "Figures" or "Index" teaches something, and so do "References" with
    code or formulas, or without works or addresses before other sections of the chapter.
    """
    part = parts[place]
    if SOURCES.fullmatch(title):
        end = subtree_end(parts, place)
        form = form_of(text[part.start : end])
        has_answers = title.lower().startswith(("answer", "solution"))
        is_list = is_sources(form, least=1) or not (has_answers or title.lower().startswith("references"))
        is_last = level_of(part) <= depth or all(
            level_of(each) < level_of(part) or BACK.fullmatch(bare_title(each.path[-1]))
            for each in [each for each in parts if each.start >= end][:1]
        )
        return Discard.BACK_MATTER if (has_answers or not form.displays) and (is_list or is_last) else None
    if ABOUT.fullmatch(title):
        return Discard.FRONT_MATTER
    if not part.path or level_of(part) > depth:
        return None
    if FRONT.fullmatch(title):
        return Discard.FRONT_MATTER
    return Discard.BACK_MATTER if BACK.fullmatch(title) else None


def by_rules(source_id: str, parts: Sequence[Section], problem: str = "") -> BookBounds:
    """Find the first chapter, numbered 1 or 0, and the end marker, after which all chapters are closing matter."""
    length = parts[-1].end if parts else 0
    headed = [place for place, part in enumerate(parts) if part.path]
    early = [place for place in headed if parts[place].start <= FRONT_SHARE * length]
    first = next((place for place in early if _is_first_chapter(parts, place)), None)
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


def _is_first_chapter(parts: Sequence[Section], place: int) -> bool:
    """Whether a section is numbered as the first chapter, and not a numbered step in a chapter without a number."""
    if not FIRST.fullmatch(parts[place].path[-1].strip(" *_")):
        return False
    above = (part for part in parts[:place] if part.path and level_of(part) < level_of(parts[place]))
    return sum(not FRONT.fullmatch(bare_title(part.path[-1])) for part in above) <= TITLES


def bare_title(title: str) -> str:
    """Remove emphasis and the section number from a title."""
    return NUMBER.sub("", title.strip(" *_:"), count=1).strip()


def level_of(part: Section) -> int:
    """Level of the heading of a section."""
    return part.blocks[0].level


def subtree_end(parts: Sequence[Section], place: int) -> int:
    """End of the section at `place`, including its subsections, in characters of the Markdown."""
    depth = level_of(parts[place])
    return next((part.start for part in parts[place + 1 :] if level_of(part) <= depth), parts[-1].end)


def find_bounds(page: Page, model: ChatModel, template: Template) -> tuple[BookBounds, list[ModelCall]]:
    """Let a model choose the bounds of the teaching text from the list of headings; also returns its replies.

    If it names a number that is not in the list, it is asked again. Without a usable answer the rules decide, and
    `problem` says why. `template` has the slot `{headings}`.
    """
    parts = split_sections(page.markdown)
    headed = [place for place, part in enumerate(parts) if part.path]
    if not headed:
        return by_rules(page.source_id, parts, "the book has no headings"), []
    windows = [headed[start : start + HEADINGS_PER_PROMPT] for start in range(0, len(headed), HEADINGS_PER_PROMPT)]
    # One line for each heading: number, level, title and length of the section.
    lines = {
        place: f"{place} | level {level_of(parts[place])} | {parts[place].path[-1][:TITLE_CHARS]} "
        f"| {parts[place].end - parts[place].start} characters"
        for place in headed
    }
    prompts = [template.messages(headings="\n".join(lines[place] for place in window)) for window in windows]
    items = [f"{page.source_id}: headings {window[0]}-{window[-1]}" for window in windows]

    def parse(place: int, reply: dict[str, Any]) -> tuple[int | None, int | None]:
        return _parse_places(reply, windows[place])

    values, calls = ask_model(model, prompts, parse, task="structure", items=items, max_tokens=MAX_TOKENS)
    return _bounds_of_values(page.source_id, parts, values, model.name), calls


def _parse_places(reply: dict[str, Any], window: Sequence[int]) -> tuple[int | None, int | None]:
    """Read (first chapter, end marker) from a reply.

    Raises ReplyProblem unless they are null or ascending numbers of the list.
    """
    values: list[int | None] = []
    for name in ("first_chapter", "end_marker"):
        if name not in reply:
            raise ReplyProblem(f'"{name}" is missing')
        value = reply[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in set(window)):
            raise ReplyProblem(f'"{name}" is {value!r}, which is neither null nor a number of the list')
        values.append(value)
    first, end = values
    if first is not None and end is not None and end <= first:
        raise ReplyProblem(f"the end marker {end} does not come after the first chapter {first}")
    return first, end


def _bounds_of_values(
    source_id: str, parts: Sequence[Section], values: Sequence[tuple[int | None, int | None] | None], name: str
) -> BookBounds:
    answers = [value for value in values if value is not None]
    if len(answers) < len(values):
        problem = f"{len(values) - len(answers)} of {len(values)} prompts had no usable answer"
        return by_rules(source_id, parts, problem)
    first = next((start for start, _ in answers if start is not None), None)
    # An end marker in an earlier window, before more chapters, was a list of references of one chapter.
    ends = [stop for _, stop in answers[-1:] if stop is not None]
    if first is None:
        return by_rules(source_id, parts, "no first chapter was named")
    if ends and ends[0] <= first:
        return by_rules(source_id, parts, "the end marker comes before the first chapter")
    end = parts[ends[0]].start if ends else parts[-1].end
    return BookBounds(source_id=source_id, first=parts[first].start, end=end, decided_by=name, problem="")
