"""Drawings of a page: rules that may be bars of fractions, and the text that stands within an included drawing."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as raw

from corpus.read.printed import Piece, Rule

RULE_HEIGHT = 1.5
RULE_WIDTH = (2.0, 400.0)
MAX_RULES = 200
"""Rules of a page, or of a drawing in it; where there are more, they are a drawing."""
MAX_OBJECTS = 5000
MAX_DEPTH = 3
"""Drawings within drawings that are looked into."""
STROKES = frozenset({raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE})
"""Objects that are rules: some programs paint them as pictures of one colour."""
LABEL = 30
"""Mean length of the pieces of text in a drawing, characters; text that a program wrapped like a drawing has more."""
PAGE_SHARE = 0.9
"""Share of a page's characters from which a drawing is the page itself."""
SLACK = 2.0
"""Points by which a label may stick out of its drawing."""

Bounds = tuple[float, float, float, float]
"""Left, lower, right and upper edge, points."""
Matrix = tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Drawings of a page."""

    rules: list[Rule]
    """Thin horizontal lines, those within drawings included."""
    boxes: list[Bounds]
    """Edges of every included drawing."""


def drawn_on(page: Any) -> Drawn:
    """Rules and included drawings of a page."""
    found = Drawn(rules=[], boxes=[])
    count = raw.FPDFPage_CountObjects(page)
    _collect(found, (raw.FPDFPage_GetObject(page, index) for index in range(min(count, MAX_OBJECTS))), None, 0)
    return found


def without_labels(pieces: Sequence[Piece], boxes: Sequence[Bounds]) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """Pieces outside of included drawings, and those within: names of axes and boxes, which are no text."""
    total = sum(len(piece.text) for piece in pieces)
    labels: dict[int, Piece] = {}
    for left, lower, right, upper in boxes:
        within = [
            piece
            for piece in pieces
            if lower - SLACK <= piece.y <= upper + SLACK and left - SLACK <= piece.x0 and piece.x1 <= right + SLACK
        ]
        length = sum(len(piece.text) for piece in within)
        if length <= LABEL * len(within) and length < PAGE_SHARE * total:
            labels.update((id(piece), piece) for piece in within)
    return [piece for piece in pieces if id(piece) not in labels], list(labels.values())


def _collect(found: Drawn, objects: Iterator[Any], to_page: Matrix | None, depth: int) -> None:
    rules = []
    for drawn in objects:
        kind = raw.FPDFPageObj_GetType(drawn)
        if kind in STROKES:
            x0, y0, x1, y1 = _bounds(drawn, to_page)
            if y1 - y0 < RULE_HEIGHT and RULE_WIDTH[0] < x1 - x0 < RULE_WIDTH[1]:
                rules.append(Rule(x0=x0, x1=x1, y=(y0 + y1) / 2))
        elif kind == raw.FPDF_PAGEOBJ_FORM and depth < MAX_DEPTH:
            found.boxes.append(_bounds(drawn, to_page))
            count = min(raw.FPDFFormObj_CountObjects(drawn), MAX_OBJECTS)
            inner = (raw.FPDFFormObj_GetObject(drawn, index) for index in range(count))
            _collect(found, inner, _placed(drawn, to_page), depth + 1)
    if len(rules) <= MAX_RULES:
        found.rules.extend(rules)


def _bounds(drawn: Any, to_page: Matrix | None) -> Bounds:
    x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
    raw.FPDFPageObj_GetBounds(drawn, x0, y0, x1, y1)
    left, lower, right, upper = x0.value, y0.value, x1.value, y1.value
    if to_page is None:
        return left, lower, right, upper
    a, b, c, d, e, f = to_page
    xs, ys = zip(*((a * x + c * y + e, b * x + d * y + f) for x in (left, right) for y in (lower, upper)), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _placed(drawn: Any, to_page: Matrix | None) -> Matrix:
    """From a drawing's coordinates to the page's."""
    own = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(drawn, own)
    inner = (own.a, own.b, own.c, own.d, own.e, own.f)
    if to_page is None:
        return inner
    a, b, c, d, e, f = inner
    A, B, C, D, E, F = to_page
    return a * A + b * C, a * B + b * D, c * A + d * C, c * B + d * D, e * A + f * C + E, e * B + f * D + F
