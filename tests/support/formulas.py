"""Random formulas for a verifier's tests: LaTeX and value from one tree, and mutations that change the value.

The value is worked out with Python's own numbers, so that a verifier's symbolic library is judged by something else.
Unknowns are whole; a point outside a formula's meaning (a binomial of more than there is, a division by zero) is None.
"""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

Point = dict[str, int]
Number = Fraction | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A node of a formula."""

    kind: str
    """number, name, sum, product, quotient, power, binomial, factorial, floor, ceiling, root, sin or log."""
    parts: tuple["Formula", ...] = ()
    """Operands."""
    value: int = 0
    """Of a number."""
    name: str = ""
    """Of an unknown."""


def number(value: int) -> Formula:
    return Formula(kind="number", value=value)


def name(text: str) -> Formula:
    return Formula(kind="name", name=text)


def of(kind: str, *parts: Formula) -> Formula:
    return Formula(kind=kind, parts=parts)


def tex(tree: Formula, *, other: bool = False) -> str:
    """LaTeX; `other` is another way to write the same thing."""
    parts = [tex(part, other=other) for part in tree.parts]
    if tree.kind == "number":
        return str(tree.value) if tree.value >= 0 else f"({tree.value})"
    if tree.kind in ("name",):
        return tree.name
    ordered = parts[::-1] if other and tree.kind in ("sum", "product") else parts
    if tree.kind == "sum":
        return "(" + "+".join(ordered) + ")"
    if tree.kind == "product":
        return r" \cdot ".join(ordered)
    if tree.kind == "quotient":
        return rf"\frac{{{parts[0]}}}{{{parts[1]}}}" if not other else rf"\dfrac{{1}}{{{parts[1]}}} \cdot ({parts[0]})"
    if tree.kind == "binomial" and other:
        top, low = parts
        return rf"\frac{{({top})!}}{{({low})!(({top})-({low}))!}}"
    shapes = {
        "power": "({})^{{{}}}", "binomial": r"\binom{{{}}}{{{}}}", "factorial": "({})!", "root": r"\sqrt{{{}}}",
        "floor": r"\lfloor {} \rfloor", "ceiling": r"\lceil {} \rceil", "sin": r"\sin({})", "log": r"\ln({})",
    }  # fmt: skip
    return shapes[tree.kind].format(*parts)


def value(tree: Formula, point: Point) -> Number | None:
    """The value at a point; None where there is none."""
    if tree.kind == "number":
        return Fraction(tree.value)
    if tree.kind == "name":
        return Fraction(point[tree.name])
    parts = [value(part, point) for part in tree.parts]
    if any(part is None for part in parts):
        return None
    try:
        return _value(tree.kind, [part for part in parts if part is not None])
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def _value(kind: str, parts: list[Number]) -> Number | None:
    first = parts[0]
    if kind == "sum":
        return sum(parts[1:], first)
    if kind == "product":
        return math.prod(parts)
    if kind == "quotient":
        return first / parts[1]
    if kind == "power":
        exponent = parts[1]
        whole = isinstance(exponent, Fraction) and exponent.denominator == 1
        if whole and (abs(exponent) > 200 or (first == 0 and exponent <= 0)):
            return None
        return first ** int(exponent) if whole else None
    if kind in ("binomial", "factorial"):
        counts = [int(part) for part in parts]
        if counts != parts or any(not 0 <= count <= counts[0] <= 300 for count in counts):
            return None
        return Fraction(math.comb(*counts) if kind == "binomial" else math.factorial(counts[0]))
    if kind in ("floor", "ceiling"):
        return Fraction(math.floor(first) if kind == "floor" else math.ceil(first))
    return {"root": math.sqrt, "sin": math.sin, "log": math.log}[kind](first)


def gold(dice: random.Random) -> Formula:
    """A formula as answers to competition questions are."""
    n, k, m = (name(letter) for letter in dice.sample(["n", "k", "m", "a", "b", "r"], 3))
    a, b, c = (number(dice.randint(2, 9)) for _ in range(3))
    minus_k = of("product", number(-1), k)
    linear = of("sum", of("product", a, n), number(dice.choice([-3, -2, -1, 1, 2, 3])))
    shapes = [
        of("binomial", n, k), of("product", of("binomial", n, k), of("power", a, n)),
        of("quotient", of("factorial", n), of("product", a, k, of("factorial", of("sum", n, minus_k)))),
        of("floor", of("quotient", linear, b)), of("floor", of("quotient", of("power", n, number(2)), a)),
        of("sum", of("product", m, n), of("product", number(-1), of("floor", of("quotient", m, a)))),
        of("power", a, of("floor", of("quotient", n, b))), of("ceiling", of("quotient", of("sum", n, m), a)),
        of("sum", of("power", a, n), of("product", b, n), c), of("quotient", of("product", a, of("power", n, b)), c),
        of("product", of("sum", of("power", a, n), number(-1)), of("power", b, m)),
        of("sum", of("factorial", n), of("power", number(-1), n)), of("product", a, of("root", of("sum", n, b))),
        of("sum", of("product", a, of("sin", of("product", b, n))), c), of("sum", of("log", n), of("product", a, m)),
        of("quotient", of("binomial", of("product", number(2), n), n), of("sum", n, number(1))),
        of("sum", of("binomial", n, a), of("binomial", m, b)), of("power", linear, of("sum", n, c)),
        of("quotient", of("sum", of("power", a, n), of("product", b, of("power", number(-1), n))), c),
        of("product", of("power", n, of("sum", m, number(-1))), of("factorial", m)),
    ]  # fmt: skip
    return dice.choice(shapes)


def mutants(tree: Formula, dice: random.Random) -> Iterator[Formula]:
    """Eight changes: constants 0, 1 and -1, the sign, an operand and three numbers or operations inside."""
    yield from (number(0), number(1), number(-1), of("product", number(-1), tree), of("product", number(2), tree))
    inner = [path for path, part in _walk(tree, ()) if part.kind != "name"]
    for _ in range(3):
        path = dice.choice(inner)
        yield _changed(tree, path, dice)


def _walk(tree: Formula, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Formula]]:
    yield path, tree
    for place, part in enumerate(tree.parts):
        yield from _walk(part, (*path, place))


def _changed(tree: Formula, path: tuple[int, ...], dice: random.Random) -> Formula:
    if path:
        parts = list(tree.parts)
        parts[path[0]] = _changed(parts[path[0]], path[1:], dice)
        return replace(tree, parts=tuple(parts))
    if tree.kind == "number":
        return number(tree.value + dice.choice([-2, -1, 1, 2, 16]))
    others = {"floor": "ceiling", "ceiling": "floor", "sum": "product", "binomial": "quotient", "root": "log"}
    if tree.kind in others:
        return replace(tree, kind=others[tree.kind])
    return replace(tree, parts=tree.parts[::-1]) if len(tree.parts) == 2 else of("sum", tree, number(1))


def differ(left: Formula, right: Formula, *, top: int = 24) -> bool:
    """Whether two formulas have different values at a point of a wide grid of whole numbers."""
    names = sorted({part.name for side in (left, right) for _, part in _walk(side, ()) if part.kind == "name"})
    axis = [*range(1, top + 1)] if len(names) < 3 else [*range(1, 9), 13, 20]
    for numbers in itertools.product(axis, repeat=len(names)):
        point = dict(zip(names, numbers, strict=True))
        pair = value(left, point), value(right, point)
        if pair[0] is None or pair[1] is None:
            continue
        exact = all(isinstance(side, Fraction) for side in pair)
        if pair[0] != pair[1] if exact else not math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-12):
            return True
    return False
