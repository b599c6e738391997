"""Markdown to documents of bounded length. Chunks are exact slices of the source; nothing is lost unnamed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise, takewhile

from corpus.chunk.blocks import Block, Kind, scan
from corpus.chunk.split import Count, Measure, Span, pack, pieces, trim
from corpus.read.garble import MARK
from infuser_core.config.corpus import ChunkSettings
from infuser_core.schemas import Document, Page

PATH_JOINT = " > "
"""Stands between the titles of a header path."""
CONVERT = "convert"
"""Stage of text that is not in the Markdown."""
PROMPT_TYPE = "mcq"
"""Generator route written into every document."""


class Discard(StrEnum):
    """Reasons for which a span is no candidate for the pool."""

    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    FRONT_MATTER = "front_matter"
    BACK_MATTER = "back_matter"
    GARBLED = "garbled_formula"


_BY_STRUCTURE = frozenset({Discard.FRONT_MATTER, Discard.BACK_MATTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A span that the structure pass takes out before chunking."""

    start: int
    """First character."""
    end: int
    """One past the last character."""
    reason: Discard
    """front_matter or back_matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One span of the source: a candidate, or a discard with its reason."""

    document: Document
    """The span as a document row."""
    discard: Discard | None
    """Why it is no candidate; None for a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A span of a source that is no document. With the documents, these tile the source's Markdown.

    What the converter left out, with the stage `convert`, comes beside them.
    """

    source_id: str
    """Source of the span."""
    start: int
    """First character in the source's Markdown."""
    end: int
    """One past the last character."""
    stage: str
    """convert, structure, chunk, judge or overlap."""
    reason: str
    """Kind of what conversion left out (running_head, navigation, image, ...), front_matter, back_matter, too_short,
    too_long, garbled_formula, blank, the judge's own words, or what the text overlaps with."""
    header_path: str
    """Ancestor headings, joined by " > "."""
    num_tokens: int
    """Tokens of the span."""
    response: str
    """The judging model's reply; empty where a rule decided."""
    text: str = ""
    """Text that the converter left out: it is in no Markdown, so that start and end are -1; empty for a span."""
    page: int = -1
    """Page of the file that such a text stands on, 0-based; -1 for a span, and where there are no pages."""

    @property
    def is_span(self) -> bool:
        """Whether it is text of the Markdown, and not blank."""
        return self.stage != CONVERT and self.reason != "blank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with the blocks up to the next heading, or several neighbouring ones."""

    blocks: list[Block]
    """Blocks in order."""
    path: tuple[str, ...]
    """Titles of the ancestors and of the section itself; the common prefix where several are joined."""
    top: int
    """Start of the top-level heading above: joining never crosses it."""

    @property
    def start(self) -> int:
        """First character."""
        return self.blocks[0].start

    @property
    def end(self) -> int:
        """One past the last character."""
        return self.blocks[-1].end


def sections(source: str) -> list[Section]:
    """Sections that tile the source."""
    result: list[Section] = []
    stack: list[Block] = []
    for block in scan(source):
        if block.kind is Kind.HEADING:
            stack = [above for above in stack if above.level < block.level] + [block]
        if block.kind is Kind.HEADING or not result:
            top = stack[0].start if stack else -1
            result.append(Section(blocks=[block], path=tuple(above.title for above in stack), top=top))
        else:
            result[-1].blocks.append(block)
    return result


def chunk(
    page: Page, count: Count, config: ChunkSettings, domain: str, *, excluded: Sequence[Excluded] = ()
) -> list[Chunk]:
    """Candidates and discards of one source in order. Together they cover everything but blank characters.

    `count` gives the tokens of a text. Every candidate satisfies T_min <= tokens <= T_max, counted on its slice.
    """
    measure = Measure(source=page.markdown, count=count)

    def reason_of(section: Section) -> Discard | None:
        return next((span.reason for span in excluded if span.start <= section.start < span.end), None)

    result: list[Chunk] = []
    for reason, found in groupby(sections(page.markdown), reason_of):
        parts = list(found)
        for part in parts if reason else _grouped(parts, measure, config):
            spans = [(part.start, part.end)] if reason else _spans(part, measure, config)
            rows = (_row(page, span, part.path, measure, config, domain, reason) for span in spans)
            result += [row for row in rows if row]
    return result


