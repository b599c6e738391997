"""Assembly of a PDF's printed lines into blocks: paragraphs, list items, listings and simple tables."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median

from corpus.read.doubt import TORN_TABLE
from corpus.read.formulas.displays import begins_display, ends_display
from corpus.read.headings import CAPTION, CONTENTS_LINE
from corpus.read.lines import PdfCell, PdfLine

MIN_ROWS = 3
MAX_COLUMNS = 12
MANY = 5
"""Least number of cells in a row of signs or numbers."""
LABEL = re.compile(
    r"^(?:[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7*\u2013\u2014-]|\(?(?:\d{1,3}|[a-z]|[ivx]+)[.):]|\[[^\]\s]{1,12}\])$",
    re.I,
)
MARGINAL = re.compile(r"\[[A-Z][^\]]*\]|\([\dA-Z][\d.]*[a-z]?\)")
"""A note at the right margin of a line, such as the number of a formula."""
ALIGNED = 1.0
"""Largest distance between the left edges of cells of one column, points."""
WORD = re.compile(r"(?<![\\^_{\w])[^\W\d_]{3,}")
MIN_CELL_CHARS = 2.5
"""Least mean length of a table's cells, characters; scattered formulas have shorter ones."""
SENTENCE_END = re.compile(r"(?:[.!?:;][\"'\u2019\u201d)\]]*|[\u3002\uff01\uff1f\uff1a\uff1b][\u201d\u300d\uff09]*)$")
BULLET = re.compile(
    r"^(?!\u00b7\s*\u00b7)[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7\u25a0\u25a1\u25cb\u2701-\u2775\u2794-\u27bf]\s*"
    r"|^[\u2013\u2014*-]\s+(?=\S)"
)
SIGN = re.compile(r"^[*\u2013\u2014-]\s")
"""Bullets that are also operators."""
ITEM = re.compile(r"^(?:\(?\d{1,3}[.)]|\(?[a-z][.)]|\([ivx]{1,5}\)|\[[^\]\s]{1,12}\])\s+\S", re.I)
LEADERS = re.compile(r"(?:\.\s?){3,}\s*\S{1,12}$")
PARAGRAPH_GAP, FRACTION = 1.3, 1.5
"""Distance between two lines that separates paragraphs, in units of the usual one, and its factor at a fraction."""
MOST_INDENT = 3
"""Largest indentation of the first line of a paragraph, in units of the font size."""
RISE, MOST_LINES = 0.3, 10
"""Least and largest height of a cell's line above the last line of the cell to its left, in units of the font size."""
WIDE_SPACE = 2
"""Least gap between two cells of a line that fills its column, in units of the font size."""
HEAD_CHARS = 25
"""Longest line that may be a column head of a floating table or figure, characters."""


