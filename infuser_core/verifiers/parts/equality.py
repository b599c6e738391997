r"""Equality of two sympy expressions: exact simplification, then agreement at sample points. Used by the worker only.

One point with different values proves a difference. A point is evidence of equality if both sides have a value other
than zero there, and only if values vary between points. Too little evidence is "open", never "same". Values have to
agree to 80 digits; constants too small or too large for that are "open" as well: `1+e^{-1000}` is not 1.

An unknown is an integer if an expression requires it: in a factorial, a binomial coefficient, a limit of a sum, the
exponent of a negative base, or a floor that is not trivial for integers. Integer unknowns get every small number,
the numbers next to the divisors in floors and remainders, and larger ones in every order, so that both `n > r` and
`n < r` occur. Other unknowns get irrational numbers of several sizes and both signs. The points are seeded by both
texts, so that an answer cannot be fitted to them.
"""

import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

Point = dict[Any, Any]
"""The sympy number of each unknown."""

_DIGITS = 100
"""Digits to which values are computed."""
_ROWS = 28
_SMALL = 16
_SIZES = (0.037, 0.23, 0.61, 0.88, 1.9, 3.4, 7.3, 19.0, 53.0, 410.0)
_TAME = 5
"""Number of the sizes to use if one power or factorial is inside another."""
_COUNTING = (sympy.factorial, sympy.binomial, sympy.Sum, sympy.Product, sympy.factorial2, sympy.RisingFactorial)
_ROUNDED = (sympy.floor, sympy.ceiling, sympy.Mod)
"""Functions with jumps."""
_REAL_NAMES = frozenset(["x", "y", "z", "t", "u", "v", "w", "alpha", "beta", "gamma", "theta", "phi", "lambda"])
_AGREED = 80
"""Digits to which equal values have to agree."""
_ENOUGH = 12
"""Points of evidence after which sampling stops."""
_NEEDED = 5
"""Fewest points of evidence."""
_EXTREME = 60
"""Decimal exponent of a constant beyond which its share of a sum could vanish in rounding."""
_STEEP = 50
"""Argument of a hyperbolic or similar function beyond which its value could equal that of a simpler one."""
_TAME_FUNCTIONS = (sympy.log, sympy.sin, sympy.cos, sympy.tan, sympy.floor, sympy.ceiling, sympy.Abs, sympy.factorial)
_FAILURES = (
    ArithmeticError, AttributeError, AssertionError, IndexError, KeyError, NotImplementedError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""Exceptions of sympy for expressions without a value."""


def equal(gold: Any, answer: Any) -> str:
    """Whether two expressions are equal: `exact`, `numeric`, `other` or `open`."""
    matrices = [isinstance(side, sympy.MatrixBase) for side in (gold, answer)]
    if any(matrices):
        if not all(matrices) or gold.shape != answer.shape:
            return "other"
        words = [equal(part, other) for part, other in zip(gold, answer, strict=True)]
        return next((word for word in ("other", "open", "numeric") if word in words), "exact")
    gold, answer = _to_exact(gold), _to_exact(answer)
    if not gold.free_symbols and not answer.free_symbols:
        return _compare_constants(gold, answer)
    integers = _integer_names(gold, answer)
    # Sympy simplifies `(-1)^{2n}` for a declared integer n.
    declared = {name: sympy.Symbol(str(name), integer=True, positive=True) for name in integers}
    gold, answer = gold.subs(declared), answer.subs(declared)
    if _is_zero(gold - answer):
        return "exact"
    names = {name for name in gold.free_symbols | answer.free_symbols if name.is_integer}
    word = _compare_at_points(gold, answer, names)
    if word == "numeric":
        # Letters in floors and remainders that usually name real numbers.
        parts = [part for side in (gold, answer) for part in sympy.preorder_traversal(side)]
        letters = {name for part in parts if isinstance(part, _ROUNDED) for name in part.free_symbols}
        real = {name for name in names & letters if str(name).strip("\\") in _REAL_NAMES}
        if real and _compare_at_points(gold, answer, names - real) == "other":
            word = "open"
    if word == "open" and not _is_extreme(gold) and not _is_extreme(answer) and _simplifies(gold - answer):
        return "exact"
    return word


def proportional(gold: Any, answer: Any) -> str:
    """Whether two expressions have a constant ratio, so the same zeros: `numeric`, `other` or `open`."""
    gold, answer = _to_exact(gold), _to_exact(answer)
    integers = _integer_names(gold, answer)
    ratios: list[Any] = []
    for point in _points(gold, answer, integers):
        pair = values_at(gold, answer, point)
        if pair is None or pair[0] == pair[1] == 0:
            continue
        if pair[0] == 0 or pair[1] == 0:
            return "other"
        ratios.append(pair[0] / pair[1])
        if not _agree(ratios[-1], ratios[0]):
            return "other"
    constant = not gold.free_symbols or not answer.free_symbols
    return "open" if len(ratios) < _NEEDED or constant or _is_extreme(gold) or _is_extreme(answer) else "numeric"


def values_at(gold: Any, answer: Any, point: Point) -> tuple[Any, Any] | None:
    """The values of both sides at a point; None if either has none."""
    try:
        if not _is_defined(gold, point) or not _is_defined(answer, point):
            return None
        values = [side.subs(point).doit().evalf(_DIGITS) for side in (gold, answer)]
        if all(value.is_number and value.is_finite for value in values):
            return values[0], values[1]
    except _FAILURES:
        return None
    return None


def _compare_at_points(gold: Any, answer: Any, integers: set[Any]) -> str:
    """Compare at sample points: `numeric`, `other` or `open`."""
    evidence: list[Any] = []
    complex_values = gold.has(sympy.I) or answer.has(sympy.I)
    rounded = gold.has(*_ROUNDED) or answer.has(*_ROUNDED)
    for point in _points(gold, answer, integers):
        pair = values_at(gold, answer, point)
        if pair is None:
            continue
        if not _agree(*pair):
            # A root or a logarithm of a negative number has several values: principal values prove no difference.
            if complex_values or all(value.is_real for value in pair):
                return "other"
            continue
        if pair[0] != 0:
            evidence.append(pair[0])
        # Floors may differ at few points only, so they are compared at all of them.
        if len(evidence) >= _ENOUGH + 8 * bool(integers) and not rounded:
            break
    varied = any(not _agree(evidence[0], value) for value in evidence)
    sure = len(evidence) >= _NEEDED and varied and not _is_extreme(gold) and not _is_extreme(answer)
    return "numeric" if sure else "open"


def _compare_constants(gold: Any, answer: Any) -> str:
    if _is_zero(gold - answer):
        return "exact"
    pair = values_at(gold, answer, {})
    # If terms cancel, the difference is compared with the largest of them.
    terms = (term.evalf(20) for side in (gold, answer) for term in sympy.Add.make_args(side))
    scale = max((abs(term) for term in terms if term.is_number), default=sympy.Integer(0))
    if pair is not None and not _agree(*pair, scale=scale):
        return "other"
    if pair is None or _is_extreme(gold) or _is_extreme(answer):
        return "exact" if _simplifies(gold - answer) else "open"
    return "numeric"


def _agree(value: Any, other: Any, *, scale: Any = 0) -> bool:
    largest = max(abs(value), abs(other), scale)
    return bool(abs(value - other) <= sympy.Float(10, _DIGITS) ** -_AGREED * largest)


def _to_exact(side: Any) -> Any:
    """Decimals as fractions, `i` as the imaginary unit, `f(x)` as a separate unknown."""
    replacements = {value: sympy.Rational(str(value)) for value in side.atoms(sympy.Float)}
    replacements |= {name: sympy.I for name in side.free_symbols if str(name) == "i"}
    replacements |= {value: sympy.Symbol(str(value), real=True) for value in side.atoms(AppliedUndef)}
    return side.subs(replacements) if replacements else side


def _is_zero(difference: Any) -> bool:
    return difference == 0 or (difference.count_ops() < 200 and sympy.expand(difference) == 0)


def _simplifies(difference: Any) -> bool:
    try:
        return difference.count_ops() < 60 and sympy.simplify(difference) == 0
    except _FAILURES:
        return False


def _is_defined(side: Any, point: Point) -> bool:
    """Whether the factorials, binomials and sums are defined at the point: (-1)! is not."""
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


def _is_extreme(side: Any) -> bool:
    """Whether a constant, or a function of a constant, could vanish in rounding."""
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


def _integer_names(*sides: Any) -> set[Any]:
    """The unknowns that have to be integers."""
    names: set[Any] = set()
    for side in sides:
        for part in sympy.preorder_traversal(side):
            if isinstance(part, _COUNTING):
                names |= part.free_symbols
            elif isinstance(part, sympy.Pow) and part.base.is_negative:
                names |= part.exp.free_symbols
            elif isinstance(part, _ROUNDED) and not _is_trivial_for_integers(part):
                names |= part.free_symbols
    return names


def _points(gold: Any, answer: Any, integers: set[Any]) -> Iterator[Point]:
    """Sample points, those that show a difference early first; none if powers are nested too deeply."""
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    dice = random.Random(hashlib.sha256(f"{gold}|{answer}".encode()).digest())
    growth = max(_growth_depth(gold), _growth_depth(answer))
    if growth > 2:
        return
    integer_names = [name for name in names if name in integers]
    numbers = _integer_rows(len(integer_names), growth, _numbers_near_divisors(gold, answer), dice)
    for row, values in enumerate(numbers):
        point = dict(zip(integer_names, map(sympy.Integer, values), strict=True))
        rest = [name for name in names if name not in integers]
        yield point | dict(zip(rest, _real_row(len(rest), row, growth, dice), strict=True))


def _integer_rows(count: int, growth: int, edges: list[int], dice: random.Random) -> Iterator[tuple[int, ...]]:
    """Rows of `count` integers: small ones, large ones in every order, then those near divisors."""
    if not count:
        yield from itertools.repeat((), _ROWS)
        return
    top = {0: 9973, 1: 36, 2: 5}[growth]
    small = list(range(1, min(_SMALL, top) + 1))
    if count == 1:
        large = (dice.randint(top // 2, top) for _ in range(8))
        values = [*dice.sample(small, len(small)), *(edge for edge in edges[:_ROWS] if edge <= top), *large]
        yield from ((value,) for value in values)
        return
    orders = list(itertools.islice(itertools.permutations(range(count)), 24))
    for row in range(2 * max(_ROWS, len(orders))):
        values = sorted(dice.sample(range(1, max(top, count + 1) + 1) if row % 2 else range(1, count + 8), count))
        yield tuple(values[place] for place in orders[row // 2 % len(orders)])
    for edge in edges[:_ROWS]:
        yield tuple(edge if edge <= top else dice.choice(small) for _ in range(count))


def _real_row(count: int, row: int, growth: int, dice: random.Random) -> list[Any]:
    """Irrational numbers: two of four rows have one size, the others mixed sizes; some rows have mixed signs."""
    sizes = _SIZES[:_TAME] if growth > 1 else _SIZES
    alike = row % 4 < 2
    scale = sizes[(3 * row + dice.randrange(2)) % len(sizes)]
    values = []
    for _ in range(count):
        size = scale if alike else dice.choice(sizes)
        sign = 1 if row % 3 != 2 or row < 2 else dice.choice((1, -1, -1))
        prime = sympy.Integer(dice.choice((2, 3, 5, 7, 11, 13, 17, 19, 23)))
        values.append(sign * sympy.sqrt(prime).evalf(_DIGITS + 40) * sympy.Rational(size).limit_denominator(1000) / 3)
    return values


def _numbers_near_divisors(*sides: Any) -> list[int]:
    """Integers next to multiples of the divisors in floors and remainders."""
    divisors: set[int] = set()
    for side in sides:
        for part in side.atoms(*_ROUNDED):
            numbers = part.atoms(sympy.Rational)
            divisors |= {abs(value) for one in numbers for value in (int(one.p), int(one.q)) if 1 < abs(value) < 5000}
    near = {scale * each + step for each in divisors for scale in (1, 2, 3) for step in (-1, 0, 1)}
    return sorted(value for value in near if value > _SMALL)


def _is_trivial_for_integers(part: Any) -> bool:
    """Whether a floor changes nothing if its unknowns are integers; then it does not show that they are."""
    argument = part.args[0]
    names = sorted(argument.free_symbols, key=str)
    if not names or isinstance(part, sympy.Mod):
        return False
    polynomial = argument.as_poly(*names)
    return polynomial is not None and all(value.is_integer for value in polynomial.coeffs())


def _growth_depth(part: Any) -> int:
    """Nesting depth of powers, exponentials and factorials of unknowns."""
    inner = max((_growth_depth(each) for each in part.args), default=0)
    if not part.free_symbols:
        return 0
    grows = isinstance(part, (*_COUNTING, sympy.gamma, sympy.exp, sympy.sinh, sympy.cosh)) or (
        isinstance(part, sympy.Pow) and bool(part.exp.free_symbols)
    )
    return inner + grows
