"""Assembly of a PDF page's text into lines in reading order, with columns, footnote markers and the body font size."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from corpus.read.formulas.signs import GARBLED
from corpus.read.printed import Piece

CHAPTER = r"(?:chapter|part|section|appendix|kapitel|teil|anhang|chapitre|partie|annexe?|cap[i\u00ed]tulo|parte)"
UNIT = "one|two|three|four|five|six|seven|eight|nine"
NUMERAL = rf"(?:(?:(?:twen|thir|for)ty)?[- ]?(?:{UNIT})|ten|eleven|twelve|\w+teen|(?:twen|thir|for)ty)"
SECTION_NUMBER = re.compile(
    rf"^(?:{CHAPTER}\s+)?(?:[0-9IVXLC]+|[A-Z])(?:\.[0-9]+)*[.:)]?\s+|^(?:{CHAPTER}\s+{NUMERAL}[.:]?|{NUMERAL}[.:])\s+|^\u7b2c\s*\S{{1,3}}?\s*[\u7ae0\u8282\u90e8\u7bc7]\s*",
    re.I,
)
BLANK = 0.15
"""Least gap that counts as a space, in units of the font size."""
RAISED, SMALLER = 0.25, 0.88
"""Least distance from the baseline, in units of the font size, and relative size above which a piece is no script."""
QUOTIENT = "\u29f8"
"""Slash of a quotient, whose two sides are set above and below the baseline in full-size letters."""
INITIAL, LEAST_DROP = 1.8, 0.8
"""Least size of an initial over several lines, and its least distance below the first of these, in font sizes."""
WORD = re.compile(r"[^\W\d_]+")
FULL = 0.8
"""Share of the column's width above which a line counts as running text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfCell:
    """A part of a line between two wide gaps."""

    text: str
    x0: float
    """Left edge, points."""
    x1: float
    """Right edge, points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfLine:
    """One printed line. Lengths and positions are in points, from the page's lower left corner."""

    text: str
    """Text with runs of spaces collapsed."""
    page: int
    """Page index, 0-based."""
    x0: float
    """Left edge."""
    x1: float
    """Right edge."""
    y: float
    """Baseline."""
    size: float
    """Font size."""
    bold: bool
    mono: bool
    """Whether the line is set in a monospaced font."""
    broken: bool
    """Whether the last word continues on the next line; its hyphen is not in the text."""
    font: str = ""
    """Name of the font of most of the line."""
    cells: tuple[PdfCell, ...] = ()
    """Parts of the line between wide gaps; one cell for running text."""
    left: float = 0.0
    """Left edge of its column."""
    margin: float = 0.0
    """Right edge of its column."""
    column: int = 0
    """1 for a line in the right one of two columns."""
    level: int = 0
    """Heading level, 1 for the highest; 0 for text."""


def title_key(text: str) -> str:
    """Key for comparing titles that are typeset differently: letters and digits without the section number."""
    bare = SECTION_NUMBER.sub("", text, count=1)
    return re.sub(r"[\W_]+", "", bare or text).casefold()


def body_size(pages: Sequence[list[PdfLine]]) -> float:
    """Most frequent font size of the running text, points; 0 for a document without text."""
    sizes: Counter[float] = Counter()
    for line in prose_lines(pages):
        sizes[round(line.size * 2) / 2] += len(line.text)
    return min(sizes, key=lambda size: (-sizes[size], size)) if sizes else 0.0


