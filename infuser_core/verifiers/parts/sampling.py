r"""Sample points for two expressions: values of the unknowns from domains on which the expressions mean something.

An unknown is whole where the expressions ask for it: in a factorial, a binomial coefficient, a limit of a sum, the
exponent of a negative base, or a floor that whole numbers do not make trivial. Such unknowns get every small number,
the numbers beside the divisors in floors and remainders, and larger ones in every order, so that `n` above `r` and
below it both occur. Other unknowns get irrational numbers of several sizes and both signs. Points depend on both
texts, so that nobody writes an answer for them. Imported by the worker alone.
"""

import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import sympy

Point = dict[Any, Any]
"""A number for each unknown, in the library's own types."""

DIGITS = 100
"""Digits with which values are worked out."""
_ROWS = 28
_SMALL = 16
_SIZES = (0.037, 0.23, 0.61, 0.88, 1.9, 3.4, 7.3, 19.0, 53.0, 410.0)
_TAME = 5
"""Sizes that are kept where one power or factorial stands inside another."""
_COUNTED = (sympy.factorial, sympy.binomial, sympy.Sum, sympy.Product, sympy.factorial2, sympy.RisingFactorial)
ROUNDED = (sympy.floor, sympy.ceiling, sympy.Mod)
"""Functions whose values jump."""
_REAL_NAMES = frozenset(["x", "y", "z", "t", "u", "v", "w", "alpha", "beta", "gamma", "theta", "phi", "lambda"])


def whole_names(*sides: Any) -> set[Any]:
    """The unknowns that stand for whole numbers."""
    found: set[Any] = set()
    for side in sides:
        for part in sympy.preorder_traversal(side):
            if isinstance(part, _COUNTED):
                found |= part.free_symbols
            elif isinstance(part, sympy.Pow) and part.base.is_negative:
                found |= part.exp.free_symbols
            elif isinstance(part, ROUNDED) and not _is_whole_by_itself(part):
                found |= part.free_symbols
    return found


def fractional_names(*sides: Any) -> set[Any]:
    """Unknowns in floors and remainders whose letters are usual for numbers that are not whole."""
    parts = (part for side in sides for part in sympy.preorder_traversal(side) if isinstance(part, ROUNDED))
    return {name for part in parts for name in part.free_symbols if str(name).strip("\\") in _REAL_NAMES}


def points(gold: Any, found: Any, whole: set[Any]) -> Iterator[Point]:
    """Points in an order that tells differences early."""
    names = sorted(gold.free_symbols | found.free_symbols, key=str)
    dice = random.Random(hashlib.sha256(f"{gold}|{found}".encode()).digest())
    growth = max(_growth(gold), _growth(found))
    if growth > 2:
        return
    counted = [name for name in names if name in whole]
    numbers = _whole_rows(len(counted), growth, _edges(gold, found), dice)
    for row, values in enumerate(numbers):
        point = dict(zip(counted, map(sympy.Integer, values), strict=True))
        rest = [name for name in names if name not in whole]
        yield point | dict(zip(rest, _real_row(len(rest), row, growth, dice), strict=True))


def _whole_rows(count: int, growth: int, edges: list[int], dice: random.Random) -> Iterator[tuple[int, ...]]:
    """Rows of whole numbers: neighbours, small ones, then large ones in every order."""
    if not count:
        yield from itertools.repeat((), _ROWS)
        return
    top = {0: 9973, 1: 36, 2: 5}[growth]
    small = list(range(1, min(_SMALL, top) + 1))
    if count == 1:
        large = (dice.randint(top // 2, top) for _ in range(8))
        several = [*dice.sample(small, len(small)), *(edge for edge in edges[:_ROWS] if edge <= top), *large]
        yield from ((value,) for value in several)
        return
    orders = list(itertools.islice(itertools.permutations(range(count)), 24))
    for row in range(2 * max(_ROWS, len(orders))):
        values = sorted(dice.sample(range(1, max(top, count + 1) + 1) if row % 2 else range(1, count + 8), count))
        yield tuple(values[place] for place in orders[row // 2 % len(orders)])
    for edge in edges[:_ROWS]:
        yield tuple(edge if edge <= top else dice.choice(small) for _ in range(count))


def _real_row(count: int, row: int, growth: int, dice: random.Random) -> list[Any]:
    """Irrational numbers: first all of one size and positive, then of mixed sizes and signs."""
    sizes = _SIZES[:_TAME] if growth > 1 else _SIZES
    alike = row % 4 < 2
    scale = sizes[(3 * row + dice.randrange(2)) % len(sizes)]
    values = []
    for _ in range(count):
        size = scale if alike else dice.choice(sizes)
        sign = 1 if row % 3 != 2 or row < 2 else dice.choice((1, -1, -1))
        prime = sympy.Integer(dice.choice((2, 3, 5, 7, 11, 13, 17, 19, 23)))
        values.append(sign * sympy.sqrt(prime).evalf(DIGITS + 40) * sympy.Rational(size).limit_denominator(1000) / 3)
    return values


def _edges(*sides: Any) -> list[int]:
    """Whole numbers beside multiples of the divisors in floors and remainders."""
    divisors: set[int] = set()
    for side in sides:
        for part in side.atoms(*ROUNDED):
            numbers = part.atoms(sympy.Rational)
            divisors |= {abs(value) for one in numbers for value in (int(one.p), int(one.q)) if 1 < abs(value) < 5000}
    near = {scale * each + step for each in divisors for scale in (1, 2, 3) for step in (-1, 0, 1)}
    return sorted(value for value in near if value > _SMALL)


def _is_whole_by_itself(part: Any) -> bool:
    """Whether whole unknowns alone make a floor or a remainder trivial: then they are not meant to be whole."""
    argument = part.args[0]
    names = sorted(argument.free_symbols, key=str)
    if not names or isinstance(part, sympy.Mod):
        return False
    polynomial = argument.as_poly(*names)
    return polynomial is not None and all(value.is_integer for value in polynomial.coeffs())


def _growth(part: Any) -> int:
    """Depth of powers, exponentials and factorials of unknowns inside each other."""
    inner = max((_growth(each) for each in part.args), default=0)
    if not part.free_symbols:
        return 0
    grows = isinstance(part, (*_COUNTED, sympy.gamma, sympy.exp, sympy.sinh, sympy.cosh)) or (
        isinstance(part, sympy.Pow) and bool(part.exp.free_symbols)
    )
    return inner + grows
