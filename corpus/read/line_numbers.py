"""Removal of printed line numbers: in the margin of a manuscript, and to the left of the lines of a listing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from corpus.read.printed import Piece

IN_MARGIN, IN_LISTING = 8, 3
"""Least number of rising numbers in a page's left margin, and of lines that a listing counts, to be line numbers."""
SMALLER = 0.9
"""Largest size of a listing's line numbers in units of the code's; larger ones are near the code."""
NEAR = 1.1
"""Largest gap between code and a number of its size, in units of the font size; columns of tables are further apart."""
ROWS = 4.0
"""Largest distance between two numbered lines, in units of the code's font size: blank ones may have no number."""
ALIGNED = 0.6
"""Largest difference between the edges of numbers below each other, points."""

Style = tuple[str, float]
"""Font and font size."""
Numbered = tuple[Piece, Piece | None]
"""A number at the beginning of a row, and the piece to its right."""


def split_line_numbers(pages: Sequence[Sequence[Piece]]) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """Separate line numbers from the text of a book; returns (text, line numbers) by page."""
    edges = Counter(round(piece.x0) for page in pages for piece in page if not piece.text.isdecimal())
    left = float(edges.most_common(1)[0][0]) if edges else 0.0
    runs = [list(_runs(page)) for page in pages]
    # A listing of many lines shows how the book prints line numbers, which tells those of a listing of one line.
    styles = {_style(run) for page in runs for run in page if len(run) >= IN_LISTING and _counts_code(run)}
    texts: list[list[Piece]] = []
    numbers: list[list[Piece]] = []
    last = 0
    for page, page_runs in zip(pages, runs, strict=True):
        counts = list(_margin_numbers(page, left))
        for run in page_runs:
            values = [int(number.text) for number, _ in run]
            if _style(run) in styles and _counts_code(run) and (values[0] in (1, last + 1) or len(run) >= IN_LISTING):
                counts += [number for number, _ in run]
                last = values[-1]
        dropped = {id(piece) for piece in counts}
        texts.append([piece for piece in page if id(piece) not in dropped])
        numbers.append(counts)
    return texts, numbers


def _margin_numbers(pieces: Sequence[Piece], left: float) -> Sequence[Piece]:
    """The numbers in a page's left margin; `left` is the left edge of the book's text.

    Numbers to its right are the first column of a table.
    """
    numbers = [piece for piece in pieces if _is_number(piece)]
    if len(numbers) < IN_MARGIN or len(numbers) == len(pieces):
        return ()
    edge = min(left, *(piece.x0 for piece in pieces if not piece.text.isdecimal()))
    margin = sorted((piece for piece in numbers if piece.x1 < edge), key=lambda piece: -piece.y)
    rising = sum(int(below.text) > int(above.text) for above, below in pairwise(margin))
    return margin if len(margin) >= IN_MARGIN and rising >= len(margin) - 1 else ()


def _is_number(piece: Piece) -> bool:
    return piece.text.isdecimal() and len(piece.text) < 6


def _runs(page: Sequence[Piece]) -> Iterator[list[Numbered]]:
    """Yield the numbers that count lines below each other: rising by one, in one style, with one edge."""
    open_runs: list[list[Numbered]] = []
    for number in sorted(filter(_is_number, page), key=lambda piece: -piece.y):
        row = [p for p in page if p is not number and abs(p.y - number.y) < 0.45 * max(p.size, number.size)]
        if any(0 <= number.x0 - p.x1 < 2 * p.size for p in row):
            continue
        after = min((p for p in row if p.x0 >= number.x1 - 1), key=lambda p: p.x0, default=None)
        run = next((run for run in open_runs if _continues(run, number)), None)
        if run is None:
            open_runs.append([(number, after)])
        else:
            run.append((number, after))
    yield from open_runs


def _continues(run: Sequence[Numbered], number: Piece) -> bool:
    last = run[-1][0]
    size = max(piece.size for pair in run for piece in pair if piece)
    is_level = min(abs(last.x0 - number.x0), abs(last.x1 - number.x1)) < ALIGNED
    is_next = int(number.text) == int(last.text) + 1 and (number.font, number.size) == (last.font, last.size)
    return is_level and is_next and 0 < last.y - number.y < ROWS * size


def _style(run: Sequence[Numbered]) -> Style:
    return run[0][0].font, run[0][0].size


def _counts_code(run: Sequence[Numbered]) -> bool:
    """Whether numbers are printed to the left of code, in another style: smaller, or close to it in another font."""
    code = [(number, after) for number, after in run if after]
    if not code or any(not after.mono or after.font == number.font for number, after in code):
        return False
    is_small = all(number.size < SMALLER * after.size for number, after in code)
    return is_small or min((after.x0 - number.x1) / after.size for number, after in code) < NEAR
