"""Paragraphs, list items, listings and simple tables put together from printed lines."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median

from corpus.read.formulas.displays import begins_display, ends_display
from corpus.read.headings import CAPTION, CONTENTS_LINE
from corpus.read.lines import Cell, Line

MIN_ROWS = 3
MAX_COLUMNS = 12
LABEL = re.compile(
    r"^(?:[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7*\u2013\u2014-]|\(?(?:\d{1,3}|[a-z]|[ivx]+)[.):]|\[[^\]\s]{1,12}\])$",
    re.I,
)
MARGINAL = re.compile(r"\[[A-Z][^\]]*\]|\([\dA-Z][\d.]*[a-z]?\)")
"""A note at the right margin of a line: the kind of a defined name, the number of a formula."""
ALIGNED = 1.0
"""Distance of the left edges of cells of one column, points."""
WORD = re.compile(r"[^\W\d_]{3,}")
MIN_CELL_CHARS = 2.5
"""Mean length of a cell; scattered formulas have less."""
SENTENCE_END = re.compile(r"(?:[.!?:;][\"'\u2019\u201d)\]]*|[\u3002\uff01\uff1f\uff1a\uff1b][\u201d\u300d\uff09]*)$")
BULLET = re.compile(
    r"^[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7\u25a0\u25a1\u25cb\u2701-\u2775\u2794-\u27bf]\s*|^[\u2013\u2014*-]\s+(?=\S)"
)
SIGN = re.compile(r"^[*\u2013\u2014-]\s")
"""Bullets that are operators as well."""
ITEM = re.compile(r"^(?:\(?\d{1,3}[.)]|\(?[a-z][.)]|\([ivx]{1,5}\)|\[[^\]\s]{1,12}\])\s+\S", re.I)
LEADERS = re.compile(r"(?:\.\s?){3,}\s*\S{1,12}$")
PARAGRAPH_GAP = 1.3
"""Distance of two lines that separates paragraphs, in units of the usual one."""
HEAD_CHARS = 25
"""Length of a line that may be the head of a float's column, characters."""


class Role(StrEnum):
    """Kinds of block."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"
    LISTING = "listing"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Lines that belong together."""

    role: Role
    """Their role on the page."""
    lines: tuple[Line, ...]
    """The lines in order."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells of a table by row; empty for anything else."""
    garbled: bool = False
    """Whether it holds a formula that its layout leaves open."""


def _table_at(lines: Sequence[Line], start: int) -> Text | None:
    """The table that begins with this line; None where there is none."""
    stop = start
    while stop < len(lines) and _may_belong(lines, start, stop):
        stop += 1
    run = _without_tail(lines[start:stop])
    full = [line for line in run if len(line.cells) > 1]
    kinds = [
        (bool(LABEL.match(line.cells[0].text)), bool(CONTENTS_LINE.search(line.text)), _has_margin(line), line.mono)
        for line in full
    ]
    # Most rows are items, entries of a table of contents, formulas with their numbers, or code.
    other = any(2 * sum(kind) > len(full) for kind in zip(*kinds, strict=True))
    if other or (len(full) < MIN_ROWS and not _is_pair(full)):
        return None
    columns = _columns(full)
    if not 2 <= len(columns) <= MAX_COLUMNS:
        return None
    rows = _filled(run, columns)
    if rows is None or sum(len(cell) for row in rows for cell in row) < MIN_CELL_CHARS * sum(len(r.cells) for r in run):
        return None
    return Text(role=Role.TABLE, lines=tuple(run), rows=tuple(map(tuple, rows)))


def _may_belong(lines: Sequence[Line], start: int, place: int) -> bool:
    line = lines[place]
    if line.level or line.page != lines[start].page:
        return False
    # Code goes on only below a later cell of the first row.
    in_column = any(abs(line.x0 - cell.x0) < ALIGNED for cell in lines[start].cells[1:])
    if line.mono and len(line.cells) < 2 and not in_column:
        return False
    if place == start:
        return len(line.cells) > 1
    above = lines[place - 1]
    if not 0 < above.y - line.y < 2.5 * max(line.size, above.size):
        return False
    # A single cell goes on from the row above when it does not begin at the table's left edge.
    return len(line.cells) > 1 or line.x0 > lines[start].x0 + line.size


def _is_pair(rows: Sequence[Line]) -> bool:
    """Whether two lines are rows of one table: cells of words that begin at the same places."""
    if len(rows) != 2 or len(rows[0].cells) != len(rows[1].cells):
        return False
    pairs = list(zip(rows[0].cells, rows[1].cells, strict=True))
    worded = all(len(WORD.findall(cell.text)) > 0 for pair in pairs for cell in pair)
    return worded and all(abs(one.x0 - other.x0) < ALIGNED for one, other in pairs)


