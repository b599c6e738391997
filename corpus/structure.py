"""Front and back matter recognised by their headings. Off by default: the judge then does the discarding."""

import re
from collections.abc import Sequence
from typing import Literal

from corpus.chunk import Discard, Excluded, Section, sections
from infuser_core.schemas import Page

FRONT = re.compile(
    r"(?:table of )?contents|(?:list of )?(?:figures|tables|contributors|abbreviations)|preface.*|foreword.*"
    r"|acknowledge?ments?|dedication|about (?:the|this) (?:author|authors|book|text)|copyright.*|how to use this book",
    re.IGNORECASE,
)
BACK = re.compile(
    r"(?:subject |author |name )?index|references|bibliography|works cited|further reading|glossary|colophon"
    r"|(?:answers?|solutions?)(?: keys?| to .*)?|answer keys?(?: .*)?",
    re.IGNORECASE,
)
NUMBER = re.compile(r"^(?:(?:chapter|appendix|part)\s+)?(?:\d+(?:\.\d+)*|[A-Z])[.:)]?\s+(?=\S)", re.IGNORECASE)


def exclude(page: Page, *, mode: Literal["off", "headings"] = "off") -> list[Excluded]:
    """Spans that are front or back matter, in order, without overlap. Mode `off` names none.

    A matching heading takes its subsections with it. Text before the first heading is a title page.
    """
    if mode == "off":
        return []
    parts = sections(page.markdown)
    if not any(part.path for part in parts):
        return []
    result: list[Excluded] = []
    if not parts[0].path:
        result.append(Excluded(start=parts[0].start, end=parts[0].end, reason=Discard.FRONT_MATTER))
    for place, part in enumerate(parts):
        reason = _reason(part.path[-1]) if part.path else None
        if reason and not (result and part.start < result[-1].end):
            result.append(Excluded(start=part.start, end=_end(parts, place), reason=reason))
    return result


def _reason(title: str) -> Discard | None:
    bare = NUMBER.sub("", title.strip(" *_:"), count=1).strip()
    if FRONT.fullmatch(bare):
        return Discard.FRONT_MATTER
    return Discard.BACK_MATTER if BACK.fullmatch(bare) else None


def _end(parts: Sequence[Section], place: int) -> int:
    depth = parts[place].blocks[0].level
    below = [part.start for part in parts[place + 1 :] if part.blocks[0].level <= depth]
    return below[0] if below else parts[-1].end
