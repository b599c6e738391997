"""The first chapter and the end marker of a book, as a language model reads its headings. It sees no other text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.chunk import Section, sections
from corpus.model_reply import ModelCall, ReplyProblem, ask
from corpus.structure import Bounds, by_rules, level_of
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.prompts.load import Template
from infuser_core.schemas import Page

SHOWN = 300
"""Headings in one prompt; a longer book is shown in several."""
MAX_TOKENS = 256
"""Length limit of a reply, tokens."""
ATTEMPTS = 3
"""Times that one list of headings is put to the model."""
TITLE_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBounds:
    """What a model said about a book."""

    bounds: Bounds
    """Where the teaching text lies."""
    calls: list[ModelCall]
    """The model's replies, also those that could not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookBounds:
    """Where a book's teaching text lies, as a row."""

    source_id: str
    """The book."""
    first: int
    """Start of the first chapter, characters of its Markdown; 0 where none was recognised."""
    end: int
    """Start of the matter that closes the book, characters; the text's length where there is none."""
    decided_by: str
    """`rules`, or the name of the model."""
    problem: str
    """Why the model did not decide; empty where it did."""

    def bounds(self) -> Bounds:
        """As the structure pass takes them."""
        return Bounds(first=self.first, end=self.end, decided_by=self.decided_by, problem=self.problem)


def row_of(page: Page, found: FoundBounds) -> BookBounds:
    """The row of a book."""
    bounds = found.bounds
    return BookBounds(
        source_id=page.source_id,
        first=bounds.first,
        end=bounds.end,
        decided_by=bounds.decided_by,
        problem=bounds.problem,
    )


def find_bounds(
    page: Page,
    model: ChatModel,
    template: Template,
    *,
    attempts: int = ATTEMPTS,
    progress: Progress = no_progress,
) -> FoundBounds:
    """Bounds named by the model, and its replies. Numbers that are no headings of the list are refused and asked again.

    Where no usable answer comes, the rules decide and `problem` says why. `template` has the slot `{headings}`.
    """
    parts = sections(page.markdown)
    headed = [place for place, part in enumerate(parts) if part.path]
    if not headed:
        whole = Bounds(first=0, end=len(page.markdown), decided_by="rules", problem="the book has no headings")
        return FoundBounds(bounds=whole, calls=[])
    windows = [headed[start : start + SHOWN] for start in range(0, len(headed), SHOWN)]
    prompts = [template.messages(headings=_listed(parts, window)) for window in windows]
    items = [f"{page.source_id}: headings {window[0]}-{window[-1]}" for window in windows]

    def parse(place: int, found: dict[str, Any]) -> tuple[int | None, int | None]:
        return _checked(found, windows[place])

    asked = ask(
        model,
        prompts,
        parse,
        task="structure",
        items=items,
        max_tokens=MAX_TOKENS,
        attempts=attempts,
        progress=progress,
    )
    return FoundBounds(bounds=_bounds(parts, asked.values, model.name), calls=asked.calls)


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


def _bounds(parts: Sequence[Section], values: Sequence[tuple[int | None, int | None] | None], name: str) -> Bounds:
    ruled = by_rules(parts)
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        problem = f"{len(values) - len(known)} of {len(values)} prompts had no usable answer"
        return Bounds(first=ruled.first, end=ruled.end, decided_by="rules", problem=problem)
    first = next((start for start, _ in known if start is not None), None)
    # An end marker in front of a window that goes on with chapters was a chapter's own list of references.
    ends = [stop for _, stop in known[-1:] if stop is not None]
    if first is None or (ends and ends[0] <= first):
        problem = "no first chapter was named" if first is None else "the end marker comes before the first chapter"
        return Bounds(first=ruled.first, end=ruled.end, decided_by="rules", problem=problem)
    end = parts[ends[0]].start if ends else parts[-1].end
    return Bounds(first=parts[first].start, end=end, decided_by=name)
