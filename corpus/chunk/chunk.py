"""Split the Markdown of a book into chunks of bounded length, and list every span that is discarded.

A chunk is an exact slice of the Markdown, by character offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby, pairwise, takewhile

from corpus.chunk.blocks import Block, BlockType, scan
from corpus.chunk.split import Count, SliceCounter, Span, pack, pieces, trim
from corpus.read.doubt import Doubtful, find_doubt
from infuser_core.config.corpus import ChunkSettings
from infuser_core.schemas import Document, DoubtShares, Page

PATH_JOINT = " > "
"""Separator of the titles in a header path."""
CONVERT = "convert"
"""Value of `stage` for text that the converter left out of the Markdown."""
EXCERPT_CHARS = 200
PROMPT_TYPE = "mcq"
"""Route by which the generator writes questions on these documents."""


class Discard(StrEnum):
    """Reasons why a span of a book is not a candidate for the pool, next to those of `Doubtful`."""

    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    FRONT_MATTER = "front_matter"
    BACK_MATTER = "back_matter"


_BY_STRUCTURE = frozenset({Discard.FRONT_MATTER, Discard.BACK_MATTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A span that is excluded before chunking, as front or back matter."""

    start: int
    end: int
    """One past the last character."""
    reason: Discard
    """front_matter or back_matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk of a book: a candidate for the pool, or discarded with a reason."""

    document: Document
    discard: Discard | Doubtful | None
    """None for a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(DoubtShares):
    """A span of a source that is not in the pool. Documents and discarded spans together cover the source's Markdown.

    Rows of the stage `convert` have text that the converter left out of the Markdown.
    """

    source_id: str
    start: int
    """First character in the source's Markdown; -1 for text of the stage `convert`."""
    end: int
    """One past the last character; -1 for text of the stage `convert`."""
    stage: str
    """convert, structure, chunk, judge or overlap."""
    reason: str
    """Kind of text left out by conversion (running_head, navigation, image, ...), front_matter, back_matter, too_short,
    too_long, a reason to doubt it (a column of `DoubtShares`), blank, not_traced, the judge's reason, or the record
    the text overlaps with."""
    header_path: str
    """Ancestor headings, joined by " > "."""
    num_tokens: int
    response: str
    """The judging model's reply; empty if a rule decided."""
    text: str = ""
    """Text that the converter left out; empty for a span of the Markdown."""
    excerpt: str = ""
    """Beginning of the first paragraph that may read differently than the book, for the reason with the largest share;
    empty if there is none."""
    page: int = -1
    """Page of the left-out text in the file, 0-based; -1 for a span of the Markdown, or if the file has no pages."""

    @property
    def is_span(self) -> bool:
        """Whether this is a span of the Markdown that is not blank."""
        return self.stage != CONVERT and self.reason != "blank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with the blocks up to the next heading; or several such neighbouring sections, joined."""

    blocks: list[Block]
    path: tuple[str, ...]
    """Titles of the ancestors and of the section; the common prefix for several joined sections."""
    top: int
    """Start of the top-level heading above, -1 without one; sections under different ones are not joined."""

    @property
    def start(self) -> int:
        """First character of the section."""
        return self.blocks[0].start

    @property
    def end(self) -> int:
        """One past the last character of the section."""
        return self.blocks[-1].end


def split_sections(source: str) -> list[Section]:
    """Split Markdown at its headings into sections, without gaps."""
    result: list[Section] = []
    stack: list[Block] = []
    for block in scan(source):
        if block.kind is BlockType.HEADING:
            stack = [above for above in stack if above.level < block.level] + [block]
        if block.kind is BlockType.HEADING or not result:
            top = stack[0].start if stack else -1
            result.append(Section(blocks=[block], path=tuple(above.title for above in stack), top=top))
        else:
            result[-1].blocks.append(block)
    return result