def resolve_note_marks(page: Sequence[PdfLine], body: float) -> list[PdfLine]:
    """Correct raised numbers on a page: footnote markers that were read as exponents, and exponents read as markers.

    A raised number after a bracket looks like an exponent. It is a footnote marker if the page has a footnote of that
    number without another marker, and no other raised number could be its marker. A raised number after a word looks
    like a footnote marker. It is an exponent if no line of the page begins with that number.
    """
    small = body - NOTE_SMALLER
    text = [line for line in page if line.size >= small]
    labels = {match[1] or match[2] for line in page if line.size < small and (match := NOTE_LABEL.match(line.text))}
    first_numbers = {match[1] for line in page if (match := NOTE_NUMBER.match(line.text))}
    first_numbers |= {match[1] for line in page for cell in line.cells[1:] if (match := MARGIN_NOTE.match(cell.text))}
    marks = {number for line in text for number in NOTE_MARK.findall(line.text)}
    exponents = Counter(number for line in text for number in POWER.findall(line.text))
    notes = {label for label in labels - marks if exponents[label] == 1}
    powers = marks - first_numbers

    def correct(text: str) -> str:
        text = NOTE_MARK.sub(lambda mark: f"^{{{mark[1]}}}" if mark[1] in powers else mark[0], text)
        return POWER.sub(lambda power: f"[^{power[1]}]" if power[1] in notes else power[0], text)

    return [
        replace(
            line, text=correct(line.text), cells=tuple(replace(cell, text=correct(cell.text)) for cell in line.cells)
        )
        if line.size >= small
        else replace(line, text=NOTE_LABEL.sub(r"[^\1\2]: ", line.text))
        for line in page
    ]


def prose_lines(pages: Sequence[list[PdfLine]]) -> list[PdfLine]:
    """Lines of running text: those that fill their column and are not monospaced; all lines if these are few.

    A manual may have more characters in its listings than in its text, but their lines are short.
    """
    lines = [line for page in pages for line in page]
    full = [line for line in lines if not line.mono and line.x1 - line.left > FULL * (line.margin - line.left)]
    return full if sum(len(line.text) for line in full) >= 0.05 * sum(len(line.text) for line in lines) else lines


NOTE_SMALLER = 0.7
"""Points by which a footnote's font is smaller than the text's."""
NOTE_LABEL = re.compile(r"^(?:\[\^(\d{1,3})\]\s*|(\d{1,3})(?=[^\W\d_]))")
"""Raised number at the beginning of a footnote, or one without a space after it."""
NOTE_NUMBER = re.compile(r"^(?:\[\^)?(\d{1,3})(?!\d)")
"""Number at the beginning of a line that may be a footnote, in any font size."""
MARGIN_NOTE = re.compile(r"^(?:\[\^)?(\d{1,3})[.)\]]?\s?[^\W\d_].{3}")
"""Beginning of a note in the margin."""
NOTE_MARK = re.compile(r"\[\^(\d{1,3})\]")
POWER = re.compile(r"\^\{(\d{1,3})\}")
MIN_ROWS = 5
"""Least number of lines on each side for a page to count as set in two columns."""
FILL = 0.6
"""Least share of its column that a line of running text fills; cells of a table fill less."""
STICKING_OUT = 0.3
"""Largest part of a line to the right of the left column, in units of its part within the column."""
ALIGNED = 2.0
"""Largest distance of a line's beginning from the left edge of its column, points."""
STRAY = 0.05
"""Share of a column's pieces that may reach into the gutter."""
CROSSING = 0.3
"""Largest share of the text that may cross both columns (titles, wide tables)."""
CLEAR, HALF, NEARLY_ALL = 0.12, 0.5, 0.85
"""Share of each column that must be running text: HALF if at most CLEAR of the page crosses, else NEARLY_ALL."""
COMMON = 0.3
"""Least share of a book's pages that show a gutter for others to have it too."""
CHANGES = 3
"""Most changes from one column to the other in the order in which a page is drawn; a table has one in every row."""
GUTTER = 6.0
"""Least space between two columns, points."""
TABLE_ROWS = 3
"""Number of consecutive rows with cells in both columns that make a table across both."""
MAX_GUTTER = 0.15
"""Largest space between two columns, as a share of the text's width; keys and values of a list are further apart."""

REMARK = re.compile(r"/\*|//")
"""Beginning of a comment in a listing, which may be set in another font."""
WITHIN = re.compile(r"[\[\](){}<>;,|&*+=.-]+$|/\*.*\*/$|//")
"""Brackets, operators and comments that fill a line in listings only."""
LEADERS = re.compile(r"\s*(?:\.\s?){5,}\s*")
"""Dot leaders between a title and its page number."""


