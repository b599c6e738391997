"""Drawings on a PDF page: horizontal rules that may be fraction bars, and text labels within drawings."""

import ctypes
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pypdfium2.raw as raw

from corpus.read.printed import Piece, Rule

RULE_HEIGHT = 1.5
RULE_WIDTH = (2.0, 400.0)
MAX_RULES = 200
"""Most rules of a page, or of a drawing on it; if there are more, they form a drawing themselves."""
MAX_OBJECTS = 5000
MAX_DEPTH = 3
"""Largest depth of drawings within drawings that are read."""
STROKES = frozenset({raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE})
"""Kinds of PDF objects that may be rules: some programs paint these as pictures of one colour."""
LABEL = 30
"""Largest mean length of the labels in a drawing, characters; running text embedded like a drawing has more."""
PAGE_SHARE = 0.9
"""Share of a page's characters from which an embedded drawing is the page itself."""
SLACK = 2.0
"""Points by which a label may stick out of its drawing."""
FIGURE = re.compile(r"^fig(?:ure|\.)\s*[\dA-Z]", re.IGNORECASE)
CAPTION = re.compile(r"^(?:fig(?:ure|\.)|tab(?:le|\.)|listing|algorithm)\s*[\dA-Z]", re.IGNORECASE)
CAPTION_REACH = 45.0
"""Largest distance of a figure's caption from the figure, points."""
TOUCHING = 4.0
"""Largest distance between two strokes of one drawing, points."""
LINE_WIDTH = 3.0
"""Largest thickness of a straight line, points."""
LEAST_EXTENT = 30.0
"""Least width and height of a drawing, points; smaller ones are symbols and keys within the text."""
LEAST_STROKES = 3
"""Least number of curves and slanting lines, or of boxes near a caption, in a drawing; frames and tables have fewer."""
FRAME = 0.6
"""Share of the area of its page or drawing from which a stroke is a frame around other things."""
SENTENCE = 45
"""Length above which a piece of text is running text if it is wide as well, characters."""
AT_SIDE, ABOVE, BELOW = 8.0, 4.0, 1.5
"""Largest distance of labels from a drawing: points to its sides and above, units of the font size below."""
MAX_DRAWINGS = 300

Bounds = tuple[float, float, float, float]
"""Left, lower, right and upper edge, points."""
EVERYWHERE: Bounds = (-inf, -inf, inf, inf)
Matrix = tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDrawings:
    """Rules, embedded drawings and drawn paths of a page."""

    rules: list[Rule]
    """Thin horizontal lines, including those within drawings."""
    boxes: list[Bounds]
    """Bounds of what is shown of every embedded drawing."""
    strokes: list[tuple[Bounds, int]]
    """Bounds of every path, with the number of its segments."""
    hidden: set[int]
    """Addresses of the text objects that no part of their drawing's clipping path shows."""


def collect_drawings(page: Any) -> PageDrawings:
    """Collect the rules, embedded drawings and strokes of a page."""
    drawings = PageDrawings(rules=[], boxes=[], strokes=[], hidden=set())
    count = raw.FPDFPage_CountObjects(page)
    objects = (raw.FPDFPage_GetObject(page, index) for index in range(min(count, MAX_OBJECTS)))
    _collect(drawings, objects, EVERYWHERE, None, 0)
    largest = FRAME * raw.FPDF_GetPageWidthF(page) * raw.FPDF_GetPageHeightF(page)
    return replace(drawings, strokes=[stroke for stroke in drawings.strokes if _area(stroke[0]) < largest])


def split_labels(pieces: Sequence[Piece], drawings: PageDrawings) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """Separate labels within drawings, such as names of axes and boxes, from the text; returns (text, labels)."""
    total = sum(len(piece.text) for piece in pieces)
    bent = [stroke for stroke, segments in drawings.strokes if _is_bent(stroke, segments)]
    labels: dict[int, Piece] = {}

    def add(group: Sequence[Piece]) -> bool:
        """Add the labels of a drawing; returns whether they are labels, and not running text."""
        length = sum(len(piece.text) for piece in group)
        are_labels = length <= LABEL * len(group) and length < PAGE_SHARE * total
        labels.update((id(piece), piece) for piece in group if are_labels)
        return are_labels

    included = []
    for box in drawings.boxes:
        within = [piece for piece in pieces if _is_within(piece, box)]
        curves = sum(_contains(box, stroke) for stroke in bent)
        if (curves >= LEAST_STROKES or not _is_listing(within)) and add(within):
            included.append(box)
    own = [stroke for stroke in drawings.strokes if not any(_contains(box, stroke[0]) for box in included)]
    for box in _sketches(own, pieces):
        add(_labels_of(box, pieces))
    return [piece for piece in pieces if id(piece) not in labels], list(labels.values())


