"""Recognition of scanned pages with RapidOCR, and their assembly into Markdown. Runs only in limited processes.

Recognised lines become pieces of text, so that columns, headings, running heads and paragraphs are found as in a PDF
with a text layer. What was not read for certain is marked as garbled: formulas, and lines with a low score.
"""

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from corpus.read import embedded
from corpus.read.formulas.signs import GARBLED
from corpus.read.printed import PdfContent, Piece

DPI = 200
"""Resolution at which a page is rendered."""
LONGEST = 1200
"""Longest side of a page, points: some scans declare a point for each pixel, and are shrunk to this size."""
MIN_SCORE = 0.9
"""Score of a line below which it counts as garbled."""
FORMULA = re.compile(r"[=^{}|\u00b1\u00d7\u0370-\u03ff\u2190-\u22ff]|\w ?\+ ?\w|\u20ac(?! ?\d)")
"""Signs of a formula within a line, whose scripts may be lost whatever the score. An epsilon is read as a euro sign."""
LABEL_CHARS = 15
"""Mean length of lines above which a figure is not a drawing with labels, but text such as code."""
LEVEL_WIDTH = 10
"""Least width of a line that shows how far a page is turned, in units of its height."""
SAME_ROW = 0.5
"""Largest distance between the middles of boxes in one printed row, in units of the font size."""
SIZE_STEP = 1.2
"""Ratio of two font sizes that count as different: boxes of one font differ by up to a tenth in height."""
FONT, INSET = 0.8, 0.1
"""Font size as a share of a box's height, and the box's margin on each side in units of the font size."""
BASELINE = 0.3
"""Height of a box's middle above the baseline, in units of the font size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLine:
    """One recognised line. Positions are in points from the page's upper left corner."""

    text: str
    score: float
    """Mean probability of its characters, 0 to 1."""
    corners: list[list[float]]
    """(x, y) of the upper left, upper right, lower right and lower left corner."""

    @property
    def height(self) -> float:
        """Height of the box, points."""
        left, right = (self.corners[0], self.corners[3]), (self.corners[1], self.corners[2])
        return (math.dist(*left) + math.dist(*right)) / 2

    @property
    def advance(self) -> float:
        """Width of the box for each character, points."""
        return math.dist(*self.ends) / len(self.text)

    @property
    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Middles (x, y) of the left and right edge."""
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = self.corners
        return ((ax + dx) / 2, (ay + dy) / 2), ((bx + cx) / 2, (by + cy) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region that the layout model found, such as a title, equation or figure. Positions as in ScanLine."""

    kind: str
    x0: float
    y0: float
    x1: float
    y1: float

    def holds(self, line: ScanLine) -> bool:
        """Whether the middle of a line is in this region."""
        (ax, ay), (bx, by) = line.ends
        return self.x0 <= (ax + bx) / 2 <= self.x1 and self.y0 <= (ay + by) / 2 <= self.y1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPage:
    """Recognised lines and regions of a page."""

    height: float
    """Height of the page, points."""
    lines: list[ScanLine]
    regions: list[Region]

    @staticmethod
    def of(value: dict[str, Any]) -> "ScanPage":
        """Build a page from the JSON value that `recognize` returns."""
        lines, regions = [ScanLine(**row) for row in value["lines"]], [Region(**row) for row in value["regions"]]
        return ScanPage(height=value["height"], lines=lines, regions=regions)


def recognize(path: str, pages: list[int]) -> list[dict[str, Any]]:
    """Render some pages of a PDF, by index, and recognise their text and layout on one core; returns ScanPages."""
    # Imported here: the assembly needs no models. Messages of the models would be mixed with the result.
    logging.disable(logging.CRITICAL)
    import cv2
    import pypdfium2 as pdfium
    from rapid_layout import RapidLayout
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    one_thread = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
    options = {f"EngineConfig.onnxruntime.{name}": value for name, value in one_thread.items()}
    # Printed pages are upright: the classifier of upside-down lines errs more often than it helps.
    read_text: Any = RapidOCR(params={**options, "Global.use_cls": False, "Global.log_level": "critical"})
    find_regions = RapidLayout(engine_cfg=one_thread)
    results, unit = [], 72 / DPI
    with pdfium.PdfDocument(path) as document:
        for index in pages:
            page = document[index]
            shrink = min(1.0, LONGEST / max(page.get_size()))
            image = page.render(scale=shrink / unit).to_numpy()
            text, layout = read_text(image), find_regions(image)
            boxes = [] if text.boxes is None else (text.boxes * unit).tolist()
            lines = [
                ScanLine(text=words.strip(), score=float(score), corners=corners)
                for words, score, corners in zip(text.txts or (), text.scores or (), boxes, strict=True)
                if words.strip()
            ]
            regions = [
                Region(kind=kind, **dict(zip(("x0", "y0", "x1", "y1"), (float(x) * unit for x in box), strict=True)))
                for kind, box in zip(layout.class_names or (), layout.boxes if layout.class_names else (), strict=True)
            ]
            results.append(asdict(ScanPage(height=page.get_height() * shrink, lines=lines, regions=regions)))
    return results


