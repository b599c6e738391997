r"""Exact algebra: values read from tokens and computed as quotients of polynomials over the rationals.

The polynomials have square roots of integers, symbols, pi, e and i. Different squarefree square roots are linearly
independent over the rationals, so two values are equal exactly if the cross products of their polynomials have the same
terms. Anything else (a sine, a power with a symbol in its exponent) becomes an opaque symbol that is named after its
argument: equal names prove equality, different ones prove nothing.

`value_of` reads only what has one meaning. It returns None for `1/2x`, `x2`, `a^b^c` or a product of words; those are
left to the symbolic worker.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from infuser_core.verifiers.parts.tokens import FUNCTIONS, Tokens, closing_index

Monomial = tuple[int, tuple[tuple[str, int], ...]]
"""A squarefree positive radicand and the sorted (symbol, exponent) pairs."""
Polynomial = dict[Monomial, Fraction]

ONE: Monomial = (1, ())
_UNIT: Polynomial = {ONE: Fraction(1)}
MAX_TERMS = 256
"""Most terms of a polynomial."""
MAX_BITS = 14_000
"""Largest size of a number, bits: 999 factorial has 8,529, and Python prints at most 4,300 digits."""
MAX_EXPONENT = 2_000
OPAQUE = "?"
"""First character of the name of an opaque symbol."""
_MAX_RADICAND = 10**12


class TooBigError(ArithmeticError):
    """The value is too large to compute: its size is not bounded by the length of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A quotient of polynomials; the denominator is never zero."""

    top: Polynomial
    bottom: Polynomial

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
        """Divide two values. Raises ZeroDivisionError."""
        if not other.top:
            raise ZeroDivisionError("division by zero")
        return _divide_out(Value(top=_multiply(self.top, other.bottom), bottom=_multiply(self.bottom, other.top)))


def number(value: Fraction | int) -> Value:
    """The value of a rational number."""
    return Value(top={ONE: Fraction(value)} if value else {}, bottom=_UNIT)


def symbol(name: str) -> Value:
    """A symbol; `i` is the imaginary unit."""
    return Value(top={(1, ((name, 1),)): Fraction(1)}, bottom=_UNIT)


def rational(value: Value) -> Fraction | None:
    """The value as a fraction, or None if it is not rational."""
    if not value.top:
        return Fraction(0)
    if set(value.top) == {ONE} == set(value.bottom):
        return value.top[ONE] / value.bottom[ONE]
    return None


def is_equal(value: Value, other: Value) -> bool | None:
    """Whether two values are equal; None if opaque symbols leave it open."""
    mine, theirs = _multiply(value.top, other.bottom), _multiply(other.top, value.bottom)
    if mine == theirs:
        return True
    # Opaque symbols may cancel: sin x + 1 differs from sin x + 2.
    difference = _add(mine, {term: -factor for term, factor in theirs.items()})
    opaque = any(name[0] == OPAQUE for _, powers in difference for name, _ in powers)
    return None if opaque else False


def is_proportional(value: Value, other: Value) -> bool | None:
    """Whether the numerators of two values differ by a constant factor; None if opaque symbols leave it open."""
    if not value.top or not other.top:
        return not value.top and not other.top
    if multiple(value, other) is not None:
        return True
    opaque = any(name[0] == OPAQUE for name in symbols(value) | symbols(other))
    return None if opaque else False


def multiple(value: Value, other: Value) -> Fraction | None:
    """The number c with numerator(value) = c * numerator(other), or None."""
    term = next(iter(value.top), ONE)
    ratio = value.top.get(term, Fraction(0)) / other.top.get(term, Fraction(1))
    return ratio if {term: factor * ratio for term, factor in other.top.items()} == value.top else None


def components(value: Value, names: str) -> list[Value] | None:
    """The coefficients of the one-letter symbols `names`, as in `2i+3j`; None unless each term has exactly one."""
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
    """Names of the symbols of a value."""
    return {name for terms in (value.top, value.bottom) for _, powers in terms for name, _ in powers}


def key(value: Value) -> str:
    """Text form of a value; usually, but not always, the same for equal values."""
    reduced = _divide_out(value)
    scale = reduced.bottom[min(reduced.bottom)]
    sides = ({term: factor / scale for term, factor in side.items()} for side in (reduced.top, reduced.bottom))
    return "/".join(str(sorted(side.items())) for side in sides)


def power(base: Value, exponent: int) -> Value:
    """base^exponent. Raises TooBigError and ZeroDivisionError."""
    if abs(exponent) > MAX_EXPONENT:
        raise TooBigError("exponent")
    if exponent < 0:
        return number(1) / power(base, -exponent)
    result, square, remaining = number(1), base, exponent
    while remaining:
        result = result * square if remaining & 1 else result
        remaining >>= 1
        square = square * square if remaining else square
    return result


def root(value: Value, degree: int) -> Value | None:
    """The principal root of a rational value; None unless it is a square root, or a root of a perfect power."""
    plain = rational(value)
    if plain is None or degree < 2:
        return None
    if degree == 2:
        sign = symbol("i") if plain < 0 else number(1)
        parts = _split_square(abs(plain.numerator) * plain.denominator)
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
    """The value as a floating-point number; None if it has symbols."""
    constants: dict[str, complex] = {r"\pi": math.pi, "e": math.e, "i": 1j}
    sides = []
    for side in (value.top, value.bottom):
        total: complex = 0.0
        for (radicand, powers), factor in side.items():
            if any(name not in constants for name, _ in powers):
                return None
            try:
                total += float(factor) * math.sqrt(radicand) * math.prod(constants[name] ** n for name, n in powers)
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
            product_term, sign = _multiply_terms(term, other)
            summed = total.get(product_term, Fraction(0)) + product * sign
            if summed:
                total[product_term] = summed
            else:
                total.pop(product_term, None)
    if len(total) > MAX_TERMS:
        raise TooBigError("terms")
    return total


def _multiply_terms(left: Monomial, right: Monomial) -> tuple[Monomial, int]:
    """The product of two terms, and the integer factor from their roots and from i^2."""
    common = math.gcd(left[0], right[0])
    radicand = left[0] * right[0] // common**2
    if not left[1] or not right[1]:
        return (radicand, left[1] or right[1]), common
    exponents = dict(left[1])
    for name, exponent in right[1]:
        exponents[name] = exponents.get(name, 0) + exponent
    # Each term has i at most once, so their product has at most i^2.
    sign = -1 if exponents.get("i", 0) == 2 else 1
    if sign < 0:
        del exponents["i"]
    return (
        radicand,
        tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent)),
    ), sign * common


def _divide_out(value: Value) -> Value:
    """The value with denominator 1 if its denominator is a single term without symbols; else unchanged."""
    if len(value.bottom) != 1:
        return value
    ((radicand, powers), factor) = next(iter(value.bottom.items()))
    if powers:
        return value
    inverse: Polynomial = {(radicand, ()): 1 / (factor * radicand)}
    return Value(top=_multiply(value.top, inverse), bottom=_UNIT)


def _split_square(whole: int) -> tuple[int, int] | None:
    """(a, b) with whole = a^2 b and b squarefree; None if `whole` is too large to factorize."""
    if whole > _MAX_RADICAND:
        exact = math.isqrt(whole)
        return (exact, 1) if exact * exact == whole else None
    outside, inside, divisor = 1, 1, 2
    # Once the rest is below the cube of the divisor it is a prime, a product of two primes, or a square.
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


# --- reading tokens ---------------------------------------------------------------------------------------------------

MAX_FACTORIAL = 999
_LETTERS = (
    r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \rho \sigma \tau \upsilon "
    r"\phi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Sigma \Phi \Psi \Omega \ell \hbar \pi"
)
_GREEK = frozenset(_LETTERS.split())
_APPLIED = frozenset("fgh")
CONSTANTS = frozenset(["e", "i", "pi"])
"""Letters that are numbers, so they name no function."""
_NAMED = frozenset("\\" + name for name in FUNCTIONS - {"sqrt", "max", "min", "gcd", "lcm", "det"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Unreadable(ValueError):
    """The tokens have no meaning, or more than one."""


@lru_cache(maxsize=2_048)
def value_of(tokens: Tokens) -> Value | None:
    """The exact value of the tokens; None if they have no single meaning. Raises TooBigError and ZeroDivisionError."""
    try:
        reader = _Reader(tokens)
        value = reader.read_sum()
    except Unreadable:
        return None
    return value if reader.place == len(tokens) else None


def parse_number(token: str) -> Fraction:
    """The exact value of a number token. Raises TooBigError."""
    token = token.replace(",", "")
    if "(" in token:
        head, _, digits = token[:-1].partition("(")
        return _repeating_decimal(head, digits)
    exponent = token.lower().partition("e")[2]
    if abs(int(exponent or 0)) > MAX_EXPONENT:
        raise TooBigError("exponent")
    return Fraction(token)


def _repeating_decimal(head: str, digits: str) -> Fraction:
    places = len(head.partition(".")[2])
    return Fraction(head + "0" if head.endswith(".") else head) + Fraction(
        int(digits), (10 ** len(digits) - 1) * 10**places
    )


class _Reader:
    """Recursive descent parser; `place` is the index of the next token."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.place = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise Unreadable(token)
        self.place += 1
        return token

    def read_sum(self) -> Value:
        """expression := [sign] product ((+|-) product)*"""
        negative = self._read_signs()
        total = self.read_product()
        total = -total if negative else total
        while self.peek() in ("+", "-"):
            negative = self._read_signs()
            term = self.read_product()
            total = total + (-term if negative else term)
        return total

    def _read_signs(self) -> bool:
        negative = False
        for _ in range(3):
            if self.peek() not in ("+", "-"):
                return negative
            negative ^= self.take() == "-"
        raise Unreadable("signs")

    def read_product(self) -> Value:
        """product := factor ((*|/|nothing) factor)*; after a slash the sign is required."""
        total, divided = self.read_factor(first=True), False
        while token := self.peek():
            if token in ("*", "/"):
                self.take()
                negative = self._read_signs()
                factor = self.read_factor()
                factor = -factor if negative else factor
                total = total * factor if token == "*" else total / factor
                divided = token == "/"
            elif token[0].isdigit() or token[0] == ".":
                raise Unreadable("a number after a factor")
            elif token[0].isalpha() or token in _CLOSING or (token[0] == "\\" and token[1:2].isalpha()):
                if divided:
                    raise Unreadable("a slash before a product")
                total = total * self.read_factor()
            else:
                break
        return total

    def read_factor(self, *, first: bool = False) -> Value:
        """factor := base [^ exponent] [!] [%]"""
        start = self.place
        value = self.read_base()
        if first and self.place == start + 1 and self.tokens[start].isdigit():
            value = value + self._read_fraction()
        if self.peek() == "^":
            self.take()
            value = _raise(value, self._read_braced())
        while (mark := self.peek()) in ("!", "%"):
            self.take()
            value = _factorial(value) if mark == "!" else value / number(100)
            if self.peek() in ("!", "^"):
                raise Unreadable("two readings of a factorial")
        if self.peek() in ("^", "_", "'"):
            raise Unreadable("a power of a power")
        return value

    def _read_fraction(self) -> Value:
        """The fraction of a mixed number, `2\\frac{1}{3}` or `2 1/3`; 0 if none follows."""
        rest = self.tokens[self.place :]
        parts: tuple[str, str] | None = None
        if rest[:2] == (r"\frac", "{") and rest[3:5] == ("}", "{") and rest[6:7] == ("}",):
            parts, length = (rest[2], rest[5]), 7
        elif len(rest) >= 3 and rest[0].isdigit() and rest[1] == "/":
            parts, length = (rest[0], rest[2]), 3
        if parts is None or not (parts[0].isdigit() and parts[1].isdigit()):
            return number(0)
        if not 0 < int(parts[0]) < int(parts[1]):
            raise Unreadable("a number before an improper fraction")
        self.place += length
        return number(Fraction(int(parts[0]), int(parts[1])))

    def read_base(self) -> Value:
        """base := number | letters | brackets | |...| | function | fraction | binomial | root"""
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return self._read_number(token)
        if token in _CLOSING:
            value = self.read_sum()
            self.take(_CLOSING[token])
            return value
        if token == "|":
            value = self.read_sum()
            self.take("|")
            plain = rational(value)
            return _opaque("|", value) if plain is None else number(abs(plain))
        if token.isalpha():
            return self._read_letters(token)
        if token in _GREEK:
            if self._numeric_argument() is not None:
                raise Unreadable("a function")
            return symbol(token + self._read_index())
        if token in _NAMED:
            return self._read_function(token)
        if token == r"\frac":
            return self._read_braced() / self._read_braced()
        if token == r"\binom":
            return _binomial(self._read_braced(), self._read_braced())
        if token == r"\sqrt":
            return self._read_root()
        raise Unreadable(token)

    def _read_number(self, token: str) -> Value:
        if self.peek() in (r"\overline", r"\dot"):
            self.take()
            self.take("{")
            digits = self.take()
            self.take("}")
            if not (digits.isdigit() and "." in token):
                raise Unreadable("digits")
            return number(_repeating_decimal(token, digits))
        if "," in token or token.endswith("."):
            raise Unreadable(token)
        return number(parse_number(token))

    def _numeric_argument(self) -> str | None:
        """The `(0)` of the function value `I(0)`: in a product the number would come first."""
        following = self.tokens[self.place : self.place + 3]
        is_call = len(following) == 3 and (following[0], following[2]) == ("(", ")") and following[1].isdigit()
        return "".join(following) if is_call else None

    def _read_letters(self, run: str) -> Value:
        if len(run) > 4:
            raise Unreadable("a word")
        if len(run) == 1 and run in _APPLIED and self.peek() in ("(", "'"):
            raise Unreadable("a function")
        value = number(1)
        for letter in run[:-1]:
            value = value * symbol(letter)
        last = run[-1] + self._read_index()
        if last not in CONSTANTS and (argument := self._numeric_argument()) is not None:
            last, self.place = last + argument, self.place + 3
        # A power binds to the last letter of a run only: mv^2 is m v^2.
        if len(run) > 1 and self.peek() == "^":
            self.take()
            return value * _raise(symbol(last), self._read_braced())
        return value * symbol(last)

    def _read_index(self) -> str:
        marks = ""
        while self.peek() in ("_", "'"):
            if self.take() == "'":
                marks += "'"
                continue
            end = closing_index(self.tokens, self.place)
            if end < 0:
                raise Unreadable("an index")
            marks += "_" + " ".join(self.tokens[self.place + 1 : end])
            self.place = end + 1
        return marks

    def _read_braced(self) -> Value:
        self.take("{")
        value = self.read_sum()
        self.take("}")
        return value

    def _read_root(self) -> Value:
        degree = 2
        if self.peek() == "[":
            self.take()
            digits = self.take()
            self.take("]")
            if not (digits.isdigit() and len(digits) < 3):
                raise Unreadable("the degree of a root")
            degree = int(digits)
        value = self._read_braced()
        exact = root(value, degree)
        return _opaque(f"root{degree}", value) if exact is None else exact

    def _read_function(self, name: str) -> Value:
        """A named function of one argument: in brackets, or the factors up to the next sign or function."""
        base = ""
        if self.peek() == "_":
            self.take()
            base = "_" + key(self._read_braced())
        exponent = 1
        if self.peek() == "^":
            self.take()
            plain = rational(self._read_braced())
            if plain is None or plain.denominator != 1 or plain < 1:
                raise Unreadable("an inverse or a power")
            exponent = int(plain)
        if self.peek() in _CLOSING:
            value = self.read_base()
            if self.peek() == "^":
                raise Unreadable("a power after an argument")
        else:
            value = self.read_factor()
            while (token := self.peek()) and (token.isalpha() or token in _GREEK or token == r"\frac"):
                value = value * self.read_factor()
            if self.peek() in ("(", "/", "*"):
                raise Unreadable("where an argument ends")
        if self.peek() == "°":
            self.take()
            value = value * symbol(r"\pi") / number(180)
        return power(_opaque(name + base, value), exponent)