def lines_of(pieces: Sequence[Piece], page: int, middle: float | None = None) -> list[PdfLine]:
    """Join a page's pieces of text into lines in reading order: down the left column, then down the right one.

    `middle` is the horizontal position of the gutter between the columns; None if the page has one column.
    """
    pieces = _join_initials(pieces)
    if middle is None:
        return _extend_listings(list(_join_rows(_down_the_page(pieces), page, _column_edges(pieces))))
    left = _column_edges([piece for piece in pieces if piece.x1 <= middle])
    right = _column_edges([piece for piece in pieces if piece.x0 >= middle])
    edges = (left, right, (left[0], right[1]))
    parts = _reading_order(pieces, middle, right[0])
    lines = [
        replace(line, column=int(column == 1))
        for column, part in parts
        for line in _join_rows(part, page, edges[column])
    ]
    return _extend_listings(lines)


def _join_initials(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Join each initial over several lines with the first line to its right."""
    result: list[Piece] = []
    for piece in pieces:
        initial = result[-1] if result else piece
        height, gap = (initial.y - piece.y) / piece.size, (piece.x0 - initial.x1) / piece.size
        is_first = INITIAL * piece.size < initial.size and -initial.size / piece.size < height < -LEAST_DROP
        if is_first and 0 <= gap < 2 and len(initial.text) == 1 and initial.text.isupper() and piece.text[0].isalpha():
            words = [word.casefold() for other in pieces if other is not piece for word in WORD.findall(other.text)]
            first = WORD.match(piece.text)
            is_word = initial.text in "AIO" and first is not None and first[0].casefold() in words
            is_word = is_word and f"{initial.text}{first[0] if first else ''}".casefold() not in words
            result[-1] = replace(piece, text=f"{initial.text}{' ' if is_word else ''}{piece.text}")
        else:
            result.append(piece)
    return result


def _column_edges(pieces: Sequence[Piece]) -> tuple[float, float]:
    """Left and right edges of a column's lines, ignoring those that are indented or stick out."""
    if not pieces:
        return 0.0, 0.0
    widest = max(_width(piece) for piece in pieces)
    ends = sorted(piece.x1 for piece in pieces)
    full = [piece.x0 for piece in pieces if _width(piece) >= 0.6 * widest] or [piece.x0 for piece in pieces]
    return median(full), ends[int(0.95 * (len(ends) - 1))]


def _reading_order(pieces: Sequence[Piece], middle: float, right: float) -> list[tuple[int, list[Piece]]]:
    """Group the pieces of a two-column page in reading order: left column (0), right column (1), then a row across (2).

    `right` is the left edge of the right column.
    """
    places: dict[int, tuple[int, int]] = {}
    band = 0
    rows = _rows_by_baseline(pieces)
    for row, wide in zip(rows, _wide_rows(rows, middle, right), strict=True):
        for piece in row:
            places[id(piece)] = (band, 2 if wide else int(piece.x0 >= middle))
        band += wide
    parts: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        parts.setdefault(places[id(piece)], []).append(piece)
    return [(column, _down_the_page(parts[band, column])) for band, column in sorted(parts)]


def _rows_by_baseline(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Group pieces by baseline, from the top."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.x0)):
        if rows and rows[-1][0].y - piece.y < 2:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows


def _wide_rows(rows: Sequence[Sequence[Piece]], middle: float, right: float) -> list[bool]:
    """Whether each row spans both columns: text across the gutter, or a table with cells on both sides.

    A single row with several pieces on both sides is two lines of text that were stretched to fill their columns.
    """
    across = [any(_spans(piece, row, middle, right) for piece in row) for row in rows]
    cells = [sum(p.x1 <= middle for p in row) > 1 and sum(p.x0 >= middle for p in row) > 1 for row in rows]
    for place in range(len(rows)):
        nearby = cells[max(0, place - TABLE_ROWS + 1) : place + TABLE_ROWS]
        runs = [nearby[start : start + TABLE_ROWS] for start in range(len(nearby) - TABLE_ROWS + 1)]
        across[place] |= cells[place] and any(all(run) for run in runs)
    return across


def _spans(piece: Piece, row: Sequence[Piece], middle: float, right: float) -> bool:
    """Whether a piece spans two columns; a line that is too long for the left column only sticks out of it."""
    if not piece.x0 < middle < piece.x1:
        return False
    goes_on = any(0 <= other.x0 - piece.x1 < piece.size and abs(other.x0 - right) > ALIGNED for other in row)
    return goes_on or piece.x1 - middle > STICKING_OUT * (middle - piece.x0)


def gutters_of(pages: Sequence[Sequence[Piece]]) -> list[float | None]:
    """Horizontal position of the gutter of each page; None for a page with one column.

    A page of listings or short entries shows no gutter. In a book of two columns it has that of the other pages if no
    text crosses it and the file draws one column after the other.
    """
    own = [find_gutter(page) for page in pages]
    middles = [middle for middle in own if middle is not None]
    if len(middles) < COMMON * len(pages):
        return own
    usual = median(middles)
    return [
        usual if middle is None and _is_divided(page, usual) else middle
        for page, middle in zip(pages, own, strict=True)
    ]


def _is_divided(pieces: Sequence[Piece], middle: float) -> bool:
    across = sum(piece.x0 < middle < piece.x1 for piece in pieces)
    sides = [piece.x0 >= middle for piece in pieces]
    changes = sum(before != after for before, after in pairwise(sides))
    return across <= STRAY * len(pieces) and MIN_ROWS <= sum(sides) <= len(sides) - MIN_ROWS and changes <= CHANGES


def find_gutter(pieces: Sequence[Piece]) -> float | None:
    """Horizontal position of the gutter between two columns of running text; None on a page with one column."""
    if len(pieces) < 2 * MIN_ROWS:
        return None
    left, right = min(piece.x0 for piece in pieces), max(piece.x1 for piece in pieces)
    best = None
    for step in range(35, 66):
        x = left + (right - left) * step / 100
        crossing = sum(piece.x1 - piece.x0 for piece in pieces if piece.x0 < x - 1 and piece.x1 > x + 1)
        if best is None or crossing < best[0]:
            best = (crossing, x)
    assert best is not None
    crossing, x = best
    sides = ([piece for piece in pieces if piece.x1 <= x + 1], [piece for piece in pieces if piece.x0 >= x - 1])
    total = sum(piece.x1 - piece.x0 for piece in pieces)
    least = HALF if crossing <= CLEAR * total else NEARLY_ALL
    if crossing > CROSSING * total or not all(_is_column(side, least) for side in sides):
        return None
    # A label of a drawing or a long formula may reach into the gutter.
    ends, starts = sorted(piece.x1 for piece in sides[0]), sorted(piece.x0 for piece in sides[1])
    inner = ends[int((1 - STRAY) * (len(ends) - 1))], starts[int(STRAY * (len(starts) - 1))]
    return sum(inner) / 2 if GUTTER <= inner[1] - inner[0] <= MAX_GUTTER * (right - left) else None


def _is_column(side: Sequence[Piece], least: float) -> bool:
    """Whether at least the share `least` of a side's text is in rows that fill its width, as running text does."""
    rows = [sum(piece.x1 - piece.x0 for piece in row) for row in _rows_by_baseline(side)]
    if len(rows) < MIN_ROWS:
        return False
    width = max(piece.x1 for piece in side) - min(piece.x0 for piece in side)
    return sum(row for row in rows if row >= FILL * width) >= least * sum(rows)


def _down_the_page(pieces: Sequence[Piece]) -> list[Piece]:
    """Sort pieces down the page; the drawing order is kept if it runs down the page, as it nearly always does.

    A raised or lowered piece belongs to the row of its neighbour.
    """
    rises = sum(below.y > above.y + max(above.size, below.size) for above, below in pairwise(pieces))
    if rises <= max(2, len(pieces) // 10):
        return list(pieces)
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.x0)):
        row = rows[-1] if rows else []
        if row and _same_row(max(row, key=lambda other: other.size), piece):
            row.append(piece)
        else:
            rows.append([piece])
    return [piece for row in rows for piece in sorted(row, key=lambda piece: piece.x0)]


def _same_row(one: Piece, other: Piece) -> bool:
    return abs(one.y - other.y) < 0.45 * max(one.size, other.size)


def _join_rows(pieces: Sequence[Piece], page: int, edges: tuple[float, float]) -> Iterator[PdfLine]:
    """Join the pieces of each printed line into a PdfLine."""
    row: list[Piece] = []
    for piece in pieces:
        if row and not (_same_row(max(row, key=_width), piece) and piece.x0 >= row[-1].x1 - 0.5 * piece.size):
            yield _line(row, page, edges)
            row = []
        row.append(piece)
    if row:
        yield _line(row, page, edges)


def _width(piece: Piece) -> float:
    return piece.x1 - piece.x0


def _line(row: Sequence[Piece], page: int, edges: tuple[float, float]) -> PdfLine:
    mono = _is_mono(row)
    main = max((piece for piece in row if piece.mono or not mono), key=lambda piece: len(piece.text))
    cells = [PdfCell(text=row[0].text, x0=row[0].x0, x1=row[0].x1)]
    for before, piece, after in zip(row, row[1:], [*row[2:], None], strict=False):
        gap = piece.x0 - before.x1
        if gap > max(piece.size, before.size):
            cells.append(PdfCell(text=piece.text, x0=piece.x0, x1=piece.x1))
        else:
            joint = "" if gap < BLANK * main.size else " "
            in_quotient = before.text.endswith(QUOTIENT) or (after is not None and after.text.startswith(QUOTIENT))
            # Letters or digits off the line's baseline that are not smaller, as scripts are.
            is_raised = abs(piece.y - main.y) / main.size > RAISED and piece.size > SMALLER * main.size
            is_unclear = gap < BLANK * main.size and not mono and not in_quotient
            is_unclear = is_unclear and is_raised and bool(re.search(r"\w", piece.text))
            cells[-1] = PdfCell(
                text=f"{cells[-1].text}{joint}{piece.text}{GARBLED * is_unclear}", x0=cells[-1].x0, x1=piece.x1
            )
    return PdfLine(
        text=_align_cells(cells, main) if main.mono else LEADERS.sub(" ... ", " ".join(cell.text for cell in cells)),
        page=page,
        x0=row[0].x0,
        x1=row[-1].x1,
        y=main.y,
        size=main.size,
        font=main.font,
        bold=all(piece.bold for piece in row),
        mono=mono,
        broken=row[-1].broken,
        cells=tuple(cells),
        left=edges[0],
        margin=edges[1],
    )


def _extend_listings(lines: list[PdfLine]) -> list[PdfLine]:
    """Mark lines of brackets or comments next to a listing as monospaced, so that they belong to it in any font."""
    code = [line.mono for line in lines]
    for numbers in (range(1, len(lines)), range(len(lines) - 2, -1, -1)):
        step = 1 if numbers.step > 0 else -1
        for number in numbers:
            line, neighbour = lines[number], lines[number - step]
            near = abs(line.y - neighbour.y) < 2 * neighbour.size and abs(line.size - neighbour.size) < 1
            code[number] |= code[number - step] and near and bool(WITHIN.match(line.text))
    return [replace(line, mono=mono) if mono else line for line, mono in zip(lines, code, strict=True)]


def _is_mono(row: Sequence[Piece]) -> bool:
    """Whether all words of a line are monospaced, as in code; arrows, its comment and its line number may not be."""
    words = [piece for piece in row if re.search(r"\w", piece.text)]
    remark = next((place for place, piece in enumerate(words) if REMARK.match(piece.text)), 0)
    words = words[: remark or len(words)]
    if len(row) > 1 and words[:1] == [row[0]] and row[0].text.rstrip(":.").isdecimal():
        words = words[1:]
    return all(piece.mono for piece in words) and any(piece.mono for piece in row)


def _align_cells(cells: Sequence[PdfCell], main: Piece) -> str:
    """Join the cells of a monospaced line with as many spaces as fit between them."""
    advance = max(_width(main) / max(len(main.text), 1), 0.1)
    text = cells[0].text
    for before, cell in pairwise(cells):
        text += " " * max(1, round((cell.x0 - before.x1) / advance)) + cell.text
    return text