def _without_tail(run: Sequence[Line]) -> Sequence[Line]:
    stop = len(run)
    while stop and len(run[stop - 1].cells) < 2 and (stop < 2 or run[stop - 1].x0 < run[0].cells[1].x0 - run[0].size):
        stop -= 1
    return run[:stop]


def _has_margin(line: Line) -> bool:
    """Whether a line ends at the margin with something that is no part of its text."""
    return len(line.cells) > 1 and bool(MARGINAL.fullmatch(line.cells[-1].text)) and line.x1 > line.margin - ALIGNED * 4


def _columns(rows: Sequence[Line]) -> list[tuple[float, float]]:
    """Horizontal extents of the columns: those of the cells, united where they overlap."""
    columns: list[tuple[float, float]] = []
    for x0, x1 in sorted((cell.x0, cell.x1) for line in rows for cell in line.cells):
        if columns and x0 < columns[-1][1]:
            columns[-1] = (columns[-1][0], max(x1, columns[-1][1]))
        else:
            columns.append((x0, x1))
    return columns


def _filled(run: Sequence[Line], columns: Sequence[tuple[float, float]]) -> list[list[str]] | None:
    """Texts by row and column; None where two cells of a row share a column, as cells of no table do."""
    rows: list[list[str]] = []
    broken = False
    for line in run:
        places = [_column(cell, columns) for cell in line.cells]
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


def _column(cell: Cell, columns: Sequence[tuple[float, float]]) -> int:
    overlaps = [min(cell.x1, right) - max(cell.x0, left) for left, right in columns]
    return max(range(len(columns)), key=lambda place: overlaps[place])


def texts_of(pages: Sequence[list[Line]], body: float) -> list[Text]:
    """Blocks in order."""
    pitch = _pitch([line for page in pages for line in page])
    found: list[Text] = []
    for page in pages:
        place = 0
        while place < len(page):
            if len(page[place].cells) > 1 and (table := _table_at(page, place)):
                found.append(table)
                place += len(table.lines)
                continue
            last = found[-1] if found else None
            if last and _continues(last, page[place], pitch):
                found[-1] = replace(last, lines=(*last.lines, page[place]))
            else:
                found.append(Text(role=_role(page[place]), lines=(page[place],)))
            place += 1
    return _floats_behind(_lone_signs(found), body)


def _lone_signs(texts: Sequence[Text]) -> list[Text]:
    """Blocks; one that a star at the column's edge begins is no item where none on these pages has another."""
    stars = Counter(text.lines[0].page for text in texts if text.role is Role.ITEM and text.lines[0].text[0] == "*")
    made = []
    for text in texts:
        line = text.lines[0]
        lone = stars[line.page] == 1 and not stars[line.page - 1] and not stars[line.page + 1]
        sign = lone and text.role is Role.ITEM and line.text[0] == "*" and line.x0 - line.left < 1
        made.append(replace(text, role=Role.PARAGRAPH) if sign else text)
    return made


def _role(line: Line) -> Role:
    if line.level:
        return Role.HEADING
    if line.mono:
        return Role.LISTING
    return Role.ITEM if BULLET.match(line.text) or ITEM.match(line.text) else Role.PARAGRAPH


def _pitch(lines: Sequence[Line]) -> float:
    """Usual distance of two baselines in units of the font size."""
    gaps = [
        (above.y - line.y) / line.size
        for above, line in pairwise(lines)
        if above.page == line.page and above.size == line.size and 0 < above.y - line.y < 3 * line.size
    ]
    return median(gaps) if gaps else 1.2


def _continues(text: Text, line: Line, pitch: float) -> bool:
    above = text.lines[-1]
    if text.role in (Role.HEADING, Role.TABLE) or line.level:
        return False
    if text.role is Role.LISTING:
        return line.mono and _same_listing(above, line, pitch)
    if line.mono and (abs(above.x0 - line.x0) >= 2 or SENTENCE_END.search(above.text) or not _full(above, line)):
        # Otherwise it is the middle of a sentence: a long address, a long name.
        return False
    if abs(above.size - line.size) > 1 or (BULLET.match(line.text) and not _is_operator(text, line)):
        return False
    if _has_margin(line) or _has_margin(above):
        return False
    if CONTENTS_LINE.search(above.text) and (LEADERS.search(above.text) or CONTENTS_LINE.search(line.text)):
        return False
    if above.page == line.page and 0 < line.y - above.y < 1.5 * line.size and line.x0 >= above.x1 - line.size:
        # A raised part of the formula to the left.
        return True
    if above.page != line.page or line.y > above.y:
        return _flows_on(text, line)
    if above.broken:
        return True
    if above.y - line.y > PARAGRAPH_GAP * max(pitch, 1.0) * max(line.size, above.size):
        return False
    return not _begins(text, line)