def _opaque(name: str, argument: Value) -> Value:
    return symbol(f"{OPAQUE}{name}({key(argument)})")


def _raise(base: Value, exponent: Value) -> Value:
    plain = rational(exponent)
    if plain is not None and plain.denominator == 1:
        if abs(plain) > MAX_EXPONENT:
            raise TooBigError("exponent")
        return power(base, int(plain))
    if plain is not None and plain.denominator <= 64 and abs(plain.numerator) <= 64:
        radical = root(base, plain.denominator)
        if radical is not None:
            return power(radical, plain.numerator)
    return _opaque("^" + key(exponent), base)


def _factorial(value: Value) -> Value:
    plain = rational(value)
    if plain is None:
        return _opaque("!", value)
    if plain.denominator != 1 or plain < 0:
        raise Unreadable("a factorial")
    if plain > MAX_FACTORIAL:
        raise TooBigError("factorial")
    return number(math.factorial(int(plain)))


def _binomial(top: Value, bottom: Value) -> Value:
    below, above = rational(bottom), rational(top)
    if below is None or below.denominator != 1 or below < 0 or (above is not None and above.denominator != 1):
        return _opaque("binom" + key(bottom), top)
    if above is not None:
        if max(abs(above), below) > MAX_FACTORIAL:
            raise TooBigError("binomial")
        if above >= 0:
            return number(math.comb(int(above), int(below)))
    if below > 4:
        return _opaque("binom" + key(bottom), top)
    value = number(Fraction(1, math.factorial(int(below))))
    for step in range(int(below)):
        value = value * (top + number(-step))
    return value
