r"""Equality of two symbolic expressions: exact simplification, then agreement at informative sample points.

A point is evidence only where both sides have a value and neither is zero there; values that are the same at every
point are none. One point at which the two have different values decides against them. Too little evidence is "open",
never "same". Agreement is to 80 digits, and a number too small or too large for that to mean anything is open as well:
`1+e^{-1000}` is not 1. Imported by the worker alone.

An unknown is whole where the expressions ask for it: in a factorial, a binomial coefficient, a limit of a sum, the
exponent of a negative base, or a floor that whole numbers do not make trivial. Such unknowns get every small number,
the numbers beside the divisors in floors and remainders, and larger ones in every order, so that `n` above `r` and
below it both occur. Other unknowns get irrational numbers of several sizes and both signs. Points depend on both
texts, so that nobody writes an answer for them.
"""

import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

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
AGREED = 80
"""Digits to which equal values agree."""
ENOUGH = 12
"""Points of evidence after which no more are tried."""
NEEDED = 5
"""Fewest points of evidence."""
_EXTREME = 60
"""Decimal exponent of a constant, beyond which its share in a sum could hide below the digits."""
_STEEP = 50
"""Argument of a hyperbolic function or the like, beyond which its value could be that of a simpler one."""
_TAME_FUNCTIONS = (sympy.log, sympy.sin, sympy.cos, sympy.tan, sympy.floor, sympy.ceiling, sympy.Abs, sympy.factorial)
FAILURES = (
    ArithmeticError, AttributeError, AssertionError, IndexError, KeyError, NotImplementedError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""Errors of the library on expressions that have no value."""


def equal(gold: Any, found: Any) -> str:
    """Whether two expressions are equal: `exact`, `numeric`, `other` or `open`."""
    matrices = [isinstance(side, sympy.MatrixBase) for side in (gold, found)]
    if any(matrices):
        if not all(matrices) or gold.shape != found.shape:
            return "other"
        words = [equal(left, right) for left, right in zip(gold, found, strict=True)]
        return next((word for word in ("other", "open", "numeric") if word in words), "exact")
    gold, found = _exact(gold), _exact(found)
    if not gold.free_symbols and not found.free_symbols:
        return _constants(gold, found)
    whole = whole_names(gold, found)
    # Declared so, whole unknowns let the library simplify `(-1)^{2n}`.
    declared = {name: sympy.Symbol(str(name), integer=True, positive=True) for name in whole}
    gold, found = gold.subs(declared), found.subs(declared)
    if _is_zero(gold - found):
        return "exact"
    names = {name for name in gold.free_symbols | found.free_symbols if name.is_integer}
    word = _sampled(gold, found, names)
    fractional = fractional_names(gold, found) & names if word == "numeric" else set()
    if fractional:
        word = "open" if _sampled(gold, found, names - fractional) == "other" else word
    if word == "open" and not _extreme(gold) and not _extreme(found) and _simplifies(gold - found):
        return "exact"
    return word


def proportional(gold: Any, found: Any) -> str:
    """Whether the ratio of two expressions is the same number at every point: then they have the same zeros."""
    gold, found = _exact(gold), _exact(found)
    whole = whole_names(gold, found)
    ratios: list[Any] = []
    for point in points(gold, found, whole):
        pair = values_at(gold, found, point)
        if pair is None or pair[0] == pair[1] == 0:
            continue
        if pair[0] == 0 or pair[1] == 0:
            return "other"
        ratios.append(pair[0] / pair[1])
        if not _near(ratios[-1], ratios[0]):
            return "other"
    constant = not gold.free_symbols or not found.free_symbols
    return "open" if len(ratios) < NEEDED or constant or _extreme(gold) or _extreme(found) else "numeric"


def values_at(gold: Any, found: Any, point: Point) -> tuple[Any, Any] | None:
    """Both values at a point as numbers; None when either has none there."""
    try:
        if not _is_defined(gold, point) or not _is_defined(found, point):
            return None
        values = [side.subs(point).doit().evalf(DIGITS) for side in (gold, found)]
        if all(value.is_number and value.is_finite for value in values):
            return values[0], values[1]
    except FAILURES:
        return None
    return None


def _sampled(gold: Any, found: Any, whole: set[Any]) -> str:
    """The verdict of the points."""
    evidence: list[Any] = []
    complex_values = gold.has(sympy.I) or found.has(sympy.I)
    rounded = gold.has(*ROUNDED) or found.has(*ROUNDED)
    for point in points(gold, found, whole):
        pair = values_at(gold, found, point)
        if pair is None:
            continue
        if not _near(*pair):
            # Left of zero a root or a logarithm has several values: the principal ones say nothing.
            if complex_values or all(value.is_real for value in pair):
                return "other"
            continue
        if pair[0] != 0:
            evidence.append(pair[0])
        # Floors differ at few numbers, of which each counts.
        if len(evidence) >= ENOUGH + 8 * bool(whole) and not rounded:
            break
    varied = any(not _near(evidence[0], value) for value in evidence)
    sure = len(evidence) >= NEEDED and varied and not _extreme(gold) and not _extreme(found)
    return "numeric" if sure else "open"


def _constants(gold: Any, found: Any) -> str:
    if _is_zero(gold - found):
        return "exact"
    pair = values_at(gold, found, {})
    # What is left of terms that cancel is measured by the largest of them.
    terms = (term.evalf(20) for side in (gold, found) for term in sympy.Add.make_args(side))
    scale = max((abs(term) for term in terms if term.is_number), default=sympy.Integer(0))
    if pair is not None and not _near(*pair, scale=scale):
        return "other"
    if pair is None or _extreme(gold) or _extreme(found):
        return "exact" if _simplifies(gold - found) else "open"
    return "numeric"


def _near(left: Any, right: Any, *, scale: Any = 0) -> bool:
    largest = max(abs(left), abs(right), scale)
    return bool(abs(left - right) <= sympy.Float(10, DIGITS) ** -AGREED * largest)


def _exact(side: Any) -> Any:
    """Decimals as the fractions that were written, `i` as the imaginary unit, `f(x)` as an unknown of its own."""
    exact = {value: sympy.Rational(str(value)) for value in side.atoms(sympy.Float)}
    exact |= {name: sympy.I for name in side.free_symbols if str(name) == "i"}
    exact |= {value: sympy.Symbol(str(value), real=True) for value in side.atoms(AppliedUndef)}
    return side.subs(exact) if exact else side


def _is_zero(difference: Any) -> bool:
    return difference == 0 or (difference.count_ops() < 200 and sympy.expand(difference) == 0)


def _simplifies(difference: Any) -> bool:
    try:
        return difference.count_ops() < 60 and sympy.simplify(difference) == 0
    except FAILURES:
        return False


def _is_defined(side: Any, point: Point) -> bool:
    """Whether factorials, binomials and sums are those of things that can be counted at the point: (-1)! is none."""
    for part in side.atoms(sympy.factorial, sympy.binomial, sympy.Sum, sympy.Product):
        numbers = [each.subs(point) for each in part.args if isinstance(each, sympy.Expr)]
        limits = [[end.subs(point) for end in each[1:]] for each in part.args if not isinstance(each, sympy.Expr)]
        if isinstance(part, sympy.factorial) and (numbers[0].is_negative or numbers[0].is_integer is False):
            return False
        if isinstance(part, sympy.binomial) and (numbers[0].is_negative or numbers[1].is_negative):
            return False
        if any(len(each) == 2 and (each[1] - each[0]).is_negative for each in limits):
            return False
    return True


def _extreme(side: Any) -> bool:
    """Whether the expression holds a constant, or a function of one, that could hide below the digits."""
    for part in itertools.islice(sympy.preorder_traversal(side), 400):
        if isinstance(part, sympy.Function) and not isinstance(part, _TAME_FUNCTIONS):
            numbers = [each.evalf(20) for each in part.args if each.is_number]
            if not isinstance(part, sympy.exp) and any(abs(value) > _STEEP for value in numbers):
                return True
        if (part.is_number and part != 0 and not part.is_Atom) or (part.is_Rational and part != 0):
            size = abs(part.evalf(20))
            if size.is_finite and size != 0 and not -_EXTREME < sympy.log(size, 10).evalf(8) < _EXTREME:
                return True
    return False


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