def _contains(box: Bounds, stroke: Bounds) -> bool:
    return box[0] <= stroke[0] and stroke[2] <= box[2] and box[1] <= stroke[1] and stroke[3] <= box[3]


def _is_within(piece: Piece, box: Bounds) -> bool:
    left, lower, right, upper = box
    return lower - SLACK <= piece.y <= upper + SLACK and left - SLACK <= piece.x0 and piece.x1 <= right + SLACK


def _is_listing(pieces: Sequence[Piece]) -> bool:
    """Whether most characters in a drawing are monospaced: slides include listings, with line numbers, as drawings."""
    return 2 * sum(len(piece.text) for piece in pieces if piece.mono) > sum(len(piece.text) for piece in pieces)


def _labels_of(box: Bounds, pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of text in and around a drawing; none if the drawing frames running text or a listing."""
    labels = [piece for piece in pieces if _is_within(piece, box)]
    has_text = any(len(p.text) > SENTENCE and p.x1 - p.x0 > FRAME * (box[2] - box[0]) for p in labels)
    if has_text or _is_listing(labels):
        return []
    for _ in range(2):
        box = _around([box, *((p.x0, p.y, p.x1, p.y + p.size / 2) for p in labels)])
        ids = {id(piece) for piece in labels}
        labels += [
            piece
            for piece in pieces
            if id(piece) not in ids
            and len(piece.text) <= LABEL
            and not CAPTION.match(piece.text)
            and _is_at(piece, box)
        ]
    return labels


def _is_at(piece: Piece, box: Bounds) -> bool:
    """Whether a piece is right at a drawing: at one of its sides, or above or below it with its middle.

    The beginning of a line of text may be above or below a drawing as well, but its middle seldom is.
    """
    left, lower, right, upper = box
    if not lower - BELOW * piece.size <= piece.y <= upper + ABOVE:
        return False
    if lower <= piece.y <= upper and (piece.x1 <= left + SLACK or right - SLACK <= piece.x0):
        return left - AT_SIDE <= piece.x1 and piece.x0 <= right + AT_SIDE
    return left - AT_SIDE <= (piece.x0 + piece.x1) / 2 <= right + AT_SIDE


def _sketches(strokes: Sequence[tuple[Bounds, int]], pieces: Sequence[Piece]) -> list[Bounds]:
    """Bounds of the drawings that a page's strokes form: several curves or slanting lines, or boxes with a caption."""
    captions = [piece for piece in pieces if FIGURE.match(piece.text)]
    bent = sum(_is_bent(*stroke) for stroke in strokes)
    if bent < LEAST_STROKES and not captions:
        return []
    sketches = []
    lines = [(piece.x0, piece.x1) for piece in pieces if len(piece.text) > SENTENCE]
    edges = min((x0 for x0, _ in lines), default=inf) + SLACK, max((x1 for _, x1 in lines), default=-inf) - SLACK
    # Rules and frames as wide as the text belong to the text.
    inner = [stroke for stroke in strokes if _is_bent(*stroke) or edges[0] < stroke[0][0] or stroke[0][2] < edges[1]]
    for parts in _clusters(inner):
        box = left, lower, right, upper = _around([bounds for bounds, _ in parts])
        if min(right - left, upper - lower) < LEAST_EXTENT:
            continue
        inner = [part for part in parts if _area(part[0]) < FRAME * _area(box)]
        has_caption = any(
            p.x0 < right and p.x1 > left and (0 < lower - p.y < CAPTION_REACH or 0 < p.y - upper < CAPTION_REACH)
            for p in captions
        )
        boxes = sum(min(b[2] - b[0], b[3] - b[1]) > LINE_WIDTH for b, _ in inner)
        if sum(_is_bent(*part) for part in inner) >= LEAST_STROKES or (has_caption and boxes >= LEAST_STROKES):
            sketches.append(box)
    return sketches


def _is_bent(bounds: Bounds, segments: int) -> bool:
    """Whether a path is neither a horizontal or vertical line nor a rectangle."""
    return min(bounds[2] - bounds[0], bounds[3] - bounds[1]) > LINE_WIDTH and segments not in (4, 5)


def _area(box: Bounds) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _around(boxes: Sequence[Bounds]) -> Bounds:
    lefts, lowers, rights, uppers = zip(*boxes, strict=True)
    return min(lefts), min(lowers), max(rights), max(uppers)


def _clusters(strokes: Sequence[tuple[Bounds, int]]) -> list[list[tuple[Bounds, int]]]:
    """Group strokes that touch each other; no groups for a page with too many of them."""
    clusters: list[tuple[Bounds, list[tuple[Bounds, int]]]] = []
    for stroke in strokes:
        left, lower, right, upper = stroke[0]
        left, lower, right, upper = left - TOUCHING, lower - TOUCHING, right + TOUCHING, upper + TOUCHING
        touches = [x0 <= right and left <= x1 and y0 <= upper and lower <= y1 for (x0, y0, x1, y1), _ in clusters]
        near = [cluster for cluster, touching in zip(clusters, touches, strict=True) if touching]
        apart = [cluster for cluster, touching in zip(clusters, touches, strict=True) if not touching]
        parts = [stroke, *(part for _, members in near for part in members)]
        clusters = [*apart, (_around([stroke[0], *(box for box, _ in near)]), parts)]
        if len(clusters) > MAX_DRAWINGS:
            return []
    return [parts for _, parts in clusters]


def _collect(
    drawings: PageDrawings, objects: Iterable[Any], window: Bounds, to_page: Matrix | None, depth: int
) -> None:
    """Add the rules, drawings and strokes among PDF objects to `drawings`, including those within drawings.

    `window` is the part of the page that shows them.
    """
    rules = []
    for item in objects:
        kind = raw.FPDFPageObj_GetType(item)
        within = kind == raw.FPDF_PAGEOBJ_FORM and depth < MAX_DEPTH
        if not (within or kind in STROKES or (kind == raw.FPDF_PAGEOBJ_TEXT and depth)):
            continue
        x0, y0, x1, y1 = box = _common(window, _bounds(item, to_page))
        is_hidden = x0 > x1 or y0 > y1
        if within:
            inner = [
                raw.FPDFFormObj_GetObject(item, index)
                for index in range(min(raw.FPDFFormObj_CountObjects(item), MAX_OBJECTS))
            ]
            matrix = _matrix_to_page(item, to_page)
            # The file may crop a drawing: its own bounds include what cannot be seen.
            is_whole = len(inner) < MAX_OBJECTS
            parts = [_common(box, _bounds(part, matrix)) for part in inner] if is_whole else [box]
            parts = [part for part in parts if part[0] <= part[2] and part[1] <= part[3]]
            drawings.boxes.extend([_around(parts)] if parts else [])
            _collect(drawings, inner, _around(parts or [box]), matrix, depth + 1)
        elif is_hidden:
            drawings.hidden.add(ctypes.cast(item, ctypes.c_void_p).value or 0)
        elif kind == raw.FPDF_PAGEOBJ_PATH:
            drawings.strokes.append((box, raw.FPDFPath_CountSegments(item)))
        if kind in STROKES and 0 <= y1 - y0 < RULE_HEIGHT and RULE_WIDTH[0] < x1 - x0 < RULE_WIDTH[1]:
            rules.append(Rule(x0=x0, x1=x1, y=(y0 + y1) / 2))
    if len(rules) <= MAX_RULES:
        drawings.rules.extend(rules)


def _common(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])