def _is_operator(text: Text, line: Line) -> bool:
    """Whether a sign in front of a line is the operator of a formula that the margin divided, not a bullet."""
    above, first = text.lines[-1], text.lines[0]
    if not SIGN.match(line.text) or SENTENCE_END.search(above.text) or above.page != line.page:
        return False
    listed = first.text[:1] == line.text[0] and abs(first.x0 - line.x0) < 2
    filled = _full(above, line) or any(abs(other.x1 - above.x1) < 2 for other in text.lines[:-1])
    return not listed and abs(above.x0 - line.x0) < 2 and filled


def _same_listing(above: Line, line: Line, pitch: float) -> bool:
    """Lines of one listing, empty lines between them included."""
    if abs(above.size - line.size) >= 1:
        return False
    return above.page + 1 == line.page or (above.page == line.page and 0 < above.y - line.y < 3.2 * pitch * line.size)


def _begins(text: Text, line: Line) -> bool:
    """Whether a line right below another begins a paragraph: by its indentation, its number, or the room left above."""
    above = text.lines[-1]
    ended = bool(SENTENCE_END.search(above.text))
    if ITEM.match(line.text):
        return ended or text.role is Role.ITEM
    if not ended:
        return ends_display(above, line) or begins_display(above, line)
    indent = line.x0 - above.x0
    if text.role is Role.ITEM:
        return indent < -0.7 * line.size and len(text.lines) > 1
    if len(text.lines) == 1 and indent < 0:
        indent = 0.0
    return abs(indent) > 0.7 * line.size or not _full(above, line)


def _full(above: Line, line: Line) -> bool:
    """Whether the next line's first word would not have fitted any more: the margin ended the line, not the author."""
    width = (line.x1 - line.x0) / max(len(line.text), 1)
    return above.x1 + width * (len(line.text.split(" ", 1)[0]) + 1) > above.margin - 1


def _flows_on(text: Text, line: Line) -> bool:
    """Whether a paragraph goes on over a page or column break."""
    above = text.lines[-1]
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
    return len(text.lines) > 1 and above.font == line.font and _full(above, line) and flush


def _floats_behind(texts: Sequence[Text], body: float) -> list[Text]:
    """Footnotes, and tables and figures with their captions, moved behind the paragraph that they interrupt."""
    result: list[Text] = []
    place = 0
    while place < len(texts):
        first, behind = texts[place], list[Text]()
        place += 1
        while stop := _interrupted(first, texts, place, body):
            behind += texts[place:stop]
            first = replace(first, lines=first.lines + texts[stop].lines)
            place = stop + 1
        result += [first, *behind]
    return result


def _interrupted(first: Text, texts: Sequence[Text], place: int, body: float) -> int:
    """Place at which a paragraph goes on behind what stands in between; 0 where it does not."""
    if first.role not in (Role.PARAGRAPH, Role.ITEM) or _may_float(first) or SENTENCE_END.search(first.lines[-1].text):
        return 0
    stop = place
    while stop < len(texts) and (_is_note(texts[stop], body) or _may_float(texts[stop])):
        stop += 1
    between = texts[place:stop]
    captions = [number for number, text in enumerate(between) if CAPTION.match(text.lines[0].text)]
    if not captions:
        notes = [_is_note(text, body) and text.lines[0].page == first.lines[-1].page for text in between]
        stop = place + (notes.index(False) if False in notes else len(notes))
    if stop == place or stop == len(texts) or texts[stop].role is not Role.PARAGRAPH:
        return 0
    above, line = first.lines[-1], texts[stop].lines[0]
    # A float may stand above or below the line in the same column, a note stands at the end of it.
    follows = line.page == above.page + 1 or (line.page == above.page and (bool(captions) or line.y > above.y))
    goes_on = line.text[:1].islower() if captions else _flows_on(first, line)
    return stop if follows and goes_on else 0


def _may_float(text: Text) -> bool:
    """Whether a block is part of a table or figure: a table, a listing, a caption, the heads of columns."""
    if text.role in (Role.TABLE, Role.LISTING):
        return True
    if text.role is not Role.PARAGRAPH:
        return False
    line = text.lines[0]
    heads = len(text.lines) == 1 and "=" not in line.text and (len(line.cells) > 1 or len(line.text) < HEAD_CHARS)
    return heads or bool(CAPTION.match(line.text))


def _is_note(text: Text, body: float) -> bool:
    return text.role in (Role.PARAGRAPH, Role.ITEM) and all(line.size < body - 0.7 for line in text.lines)