def assemble(path: str, pages: list[dict[str, Any]]) -> dict[str, Any]:
    """Assemble all pages of a PDF, values of `recognize`, into Markdown; returns the fields of `embedded.Reading`."""
    import pypdfium2 as pdfium

    from corpus.read.pdf import read_outline

    with pdfium.PdfDocument(path) as document:
        outline = read_outline(document)
    scans = [ScanPage.of(value) for value in pages]
    usual = usual_box([line for scan in scans for line in scan.lines])
    content = [pieces_of(scan, usual) for scan in scans]
    printed = PdfContent(
        pages=[pieces for pieces, _ in content],
        labels=[labels for _, labels in content],
        outline=outline,
        unreadable=0,
    )
    num_empty = sum(not pieces for pieces in printed.pages)
    return asdict(embedded.render_content(printed, num_empty, use_outline=True))


def usual_box(lines: Sequence[ScanLine]) -> tuple[float, float]:
    """Height and advance of most of a book's text, points: medians weighted by characters; 1 without lines."""
    letters = [line for line in lines for _ in line.text]
    if not letters:
        return 1.0, 1.0
    return median(line.height for line in letters), median(line.advance for line in letters)


def pieces_of(page: ScanPage, usual: tuple[float, float]) -> tuple[list[Piece], list[str]]:
    """Convert a page's lines to pieces in rows from the top, and the labels within its figures.

    `usual` is the height and advance of most of the book's text. Rows are made level, and similar font sizes equal.
    """
    figures = [region for region in page.regions if region.kind == "figure"]
    insides = [[line for line in page.lines if region.holds(line)] for region in figures]
    drawings = [lines for lines in insides if lines and _are_labels(lines)]
    in_drawing = {id(line) for lines in drawings for line in lines}
    doubtful = {id(line) for lines in insides for line in lines} - in_drawing
    equations = [region for region in page.regions if region.kind == "equation"]
    titles = [region for region in page.regions if region.kind == "title"]
    turn = _turn(page.lines)
    pieces = []
    for line in page.lines:
        if id(line) in in_drawing:
            continue
        is_garbled = line.score < MIN_SCORE or bool(FORMULA.search(line.text)) or id(line) in doubtful
        is_garbled |= any(region.holds(line) for region in equations)
        size = FONT * usual[0] * SIZE_STEP ** _size_steps(line, usual)
        (x0, y0), (x1, y1) = (_level(end, turn) for end in line.ends)
        piece = Piece(
            text=line.text + GARBLED * is_garbled,
            x0=x0 + INSET * size,
            x1=x1 - INSET * size,
            y=page.height - (y0 + y1) / 2 - BASELINE * size,
            size=size,
            font="",
            bold=any(region.holds(line) for region in titles),
            mono=False,
        )
        pieces.append(piece)
    for region in equations:
        if not any(region.holds(line) for line in page.lines):
            x0, y = _level((region.x0, (region.y0 + region.y1) / 2), turn)
            x1, size = x0 + region.x1 - region.x0, FONT * usual[0]
            piece = Piece(text=GARBLED, x0=x0, x1=x1, y=page.height - y, size=size, font="", bold=False, mono=False)
            pieces.append(piece)
    return _rows(pieces), [line.text for lines in drawings for line in lines]


def _are_labels(lines: Sequence[ScanLine]) -> bool:
    """Whether the lines in a figure are labels: they are short and, unlike those of a list, begin anywhere."""
    lefts = [line.corners[0][0] for line in lines]
    is_list = len(lines) > 2 and max(lefts) - min(lefts) < lines[0].height
    return fmean(len(line.text) for line in lines) < LABEL_CHARS and not is_list


def _size_steps(line: ScanLine, usual: tuple[float, float]) -> int:
    """Steps by which a line's font is larger than most text, in which its height and its advance agree.

    A line without ascenders has a low box, and one in capitals a large advance.
    """
    steps = [
        round(math.log(max(value, 0.1) / most, SIZE_STEP))
        for value, most in zip((line.height, line.advance), usual, strict=True)
    ]
    return max(0, min(steps)) + min(0, max(steps))


def _turn(lines: Sequence[ScanLine]) -> float:
    """Angle by which a page's lines fall to the right, radians."""
    angles = []
    for line in lines:
        (ax, ay), (bx, by) = line.ends
        if bx - ax > LEVEL_WIDTH * line.height:
            angles.append(math.atan2(by - ay, bx - ax))
    return median(angles) if angles else 0.0


def _level(point: tuple[float, float], turn: float) -> tuple[float, float]:
    """Turn a point back by the page's angle."""
    x, y = point
    return x * math.cos(turn) + y * math.sin(turn), y * math.cos(turn) - x * math.sin(turn)


def _rows(pieces: Sequence[Piece]) -> list[Piece]:
    """Sort pieces into rows from the top, each on one baseline."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        if rows and rows[-1][0].y - piece.y < SAME_ROW * min(rows[-1][0].size, piece.size):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [replace(piece, y=row[0].y) for row in rows for piece in sorted(row, key=lambda piece: piece.x0)]
