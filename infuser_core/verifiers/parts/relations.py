r"""Inequalities, and sets of real numbers, each in one form.

`a<b` says that `b-a` is positive, and so do `b>a` and `2b>2a`. A set is the list of its intervals from left to right:
`(0,2]\cup[1,3)` is `(0,3)`, and `x\ne 2` is two rays. What exact algebra cannot put in order has no such form.
"""

from collections.abc import Callable

from infuser_core.verifiers.parts import algebra
from infuser_core.verifiers.parts.algebra import OPAQUE, TooBigError, Value
from infuser_core.verifiers.parts.reading import value_of
from infuser_core.verifiers.parts.structure import INTERVALS, Kind, Node, parts_of
from infuser_core.verifiers.parts.tokens import Tokens

COMPOSED = frozenset([Kind.UNION, Kind.INTERSECTION, Kind.WITHOUT])
"""Sets that others make."""
SETS = COMPOSED | {*INTERVALS.values(), Kind.SET}
"""Structures that can be a set of real numbers."""
_POSITIVE = {"<": "<", ">": "<", r"\le": r"\le", r"\ge": r"\le", r"\neq": r"\neq"}
_LOW_AFTER = (Kind.TUPLE, Kind.OPEN_LEFT)
_HIGH_AFTER = (Kind.CLOSED, Kind.OPEN_LEFT)
_ENDS = {("-", r"\infty"): -float("inf"), (r"\infty",): float("inf"), ("+", r"\infty"): float("inf")}
_NEAR = 1e-9

Cut = tuple[float, int]
"""A place on the line, and 0 just before the number there or 1 just after it."""
Region = list[tuple[Cut, Cut]]
"""Intervals from left to right that do not touch."""
_ALL: Region = [((-float("inf"), 0), (float("inf"), 0))]


class Unordered(ValueError):
    """Ends whose order on the line is unknown."""


def same_inequality(found: Tokens, wanted: Tokens) -> bool | None:
    """Whether two inequalities, or chains of them, say the same but for a factor; None where that is open."""
    mine, theirs = _steps(found), _steps(wanted)
    if mine is None or theirs is None:
        return None
    rest = list(theirs)
    for step in mine:
        match = next((other for other in rest if _same_step(step, other)), None)
        if match is None:
            return False if all(map(_is_linear, (*mine, *theirs))) else None
        rest.remove(match)
    return not rest


def _steps(found: Tokens) -> list[tuple[str, Value]] | None:
    """A sign and what it says to be positive, for each sign of a chain."""
    sides, signs = parts_of(found)
    if not signs or not set(signs) <= set(_POSITIVE):
        return None
    try:
        values = [value_of(side) for side in sides]
    except (TooBigError, ZeroDivisionError):
        return None
    steps = []
    for sign, left, right in zip(signs, values, values[1:], strict=False):
        if left is None or right is None:
            return None
        low, high = (right, left) if sign in (">", r"\ge") else (left, right)
        steps.append((_POSITIVE[sign], high + -low))
    return steps


def _same_step(one: tuple[str, Value], other: tuple[str, Value]) -> bool:
    (sign, mine), (other_sign, theirs) = one, other
    if sign != other_sign or mine.bottom != theirs.bottom or len(mine.bottom) != 1 or not algebra.symbols(mine):
        return False
    factor = algebra.multiple(mine, theirs)
    return factor is not None and (factor > 0 or sign == r"\neq")


def _is_linear(step: tuple[str, Value]) -> bool:
    terms = (powers for side in (step[1].top, step[1].bottom) for _, powers in side)
    return all(sum(n for _, n in powers) <= 1 and all(name[0] != OPAQUE for name, _ in powers) for powers in terms)


def same_set(found: Node, wanted: Node) -> bool:
    """Whether two structures are the same set of real numbers, and it is known in what order their ends are.

    An empty set is none: `x<1, x>2` is more likely a union without its `or`.
    """
    line = _Line()
    try:
        return _region(found, line.place) == _region(wanted, line.place) != []
    except (Unordered, TooBigError, ZeroDivisionError):
        return False


class _Line:
    """Places of values: equal ones share one. A symbol has a place only where no other number needs one."""

    def __init__(self) -> None:
        self._places: list[tuple[Value, float]] = []
        self._symbolic = False

    def place(self, found: Tokens) -> float:
        """The place of a value. Raises Unordered."""
        if found in _ENDS:
            return _ENDS[found]
        value = value_of(found)
        if value is None:
            raise Unordered
        for known, place in self._places:
            if algebra.same(known, value):
                return place
        near = algebra.approximate(value)
        self._symbolic |= near is None
        place = 0.0 if near is None else complex(near).real
        close = any(abs(place - other) <= _NEAR * max(1.0, abs(place)) for _, other in self._places)
        if close or (self._symbolic and self._places) or (near is not None and complex(near).imag):
            raise Unordered
        self._places.append((value, place))
        return place


def _region(node: Node, place: Callable[[Tokens], float]) -> Region:
    if node.kind == Kind.VALUE:
        if node.tokens == ("R",):
            return _ALL
        point = place(node.tokens)
        return [((point, 0), (point, 1))]
    if node.kind in INTERVALS.values() and len(node.items) == 2:
        ends = [place(item.tokens) for item in node.items]
        marks = (node.kind in _LOW_AFTER, node.kind in _HIGH_AFTER)
        low, high = ((end, int(mark and abs(end) != float("inf"))) for end, mark in zip(ends, marks, strict=True))
        return [(low, high)] if low < high else []
    parts = [_region(item, place) for item in node.items]
    if node.kind == Kind.WITHOUT:
        return _outside(_united([*_outside(parts[0]), *parts[1]]))
    if node.kind == Kind.INTERSECTION:
        return _outside(_united([piece for part in parts for piece in _outside(part)]))
    if node.kind in (Kind.UNION, Kind.LIST, Kind.SET):
        return _united([piece for part in parts for piece in part])
    raise Unordered


def _united(pieces: Region) -> Region:
    joined: Region = []
    for low, high in sorted(pieces):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def _outside(region: Region) -> Region:
    (start, end), pieces = _ALL[0], []
    for low, high in region:
        if start < low:
            pieces.append((start, low))
        start = high
    return [*pieces, (start, end)] if start < end else pieces