def _bounds(item: Any, to_page: Matrix | None) -> Bounds:
    """Bounds of what is shown of an object; `to_page` is None for one that is not in a drawing."""
    x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
    raw.FPDFPageObj_GetBounds(item, x0, y0, x1, y1)
    bounds = x0.value, y0.value, x1.value, y1.value
    if to_page is None:
        return bounds
    path = raw.FPDFPageObj_GetClipPath(item)
    for number in range(raw.FPDFClipPath_CountPaths(path) if path else 0):
        points = []
        for index in range(raw.FPDFClipPath_CountPathSegments(path, number)):
            raw.FPDFPathSegment_GetPoint(raw.FPDFClipPath_GetPathSegment(path, number, index), x0, y0)
            points.append((x0.value, y0.value, x0.value, y0.value))
        bounds = _common(bounds, _around(points)) if points else bounds
    return bounds if bounds[0] > bounds[2] or bounds[1] > bounds[3] else _to_page(bounds, to_page)


def _to_page(bounds: Bounds, matrix: Matrix) -> Bounds:
    left, lower, right, upper = bounds
    a, b, c, d, e, f = matrix
    xs, ys = zip(*((a * x + c * y + e, b * x + d * y + f) for x in (left, right) for y in (lower, upper)), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _matrix_to_page(drawing: Any, to_page: Matrix | None) -> Matrix:
    """Matrix from a drawing's coordinates to the page's; `to_page` is the matrix of the drawing around it."""
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(drawing, matrix)
    inner = (matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)
    if to_page is None:
        return inner
    a, b, c, d, e, f = inner
    A, B, C, D, E, F = to_page
    return a * A + b * C, a * B + b * D, c * A + d * C, c * B + d * D, e * A + f * C + E, e * B + f * D + F