def _grouped(parts: Sequence[Section], measure: Measure, config: ChunkSettings) -> list[Section]:
    """Small sections joined: with those that follow under the same top-level heading, else with the one before."""
    if config.small_sections == "drop":
        return list(parts)
    groups: list[Section] = []
    place = 0
    while place < len(parts):
        group = parts[place]
        place += 1
        while _small(group, measure, config) and place < len(parts) and parts[place].top == group.top:
            group = _join(group, parts[place])
            place += 1
        before = groups[-1] if groups else None
        if before and _small(group, measure, config) and before.top == group.top:
            groups[-1] = _join(before, group)
        else:
            groups.append(group)
    return groups


def _small(section: Section, measure: Measure, config: ChunkSettings) -> bool:
    return config.min_tokens > 0 and not measure.exceeds(section.start, section.end, config.min_tokens - 1)


def _join(first: Section, second: Section) -> Section:
    common = takewhile(lambda titles: titles[0] == titles[1], zip(first.path, second.path, strict=False))
    path = tuple(title for title, _ in common)
    return Section(blocks=first.blocks + second.blocks, path=path, top=first.top)


def _spans(group: Section, measure: Measure, config: ChunkSettings) -> list[Span]:
    """The section as one chunk where it fits, else in several."""
    if not measure.exceeds(group.start, group.end, config.max_tokens):
        return [(group.start, group.end)]
    parts = pieces(group.blocks, measure, config.max_tokens)
    return pack(parts, measure, min_tokens=config.min_tokens, max_tokens=config.max_tokens)


def _row(
    page: Page,
    span: Span,
    path: tuple[str, ...],
    measure: Measure,
    config: ChunkSettings,
    domain: str,
    reason: Discard | None,
) -> Chunk | None:
    """The trimmed span; None where it is blank."""
    start, end = trim(page.markdown, *span)
    if start == end:
        return None
    tokens = measure(start, end)
    if reason is None and tokens < config.min_tokens:
        reason = Discard.TOO_SHORT
    if reason is None and tokens > config.max_tokens:
        reason = Discard.TOO_LONG
    if reason is None and MARK in page.markdown[start:end]:
        reason = Discard.GARBLED
    document = Document(
        document_id=f"{page.sha256[:12]}-{start}",
        source_id=page.source_id,
        header_path=PATH_JOINT.join(path),
        start=start,
        end=end,
        text=page.markdown[start:end],
        num_tokens=tokens,
        domain=domain,
        prompt_type=PROMPT_TYPE,
    )
    return Chunk(document=document, discard=reason)


def left_out(page: Page, rows: Sequence[Chunk]) -> list[Discarded]:
    """The spans of the source that are no candidates, blank ones included, so that nothing is unaccounted for."""
    dropped = [
        without(row.document, "structure" if row.discard in _BY_STRUCTURE else "chunk", row.discard.value)
        for row in rows
        if row.discard is not None
    ]
    spans = sorted((row.document.start, row.document.end) for row in rows if row.document.start >= 0)
    edges = [(0, 0), *spans, (len(page.markdown), len(page.markdown))]
    gaps = [(left[1], right[0]) for left, right in pairwise(edges) if left[1] < right[0]]
    blanks = [
        Discarded(
            source_id=page.source_id,
            start=start,
            end=end,
            stage="chunk",
            # The comparison splitter rewrites text: what it cannot be traced to is named, too.
            reason="blank" if not page.markdown[start:end].strip() else "not_traced",
            header_path="",
            num_tokens=0,
            response="",
        )
        for start, end in gaps
    ]
    return sorted([*dropped, *blanks], key=lambda row: row.start)


def unconverted(page: Page) -> list[Discarded]:
    """Pieces that the converter left out of the Markdown, in the order of the source."""
    pages = page.removed_pages or [-1] * len(page.removed)
    return [
        Discarded(
            source_id=page.source_id,
            start=-1,
            end=-1,
            stage=CONVERT,
            reason=reason,
            header_path="",
            num_tokens=0,
            response="",
            text=text,
            page=number,
        )
        for text, reason, number in zip(page.removed, page.removed_for, pages, strict=True)
    ]


def without(document: Document, stage: str, reason: str, response: str = "") -> Discarded:
    """The span of a document that is taken out, and by what."""
    return Discarded(
        source_id=document.source_id,
        start=document.start,
        end=document.end,
        stage=stage,
        reason=reason,
        header_path=document.header_path,
        num_tokens=document.num_tokens,
        response=response,
    )
