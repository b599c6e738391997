r"""Exact values: quotients of polynomials over the rationals, extended by square roots, with symbols, pi, e and i.

Different squarefree square roots are linearly independent over the rationals, so two values are equal exactly when the
cross products of their polynomials have the same terms. What is not of this form (a sine, a power with a symbol in the
exponent) becomes a symbol of its own, named after its argument: equal terms still prove equality, different ones prove
nothing then.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

Monomial = tuple[int, tuple[tuple[str, int], ...]]
"""A squarefree positive radicand and the sorted (symbol, exponent) pairs."""
Polynomial = dict[Monomial, Fraction]

ONE: Monomial = (1, ())
_UNIT: Polynomial = {ONE: Fraction(1)}
MAX_TERMS = 256
"""Terms of a polynomial: products of longer ones are refused."""
MAX_BITS = 14_000
"""Size of a number, bits: 999 factorial has 8,529, and Python writes no more than 4,300 digits."""
MAX_EXPONENT = 2_000
OPAQUE = "?"
"""First character of the symbols that stand for something this module does not take apart."""
_MAX_RADICAND = 10**12


class TooBigError(ArithmeticError):
    """A value that is not worked out: its size is not bounded by the length of what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A quotient of polynomials."""

    top: Polynomial
    """Numerator."""
    bottom: Polynomial
    """Denominator, never zero."""

    def __add__(self, other: "Value") -> "Value":
        if self.bottom == other.bottom:
            return Value(top=_add(self.top, other.top), bottom=self.bottom)
        top = _add(_multiply(self.top, other.bottom), _multiply(other.top, self.bottom))
        return Value(top=top, bottom=_multiply(self.bottom, other.bottom))

    def __neg__(self) -> "Value":
        return Value(top={term: -factor for term, factor in self.top.items()}, bottom=self.bottom)

    def __mul__(self, other: "Value") -> "Value":
        return Value(top=_multiply(self.top, other.top), bottom=_multiply(self.bottom, other.bottom))

    def __truediv__(self, other: "Value") -> "Value":
        """Raises ZeroDivisionError."""
        if not other.top:
            raise ZeroDivisionError("division by zero")
        return _simple(Value(top=_multiply(self.top, other.bottom), bottom=_multiply(self.bottom, other.top)))


def number(value: Fraction | int) -> Value:
    """The value of a rational number."""
    return Value(top={ONE: Fraction(value)} if value else {}, bottom=_UNIT)


def symbol(name: str) -> Value:
    """A symbol; `i` is the imaginary unit."""
    return Value(top={(1, ((name, 1),)): Fraction(1)}, bottom=_UNIT)


def rational(value: Value) -> Fraction | None:
    """The value as a fraction when it is one."""
    if not value.top:
        return Fraction(0)
    if set(value.top) == {ONE} == set(value.bottom):
        return value.top[ONE] / value.bottom[ONE]
    return None


def same(left: Value, right: Value) -> bool | None:
    """Whether two values are equal; None when a symbol that stands for something else leaves it open."""
    mine, theirs = _multiply(left.top, right.bottom), _multiply(right.top, left.bottom)
    if mine == theirs:
        return True
    # Where hidden symbols cancel, as in sin x + 1 against sin x + 2, what is left decides.
    difference = _add(mine, {term: -factor for term, factor in theirs.items()})
    hidden = any(name[0] == OPAQUE for _, powers in difference for name, _ in powers)
    return None if hidden else False


def proportional(left: Value, right: Value) -> bool | None:
    """Whether the zeros of two values are written the same but for a constant factor; None when that is open."""
    if not left.top or not right.top:
        return not left.top and not right.top
    if multiple(left, right) is not None:
        return True
    hidden = any(name[0] == OPAQUE for name in symbols(left) | symbols(right))
    return None if hidden else False


def multiple(left: Value, right: Value) -> Fraction | None:
    """The number that makes the numerator of `left` of that of `right`; None if no number does."""
    term = next(iter(left.top), ONE)
    ratio = left.top.get(term, Fraction(0)) / right.top.get(term, Fraction(1))
    return ratio if {term: factor * ratio for term, factor in right.top.items()} == left.top else None


def components(value: Value, names: str) -> list[Value] | None:
    """The factors of symbols of one letter of which each term has one, as in `2i+3j`; None for any other value."""
    tops: dict[str, Polynomial] = {name: {} for name in names}
    for (radicand, powers), factor in value.top.items():
        units = [power for power in powers if power[0] in tops]
        if len(units) != 1 or units[0][1] != 1:
            return None
        tops[units[0][0]][radicand, tuple(power for power in powers if power != units[0])] = factor
    # `3i` alone is a complex number.
    is_vector = any(list(tops.values())[1:]) and not symbols(Value(top=value.bottom, bottom=_UNIT)) & set(names)
    return [Value(top=top, bottom=value.bottom) for top in tops.values()] if is_vector else None


def symbols(value: Value) -> set[str]:
    """Names of the symbols in a value."""
    return {name for terms in (value.top, value.bottom) for _, powers in terms for name, _ in powers}


def key(value: Value) -> str:
    """A text that equal values share as far as that is cheap."""
    reduced = _simple(value)
    scale = reduced.bottom[min(reduced.bottom)]
    sides = ({term: factor / scale for term, factor in side.items()} for side in (reduced.top, reduced.bottom))
    return "/".join(str(sorted(side.items())) for side in sides)


def power(base: Value, exponent: int) -> Value:
    """base^exponent. Raises TooBigError, ZeroDivisionError."""
    if abs(exponent) > MAX_EXPONENT:
        raise TooBigError("exponent")
    if exponent < 0:
        return number(1) / power(base, -exponent)
    result, square, left = number(1), base, exponent
    while left:
        result = result * square if left & 1 else result
        left >>= 1
        square = square * square if left else square
    return result


def root(value: Value, degree: int) -> Value | None:
    """The principal root of a rational value; None when it is no square root of a rational, nor a perfect power."""
    plain = rational(value)
    if plain is None or degree < 2:
        return None
    if degree == 2:
        sign = symbol("i") if plain < 0 else number(1)
        parts = _square_part(abs(plain.numerator) * plain.denominator)
        if parts is None or not plain:
            return None if plain else number(0)
        return sign * Value(top={(parts[1], ()): Fraction(parts[0], plain.denominator)}, bottom=_UNIT)
    if plain < 0 and degree % 2 == 0:
        return None
    top, bottom = (_exact_root(abs(part), degree) for part in (plain.numerator, plain.denominator))
    if top is None or bottom is None:
        return None
    return number(Fraction(top if plain >= 0 else -top, bottom))


def approximate(value: Value) -> complex | None:
    """The value as a floating-point number; None when it holds symbols."""
    known: dict[str, complex] = {r"\pi": math.pi, "e": math.e, "i": 1j}
    sides = []
    for side in (value.top, value.bottom):
        total: complex = 0.0
        for (radicand, powers), factor in side.items():
            if any(name not in known for name, _ in powers):
                return None
            try:
                total += float(factor) * math.sqrt(radicand) * math.prod(known[name] ** n for name, n in powers)
            except OverflowError:
                return None
        sides.append(total)
    return sides[0] / sides[1] if sides[1] else None


def _add(left: Polynomial, right: Polynomial) -> Polynomial:
    total = dict(left)
    for term, factor in right.items():
        summed = total.get(term, Fraction(0)) + factor
        if summed:
            total[term] = summed
        else:
            total.pop(term, None)
    if len(total) > MAX_TERMS:
        raise TooBigError("terms")
    return total


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    if right == {ONE: 1}:
        return left
    if len(left) * len(right) > 4 * MAX_TERMS:
        raise TooBigError("terms")
    # Single numbers may be long; products of many terms with long numbers would take seconds.
    bits = MAX_BITS if len(left) * len(right) == 1 else MAX_BITS // 16
    total: Polynomial = {}
    for term, factor in left.items():
        for other, scale in right.items():
            product = factor * scale
            if product.numerator.bit_length() + product.denominator.bit_length() > bits:
                raise TooBigError("digits")
            product_term, sign = _product(term, other)
            summed = total.get(product_term, Fraction(0)) + product * sign
            if summed:
                total[product_term] = summed
            else:
                total.pop(product_term, None)
    if len(total) > MAX_TERMS:
        raise TooBigError("terms")
    return total


def _product(left: Monomial, right: Monomial) -> tuple[Monomial, int]:
    """The product of two terms and the whole number that comes out of their roots and of i^2."""
    common = math.gcd(left[0], right[0])
    radicand = left[0] * right[0] // common**2
    if not left[1] or not right[1]:
        return (radicand, left[1] or right[1]), common
    exponents = dict(left[1])
    for name, exponent in right[1]:
        exponents[name] = exponents.get(name, 0) + exponent
    # No term holds i^2, so that two of them hold at most i^2.
    sign = -1 if exponents.get("i", 0) == 2 else 1
    if sign < 0:
        del exponents["i"]
    return (
        radicand,
        tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent)),
    ), sign * common


def _simple(value: Value) -> Value:
    """The same value with a single denominator term divided out, as far as no symbol stands in it."""
    if len(value.bottom) != 1:
        return value
    ((radicand, powers), factor) = next(iter(value.bottom.items()))
    if powers:
        return value
    inverse: Polynomial = {(radicand, ()): 1 / (factor * radicand)}
    return Value(top=_multiply(value.top, inverse), bottom=_UNIT)


def _square_part(whole: int) -> tuple[int, int] | None:
    """(a, b) with whole = a^2 b and b squarefree; None above the size where that is cheap."""
    if whole > _MAX_RADICAND:
        exact = math.isqrt(whole)
        return (exact, 1) if exact * exact == whole else None
    outside, inside, divisor = 1, 1, 2
    # Once the rest is below the cube of the divisor it is a prime, a product of two, or a square.
    while divisor**3 <= whole:
        while whole % (divisor * divisor) == 0:
            outside, whole = outside * divisor, whole // (divisor * divisor)
        if whole % divisor == 0:
            inside, whole = inside * divisor, whole // divisor
        divisor += 1
    exact = math.isqrt(whole)
    return (outside * exact, inside) if exact * exact == whole else (outside, inside * whole)


def _exact_root(whole: int, degree: int) -> int | None:
    if whole.bit_length() > MAX_BITS // 8 or degree > 64:
        return None
    low, high = 0, 1 << (whole.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= whole else (low, middle - 1)
    return low if low**degree == whole else None