class BlockKind(StrEnum):
    """Kind of a text block."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"
    LISTING = "listing"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Lines that form one heading, paragraph, list item, listing or table."""

    kind: BlockKind
    lines: tuple[PdfLine, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells of a table by row; empty for other kinds."""
    mark: str = ""
    """Comment that follows the block in the Markdown if it may read differently than the book: one of `doubt`."""


def _table_at(lines: Sequence[PdfLine], start: int) -> TextBlock | None:
    """Read the table that begins at line `start`; None if no table begins there."""
    stop = start
    while stop < len(lines) and _may_belong(lines, start, stop):
        stop += 1
    run = lines[start:stop]
    # Drop lines with one cell from the end of the table unless they are below its second column.
    while run and len(run[-1].cells) < 2 and (len(run) < 2 or run[-1].x0 < run[0].cells[1].x0 - run[0].size):
        run = run[:-1]
    full = [line for line in run if len(line.cells) > 1]
    kinds = [
        (bool(LABEL.match(line.cells[0].text)), bool(CONTENTS_LINE.search(line.text)), _has_margin(line), line.mono)
        for line in full
    ]
    # No table: most rows are list items, entries of a table of contents, formulas with their numbers, or code.
    other = any(2 * sum(kind) > len(full) for kind in zip(*kinds, strict=True))
    if other or (len(full) < MIN_ROWS and not _is_pair(full)):
        return None
    # Columns are the extents of the cells, united if they overlap.
    columns: list[tuple[float, float]] = []
    for x0, x1 in sorted((cell.x0, cell.x1) for line in full for cell in line.cells):
        if columns and x0 < columns[-1][1]:
            columns[-1] = (columns[-1][0], max(x1, columns[-1][1]))
        else:
            columns.append((x0, x1))
    if not 2 <= len(columns) <= MAX_COLUMNS:
        return None
    rows = _table_rows(run, columns)
    if rows is None or sum(len(cell) for row in rows for cell in row) < MIN_CELL_CHARS * sum(len(r.cells) for r in run):
        return None
    return TextBlock(kind=BlockKind.TABLE, lines=tuple(run), rows=tuple(map(tuple, rows)))


def _may_belong(lines: Sequence[PdfLine], start: int, place: int) -> bool:
    line = lines[place]
    if line.level or line.page != lines[start].page or CAPTION.match(line.text):
        return False
    # A line of code with one cell belongs to the table only below a later cell of the first row.
    in_column = any(abs(line.x0 - cell.x0) < ALIGNED for cell in lines[start].cells[1:])
    if line.mono and len(line.cells) < 2 and not in_column:
        return False
    if place == start:
        return len(line.cells) > 1
    above = lines[place - 1]
    if not 0 < above.y - line.y < 2.5 * max(line.size, above.size):
        return False
    # A single cell continues the row above if it does not begin at the table's left edge.
    return len(line.cells) > 1 or line.x0 > lines[start].x0 + line.size


def _is_pair(rows: Sequence[PdfLine]) -> bool:
    """Whether two lines are rows of one table: cells of words that begin at the same places."""
    if len(rows) != 2 or len(rows[0].cells) != len(rows[1].cells):
        return False
    pairs = list(zip(rows[0].cells, rows[1].cells, strict=True))
    worded = all(len(WORD.findall(cell.text)) > 0 for pair in pairs for cell in pair)
    return worded and all(abs(one.x0 - other.x0) < ALIGNED for one, other in pairs)


def _has_margin(line: PdfLine) -> bool:
    """Whether a line ends with a note at the right margin, such as the number of a formula."""
    return len(line.cells) > 1 and bool(MARGINAL.fullmatch(line.cells[-1].text)) and line.x1 > line.margin - ALIGNED * 4


def _table_rows(run: Sequence[PdfLine], columns: Sequence[tuple[float, float]]) -> list[list[str]] | None:
    """Texts of a table by row and column; None if two cells of a row share a column, as this is not a table."""

    def column_of(cell: PdfCell) -> int:
        overlaps = [min(cell.x1, right) - max(cell.x0, left) for left, right in columns]
        return max(range(len(columns)), key=lambda place: overlaps[place])

    rows: list[list[str]] = []
    broken = False
    for line in run:
        places = [column_of(cell) for cell in line.cells]
        if len(set(places)) < len(places):
            return None
        if len(places) == 1 and rows:
            joint = "" if broken else " "
            rows[-1][places[0]] = f"{rows[-1][places[0]]}{joint}{line.cells[0].text}".strip()
            broken = line.broken
            continue
        row = [""] * len(columns)
        for place, cell in zip(places, line.cells, strict=True):
            row[place] = cell.text
        rows.append(row)
        broken = line.broken
    return rows


def blocks_of(pages: Sequence[list[PdfLine]], body: float) -> list[TextBlock]:
    """Join the lines of a book into blocks in reading order. `body` is the font size of running text, points."""
    # Usual distance between two baselines, in units of the font size.
    gaps = [
        (above.y - line.y) / line.size
        for above, line in pairwise(line for page in pages for line in page)
        if above.page == line.page and above.size == line.size and 0 < above.y - line.y < 3 * line.size
    ]
    pitch = median(gaps) if gaps else 1.2
    blocks: list[TextBlock] = []
    for page in pages:
        place = 0
        while place < len(page):
            if len(page[place].cells) > 1 and (table := _table_at(page, place)):
                blocks.append(table)
                place += len(table.lines)
                continue
            last = blocks[-1] if blocks else None
            if last and _continues(last, page[place], pitch):
                blocks[-1] = replace(last, lines=(*last.lines, page[place]))
            else:
                blocks.append(TextBlock(kind=_kind_of(page[place]), lines=(page[place],)))
            place += 1
    return _move_floats(mark_torn_tables(_demote_lone_stars(blocks)), body)


def _demote_lone_stars(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Turn an item with a star at the column's edge into a paragraph if no other item nearby has a star as bullet."""
    stars = Counter(
        block.lines[0].page for block in blocks if block.kind is BlockKind.ITEM and block.lines[0].text[0] == "*"
    )
    result = []
    for block in blocks:
        line = block.lines[0]
        is_lone = stars[line.page] == 1 and not stars[line.page - 1] and not stars[line.page + 1]
        is_sign = is_lone and block.kind is BlockKind.ITEM and line.text[0] == "*" and line.x0 - line.left < 1
        result.append(replace(block, kind=BlockKind.PARAGRAPH) if is_sign else block)
    return result


def _kind_of(line: PdfLine) -> BlockKind:
    if line.level:
        return BlockKind.HEADING
    if line.mono:
        return BlockKind.LISTING
    return BlockKind.ITEM if BULLET.match(line.text) or ITEM.match(line.text) else BlockKind.PARAGRAPH


def _continues(block: TextBlock, line: PdfLine, pitch: float) -> bool:
    """Whether a line belongs to the block above it."""
    above = block.lines[-1]
    if block.kind in (BlockKind.HEADING, BlockKind.TABLE) or line.level:
        return False
    if block.kind is BlockKind.LISTING:
        if not line.mono or abs(above.size - line.size) >= 1:
            return False
        if above.page != line.page or line.y > above.y:
            return above.page + 1 == line.page or above.column < line.column
        # A listing may have empty lines, but below one the head of the next entry is at the edge of the text.
        gap = (above.y - line.y) / (pitch * line.size)
        is_head = line.x0 < line.left + ALIGNED and all(other.x0 > line.x0 + line.size for other in block.lines)
        return gap < (PARAGRAPH_GAP if is_head else 3.2)
    indent = above.x0 - line.x0
    is_level = abs(indent) < 2 or (len(block.lines) == 1 and 0 < indent < MOST_INDENT * line.size)
    if line.mono and (not is_level or SENTENCE_END.search(above.text) or not _is_full(above, line)):
        # A monospaced line continues a paragraph only in the middle of a sentence, as a long address or name.
        return False
    if abs(above.size - line.size) > 1 or (BULLET.match(line.text) and not _begins_with_operator(block, line)):
        return False
    if _has_margin(line) or _has_margin(above):
        return False
    if CONTENTS_LINE.search(above.text) and (LEADERS.search(above.text) or CONTENTS_LINE.search(line.text)):
        return False
    if above.page == line.page and 0 < line.y - above.y < 1.5 * line.size and line.x0 >= above.x1 - line.size:
        # The line is a raised part of the formula to its left.
        return True
    if above.page != line.page or line.y > above.y:
        return _flows_on(block, line)
    if above.broken:
        return True
    # A fraction in a full line of text makes it taller.
    is_tall = "\\frac{" in f"{above.text}{line.text}" and abs(line.x0 - line.left) < 2 and _is_full(above, line)
    is_tall = is_tall and (abs(above.x0 - above.left) < 2 or not line.text[:1].isupper())
    gap = PARAGRAPH_GAP * (FRACTION if is_tall else 1) * max(pitch, 1.0)
    if above.y - line.y > gap * max(line.size, above.size):
        return False
    return not _begins(block, line)


def _begins_with_operator(block: TextBlock, line: PdfLine) -> bool:
    """Whether the sign at the start of a line is an operator in a formula that continues there, not a bullet."""
    above, first = block.lines[-1], block.lines[0]
    if not SIGN.match(line.text) or SENTENCE_END.search(above.text) or above.page != line.page:
        return False
    is_item = first.text[:1] == line.text[0] and abs(first.x0 - line.x0) < 2
    is_full = _is_full(above, line) or any(abs(other.x1 - above.x1) < 2 for other in block.lines[:-1])
    return not is_item and abs(above.x0 - line.x0) < 2 and is_full


def _begins(block: TextBlock, line: PdfLine) -> bool:
    """Whether a line right below another begins a paragraph: by its indentation, its number, or the space above."""
    above = block.lines[-1]
    ends_sentence = bool(SENTENCE_END.search(above.text))
    if ITEM.match(line.text):
        return ends_sentence or block.kind is BlockKind.ITEM
    if not ends_sentence:
        is_below_item = block.kind is BlockKind.ITEM and line.x0 < block.lines[0].x0 - line.size / 2
        # Capital letters are wider than the line's mean letter.
        is_short = not _is_full(above, line, slack=line.size)
        ends_line = is_short and (is_below_item or line.text[:1].isupper())
        return ends_line or ends_display(above, line) or begins_display(above, line)
    if above.bold != line.bold:
        return True
    indent = line.x0 - above.x0
    if block.kind is BlockKind.ITEM:
        return indent < -0.7 * line.size and len(block.lines) > 1
    if len(block.lines) == 1 and indent < 0:
        indent = 0.0
    return abs(indent) > 0.7 * line.size or not _is_full(above, line)


def _is_full(above: PdfLine, line: PdfLine, *, slack: float = 1.0) -> bool:
    """Whether the next line's first word would not have fitted: the margin ended the line above, not the author."""
    width = (line.x1 - line.x0) / max(len(line.text), 1)
    return above.x1 + width * (len(line.text.split(" ", 1)[0]) + 1) > above.margin - slack


def _flows_on(block: TextBlock, line: PdfLine) -> bool:
    """Whether a block's paragraph continues with a line after a page or column break."""
    above = block.lines[-1]
    if abs(above.size - line.size) > 0.6 or line.mono:
        return False
    if above.broken:
        return line.text[:1].islower()
    if ITEM.match(line.text):
        return False
    if not SENTENCE_END.search(above.text):
        return line.text[:1].islower() or above.font == line.font
    # A line of the same paragraph is not indented in its column.
    flush = abs((line.x0 - line.left) - (above.x0 - above.left)) < 2
    return len(block.lines) > 1 and above.font == line.font and _is_full(above, line) and flush


def mark_torn_tables(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Mark the blocks with cells of a table that was not assembled, or whose cells have several lines.

    A line to the right of the one before, and higher, is in another cell. A row of words between wide gaps belongs to a
    table if it has three cells, is a line alone, or is next to other rows of one.
    """
    rows = [(place, line) for place, block in enumerate(blocks) for line in block.lines]
    torn = {
        place for (one, above), (other, line) in pairwise(rows) if _is_beside(above, line) for place in (one, other)
    }
    torn |= {place for place, block in enumerate(blocks) if block.kind is BlockKind.TABLE and _divides_cells(block)}
    tables = torn | {place for place, block in enumerate(blocks) if block.kind is BlockKind.TABLE}
    for place, block in enumerate(blocks):
        cells = max(map(_count_cells, block.lines)) if block.kind in (BlockKind.PARAGRAPH, BlockKind.ITEM) else 0
        is_short = len(block.lines) == 1 and not SENTENCE_END.search(block.lines[0].text)
        if cells > 2 or (cells == 2 and (is_short or tables & {place - 1, place, place + 1})):
            torn.add(place)
    return [replace(block, mark=TORN_TABLE) if place in torn else block for place, block in enumerate(blocks)]


def _is_beside(above: PdfLine, line: PdfLine) -> bool:
    """Whether a line of words is higher than the words before it, and to their right."""
    is_right = line.page == above.page and line.column == above.column and line.x0 > above.x1
    is_higher = is_right and RISE * line.size < line.y - above.y < MOST_LINES * line.size
    return is_higher and not line.mono and bool(WORD.search(above.text)) and len(WORD.findall(line.text)) > 1


def _count_cells(line: PdfLine) -> int:
    """Number of cells of a line that may be a row of a table: many, or words that end no sentence and are no labels."""
    texts = [cell.text for cell in line.cells]
    # A full line with wide spaces is justified.
    gaps = [right.x0 - left.x1 for left, right in pairwise(line.cells)]
    is_justified = line.x1 > line.margin - ALIGNED and max(gaps, default=0) < WIDE_SPACE * line.size
    is_row = not (is_justified or LABEL.match(texts[0]) or _has_margin(line) or CONTENTS_LINE.search(line.text))
    are_words = all(map(WORD.search, texts)) and not any(map(SENTENCE_END.search, texts[:-1]))
    return len(texts) if is_row and (are_words or (len(texts) >= MANY and "," not in line.text)) else 0


def _divides_cells(table: TextBlock) -> bool:
    """Whether a row continues a sentence of the row above, whose cell was full: both are lines of one cell."""
    for above, line in pairwise(table.lines if len(table.lines) > 2 else ()):
        pairs = ((cell, below) for cell in above.cells for below in line.cells if len(line.cells) > 1)
        for cell, below in pairs:
            if abs(below.x0 - cell.x0) < ALIGNED and cell.text[0].isupper() and below.text[0].islower():
                width = (below.x1 - below.x0) / max(len(below.text), 1)
                end = max(c.x1 for row in table.lines for c in row.cells if abs(c.x0 - cell.x0) < ALIGNED)
                is_full = cell.x1 + width * (len(below.text.split(" ", 1)[0]) + 1) > end
                if is_full and not SENTENCE_END.search(cell.text):
                    return True
    return False


def _move_floats(blocks: Sequence[TextBlock], body: float) -> list[TextBlock]:
    """Move footnotes, tables and figures with captions after the paragraph that they interrupt."""
    result: list[TextBlock] = []
    place = 0
    while place < len(blocks):
        first, floats = blocks[place], list[TextBlock]()
        place += 1
        while stop := _resumes_at(first, blocks, place, body):
            floats += blocks[place:stop]
            rest = blocks[stop]
            first = replace(first, lines=first.lines + rest.lines, mark=first.mark or rest.mark)
            place = stop + 1
        result += [first, *floats]
    return result


def _resumes_at(first: TextBlock, blocks: Sequence[TextBlock], place: int, body: float) -> int:
    """Index of the block in which an interrupted paragraph resumes after floats or footnotes; 0 if it does not."""
    if (
        first.kind not in (BlockKind.PARAGRAPH, BlockKind.ITEM)
        or _may_float(first)
        or SENTENCE_END.search(first.lines[-1].text)
    ):
        return 0
    stop = place
    while stop < len(blocks) and (_is_note(blocks[stop], body) or _may_float(blocks[stop])):
        stop += 1
    between = blocks[place:stop]
    captions = [number for number, block in enumerate(between) if CAPTION.match(block.lines[0].text)]
    if not captions:
        notes = [_is_note(block, body) and block.lines[0].page == first.lines[-1].page for block in between]
        stop = place + (notes.index(False) if False in notes else len(notes))
    if stop == place or stop == len(blocks) or blocks[stop].kind is not BlockKind.PARAGRAPH:
        return 0
    above, line = first.lines[-1], blocks[stop].lines[0]
    # A float may be above or below the line in the same column; a note is at the column's end.
    follows = line.page == above.page + 1 or (line.page == above.page and (bool(captions) or line.y > above.y))
    continues = line.text[:1].islower() if captions else _flows_on(first, line)
    return stop if follows and continues else 0


def _may_float(block: TextBlock) -> bool:
    """Whether a block is part of a table or figure: a table, a listing, a caption or the heads of columns."""
    if block.kind in (BlockKind.TABLE, BlockKind.LISTING):
        return True
    if block.kind is not BlockKind.PARAGRAPH:
        return False
    line = block.lines[0]
    is_short = len(line.text) < HEAD_CHARS and not line.text[:1].islower()
    heads = len(block.lines) == 1 and "=" not in line.text and (len(line.cells) > 1 or is_short)
    return heads or bool(CAPTION.match(line.text))


def _is_note(block: TextBlock, body: float) -> bool:
    return block.kind in (BlockKind.PARAGRAPH, BlockKind.ITEM) and all(line.size < body - 0.7 for line in block.lines)