def chunk_page(
    page: Page, count: Count, config: ChunkSettings, domain: str, *, excluded: Sequence[Excluded] = ()
) -> list[Chunk]:
    """Split one book into chunks, in order; candidates and discarded ones together cover all but blank characters.

    `count` returns the tokens of a text. Every candidate satisfies T_min <= tokens <= T_max, counted on its slice.
    """
    measure = SliceCounter(source=page.markdown, count=count)

    def reason_of(section: Section) -> Discard | None:
        return next((span.reason for span in excluded if span.start <= section.start < span.end), None)

    result: list[Chunk] = []
    for reason, group in groupby(split_sections(page.markdown), reason_of):
        sections = list(group)
        for section in sections if reason else _join_small(sections, measure, config):
            if reason or not measure.exceeds(section.start, section.end, config.max_tokens):
                spans = [(section.start, section.end)]
            else:
                parts = pieces(section.blocks, measure, config.max_tokens)
                spans = pack(parts, measure, min_tokens=config.min_tokens, max_tokens=config.max_tokens)
            rows = (_row(page, span, section.path, measure, config, domain, reason) for span in spans)
            result += [row for row in rows if row]
    return result


def _join_small(sections: Sequence[Section], measure: SliceCounter, config: ChunkSettings) -> list[Section]:
    """Join each section that is too small with the next ones under the same top-level heading, or with the previous."""
    if config.small_sections == "drop":
        return list(sections)

    def is_small(section: Section) -> bool:
        return config.min_tokens > 0 and not measure.exceeds(section.start, section.end, config.min_tokens - 1)

    groups: list[Section] = []
    place = 0
    while place < len(sections):
        group = sections[place]
        place += 1
        while is_small(group) and place < len(sections) and sections[place].top == group.top:
            if groups and groups[-1].top == group.top and sections[place].blocks[0].level < group.blocks[0].level:
                # The last section below a heading belongs to the text before it.
                break
            group = _join(group, sections[place])
            place += 1
        if groups and is_small(group) and groups[-1].top == group.top:
            groups[-1] = _join(groups[-1], group)
        else:
            groups.append(group)
    return groups


def _join(first: Section, second: Section) -> Section:
    common = takewhile(lambda titles: titles[0] == titles[1], zip(first.path, second.path, strict=False))
    path = tuple(title for title, _ in common)
    return Section(blocks=first.blocks + second.blocks, path=path, top=first.top)


def _row(
    page: Page,
    span: Span,
    path: tuple[str, ...],
    measure: SliceCounter,
    config: ChunkSettings,
    domain: str,
    reason: Discard | Doubtful | None,
) -> Chunk | None:
    """Make a chunk of a span without blanks at its ends; None if it is blank. A given `reason` precedes all others."""
    start, end = trim(page.markdown, *span)
    if start == end:
        return None
    tokens = measure(start, end)
    if reason is None and tokens < config.min_tokens:
        reason = Discard.TOO_SHORT
    if reason is None and tokens > config.max_tokens:
        reason = Discard.TOO_LONG
    doubt = find_doubt(page.markdown[start:end])
    if reason is None and doubt.share > config.max_doubt:
        reason = doubt.heaviest[0]
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
        doubt=doubt.share,
        **doubt.shares(),
    )
    return Chunk(document=document, discard=reason)


def discarded_spans(page: Page, rows: Sequence[Chunk]) -> list[Discarded]:
    """All spans of a book that are not candidates, including blank ones, so that every character is accounted for."""
    dropped = [
        discard(row.document, "structure" if row.discard in _BY_STRUCTURE else "chunk", row.discard.value)
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
            # Chunks of the comparison splitter, which rewrites text, may have no place in the source.
            reason="blank" if not page.markdown[start:end].strip() else "not_traced",
            header_path="",
            num_tokens=0,
            response="",
        )
        for start, end in gaps
    ]
    return sorted([*dropped, *blanks], key=lambda row: row.start)


def unconverted_texts(page: Page) -> list[Discarded]:
    """List the texts that the converter left out of the Markdown, in the order of the source."""
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


def discard(document: Document, stage: str, reason: str, response: str = "") -> Discarded:
    """Make a discarded span of a document."""
    _, passage = find_doubt(document.text).heaviest if document.doubt else (None, "")
    return Discarded(
        source_id=document.source_id,
        start=document.start,
        end=document.end,
        stage=stage,
        reason=reason,
        header_path=document.header_path,
        num_tokens=document.num_tokens,
        response=response,
        excerpt=" ".join(passage.split())[:EXCERPT_CHARS],
        **{column.name: getattr(document, column.name) for column in fields(DoubtShares)},
    )
