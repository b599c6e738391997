r"""Separate values from their units, and compare times of day.

Units are written after or before a value: `42 kg`, `5\text{ cm}^2`, `\$18.90`, `35\%`, `90^\circ`, `17 apples`.
A known unit has a scale and dimensions, so that `500 cm` is `5 m` and not `5 kg`. Other words name the counted things
and are ignored, unless they may change the value: `43 million`, `43 squared`, `not 43`.

Times of day: `7:05`, `4:30\text{ p.m.}`, `16:30:10`, `9 AM`, `12 noon`. As a ratio `7:05` would equal `14:10`, so two
times are compared as times. As with units, a side may omit AM or PM; if both name one, it has to agree.
"""

import itertools
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from infuser_core.verifiers.parts.tokens import FUNCTIONS, Tokens

_BASES = {
    # name: (scale, dimensions); dimensions are letters, repeated for powers, capital letters for negative powers
    "m": ("1", "m"), "g": ("1/1000", "g"), "s": ("1", "s"), "A": ("1", "a"), "K": ("1", "k"), "mol": ("1", "o"),
    "N": ("1", "gmSS"), "J": ("1", "gmmSS"), "W": ("1", "gmmSSS"), "Pa": ("1", "gMSS"), "Hz": ("1", "S"),
    "V": ("1", "gmmSSSA"), "C": ("1", "sa"), "F": ("1", "GMMssssaa"), r"\Omega": ("1", "gmmSSSAA"), "T": ("1", "gSSA"),
    "H": ("1", "gmmSSAA"), "Wb": ("1", "gmmSSA"), "L": ("1/1000", "mmm"), "l": ("1/1000", "mmm"),
    "eV": ("1.602176634e-19", "gmmSS"), "cal": ("4.184", "gmmSS"),
}  # fmt: skip
_PREFIXES = {
    "G": "1e9", "M": "1e6", "k": "1e3", "d": "1e-1", "c": "1e-2", "m": "1e-3", "u": "1e-6", r"\mu": "1e-6", "n": "1e-9",
    "p": "1e-12",
}  # fmt: skip
_LONG = {
    "meter metre": ("1", "m"), "gram": ("1/1000", "g"), "second sec": ("1", "s"), "inch inche in": ("0.0254", "m"),
    "foot feet ft": ("0.3048", "m"), "yard yd": ("0.9144", "m"), "mile mi": ("1609.344", "m"),
    "min minute": ("60", "s"),
    "h hr hour": ("3600", "s"), "day": ("86400", "s"), "week": ("604800", "s"), "pound lb": ("0.45359237", "g"),
    "ounce oz": ("0.028349523125", "g"), "liter litre": ("1/1000", "mmm"), "newton": ("1", "gmSS"),
    "joule": ("1", "gmmSS"), "watt": ("1", "gmmSSS"), "volt": ("1", "gmmSSSA"), "ohm": ("1", "gmmSSSAA"),
    "kelvin": ("1", "k"), "mph": ("0.44704", "mS"), "kph": ("1000/3600", "mS"), "atm": ("101325", "gMSS"),
    "bar": ("100000", "gMSS"), "dollar usd": ("1", "$"), "cent": ("1/100", "$"), "degree deg": ("1", "°"),
    "percent percentage": ("1/100", "%"), "radian rad": ("1", "r"), "kilometer kilometre": ("1000", "m"),
    "centimeter centimetre": ("1/100", "m"), "millimeter millimetre": ("1/1000", "m"), "kilogram": ("1", "g"),
    "milligram": ("1e-6", "g"), "milliliter millilitre": ("1e-6", "mmm"), "unit": ("1", ""),
    "millisecond": ("1/1000", "s"),
}  # fmt: skip
_NAMES = {name: meaning for names, meaning in _LONG.items() for name in names.split()}
_CHANGING = (
    "not no non nor or and minus plus times over half quarter third twice double squared cubed square root cube "
    "hundred thousand million billion trillion dozen score ten zero one two three four five six seven eight nine "
    "more less least most greater fewer than above below under about approximately approx around nearly almost if "
    "when where unless except but mod modulo base factorial to from between otherwise wrong false incorrect is are "
    "negative positive infinity undefined divided multiplied power powers or/and multiple multiples without "
    "halves thirds fourths quarters fifths sixths sevenths eighths ninths tenths hundredths thousandths but never "
    "am pm noon midnight"
)
ALTERING = frozenset(_CHANGING.split())
"""Words that may change the value next to them."""
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of measurement."""

    scale: Fraction
    """Factor to the base units."""
    dimensions: str
    """Sorted letters of the base units, as in `_BASES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value with its unit, and the words around it."""

    value: Tokens
    unit: Unit | None
    factor: Fraction
    """Factor of a word like million; 1 otherwise."""
    noun: str
    """Words that are no unit, in lower case."""
    also: tuple[Fraction, ...] = ()
    """Ratios of the unit to the smaller units of the value: 60 for `2 hours 30 minutes`."""


def measure(tokens: Tokens, *, declared: bool, letters: bool) -> Measure | None:
    """Separate a value from its unit; None if words around the value may change it.

    `letters`: plain letters may be a unit (`42 kg`), not only words in `\\text{...}`. `declared`: the question declares
    a unit, so that even a single letter may be one.
    """
    if several := in_several_units(tokens):
        return several
    money = tokens[:1] == (r"\$",) or tokens[-1:] == (r"\$",)
    if money:
        tokens = tokens[1:] if tokens[0] == r"\$" else tokens[:-1]
    end = _value_end(tokens, declared=declared, letters=letters)
    value, tail = tokens[:end], tokens[end:]
    plain = Measure(value=tokens, unit=_MONEY if money else None, factor=Fraction(1), noun="")
    if not tail or not value:
        return plain
    if tail == ("°",) and any(token[1:] in FUNCTIONS for token in value):
        return plain
    if tail in (("%",), ("°",)):
        return Measure(
            value=value, unit=_unit_of_name("percent" if tail == ("%",) else "degree"), factor=Fraction(1), noun=""
        )
    words = " ".join(token.lstrip('"') for token in tail)
    first, _, rest = words.partition(" ")
    factor = Fraction(_SCALES.get(first.lower(), 1))
    words = rest if factor != 1 else words
    unit = parse_unit(words) if words else None
    if unit is not None or not words:
        return Measure(value=value, unit=unit or plain.unit, factor=factor, noun="")
    # Unknown words are a noun, and ignored, if they are long or inside of `\text{...}`: the x of 43x is a factor.
    if any(token[0] != '"' and not (token.isalpha() and len(token) > 3) for token in tail):
        return Measure(value=(*value, *tail), unit=None, factor=Fraction(1), noun="")
    nouns = re.findall(r"[a-z/]+", words.lower().replace(".", ""))
    if re.search(r"[^A-Za-z .,'-]", words) or len(nouns) > 4 or ALTERING & set(nouns):
        return None
    return Measure(value=value, unit=None, factor=factor, noun=" ".join(nouns))


_PART = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(°|'{1,2}|[A-Za-z]+)[\s.]*(?:(?:,\s*)?(?:and\s+)?(?=\d))?")
_ARC = {"'": Fraction(1, 60), "''": Fraction(1, 3600)}


def in_several_units(tokens: Tokens) -> Measure | None:
    r"""`2 hours 30 minutes`, `5\text{ ft }6\text{ in}` or `30^\circ 15'` in its first unit; None for anything else."""
    if not tokens or not tokens[0].lstrip('"')[:1].isdigit() or (len(tokens) < 4 and tokens[0][0] != '"'):
        return None
    text = " ".join(token.lstrip('"\\') for token in tokens).replace("' '", "''")
    parts = _PART.findall(text)
    if len(parts) < 2 or _PART.sub("", text):
        return None
    numbers, names = zip(*parts, strict=True)
    first = _unit_of_name(names[0])
    units = [
        Unit(scale=first.scale * _ARC[name], dimensions="°") if first and name in _ARC else _unit_of_name(name)
        for name in names
    ]
    scales = [unit.scale for unit in units if unit and first and unit.dimensions == first.dimensions]
    if (
        first is None
        or len(scales) < len(units)
        or any(scale <= smaller for scale, smaller in itertools.pairwise(scales))
    ):
        return None
    value = [numbers[0]]
    for number, scale in zip(numbers[1:], scales[1:], strict=True):
        share = scale / scales[0]
        value += ["+", number, "*", "(", str(share.numerator), "/", str(share.denominator), ")"]
    also = tuple(scales[0] / scale for scale in scales[1:])
    return Measure(value=tuple(value), unit=first, factor=Fraction(1), noun="", also=also)


def _value_end(tokens: Tokens, *, declared: bool, letters: bool) -> int:
    """Index after the value: only words, signs and letters that may be a unit follow."""
    end, least = len(tokens), 1 if declared else 2 if letters else 99
    while end:
        token, start = tokens[end - 1], end - 1
        if token == "}":
            # m^{2}, s^{-1}
            start = max(end - 5, 0) if tokens[end - 3 : end - 2] == ("-",) else max(end - 4, 0)
            if tokens[start : start + 2] != ("^", "{") or not _may_be_unit(tokens, start - 1, least):
                return end
        elif token in ("/", "*", r"\mu", r"\Omega"):
            follows = end < len(tokens) and _may_be_unit(tokens, end, 1)
            if not (follows or token == r"\Omega") or not (declared or tokens[end - 2][0] == '"'):
                return end
        elif token not in ("%", "°") and not _may_be_unit(tokens, start, least):
            return end
        end = start
    return end


def _may_be_unit(tokens: Tokens, place: int, least: int) -> bool:
    token = tokens[place] if place >= 0 else ""
    return token[:1] == '"' or (token.isalpha() and len(token) >= least)


@lru_cache(maxsize=1024)
def parse_unit(text: str) -> Unit | None:
    r"""The unit of a text like `m/s^2`, `\mathrm{~kg}` or `square inches`; None if it is not a unit."""
    text = re.sub(r"\\(?:mathrm|text|mathbf|rm|operatorname)|[${}~()]|\\[,!;: ]", " ", text)
    text = re.sub(r"\^\s*\\circ\s*C?", "°", text).replace("·", "*").replace(r"\cdot", "*").replace(r"\times", "*")
    text = re.sub(r"\bper\b", "/", text.strip().removesuffix("."))
    power = 2 if re.match(r"(?:square|sq\.?)\s", text) else 3 if re.match(r"(?:cubic|cu\.?)\s", text) else 1
    text = re.sub(r"^(?:square|sq\.?|cubic|cu\.?)\s+", "", text)
    scale, dimensions, below = Fraction(1), "", False
    for part in re.findall(r"/|[^\s*/]+(?:\s*\^\s*[-\s]*\d)?", text):
        if part == "/":
            below = True
            continue
        name, _, exponent = part.partition("^")
        unit = _unit_of_name(name.strip())
        if unit is None or not re.fullmatch(r"[-\s]*\d?", exponent):
            return None
        times = int(re.sub(r"\s", "", exponent) or 1) * (-1 if below else 1) * power
        scale *= unit.scale**times
        dimensions += unit.dimensions * times if times > 0 else unit.dimensions.swapcase() * -times
    return Unit(scale=scale, dimensions=_cancel(dimensions)) if text else None


def _cancel(dimensions: str) -> str:
    """Cancel lower and capital letters of the same dimension, and sort."""
    for letter in set(dimensions.lower()) - {"$", "%", "°"}:
        count = dimensions.count(letter) - dimensions.count(letter.upper())
        dimensions = dimensions.replace(letter, "").replace(letter.upper(), "")
        dimensions += letter * count if count > 0 else letter.upper() * -count
    return "".join(sorted(dimensions))


@lru_cache(maxsize=1024)
def _unit_of_name(name: str) -> Unit | None:
    if name in ("%", r"\%", "°", r"\$"):
        name = {"%": "percent", r"\%": "percent", "°": "degree", r"\$": "dollar"}[name]
    lower = name.lower()
    definition = _BASES.get(name) or _NAMES.get(lower) or _NAMES.get(lower.removesuffix("s"))
    if definition is not None:
        return Unit(scale=Fraction(definition[0]), dimensions=_cancel(definition[1]))
    for prefix, factor in _PREFIXES.items():
        base = _BASES.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if base is not None:
            return Unit(scale=Fraction(base[0]) * Fraction(factor), dimensions=_cancel(base[1]))
    return None


_MONEY = Unit(scale=Fraction(1), dimensions="$")
_TIME = re.compile(r"([01]?\d|2[0-4])(?::([0-5]\d)(?::([0-5]\d))?)?(am|pm|noon|midnight)?")
_PM = {"am": False, "midnight": False, "pm": True, "noon": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOfDay:
    """A time of day."""

    seconds: int
    """Seconds since midnight as written, regardless of `pm`."""
    pm: bool | None
    """Whether it is PM; None if neither AM nor PM is named."""
    is_number: bool
    """Whether it is a bare number, which is a time only next to another time."""

    @property
    def seconds_of_day(self) -> int:
        """Seconds since midnight; AM or PM counts if it is named."""
        return self.seconds if self.pm is None else self.seconds % 43_200 + 43_200 * self.pm


def _time_of_day(tokens: Tokens) -> TimeOfDay | None:
    if not tokens or not tokens[0].lstrip('"')[:1].isdigit():
        return None
    text = "".join(token.lstrip('"') for token in tokens)
    match = _TIME.fullmatch(text if text.isdecimal() else re.sub(r"(?<=[apm])\.|\s", "", text.lower()))
    if match is None:
        return None
    hours, minutes, seconds, half = match.groups()
    if half and not 0 < int(hours) <= 12:
        return None
    total = 3600 * int(hours) + 60 * int(minutes or 0) + int(seconds or 0)
    return TimeOfDay(seconds=total, pm=_PM[half] if half else None, is_number=not (minutes or half))


def same_time(answer: Tokens, reference: Tokens) -> bool | None:
    """Whether two times of day are the same; None if a side is not a time, or both are bare numbers."""
    if len(answer) == len(reference) == 1 and answer[0].isdigit() and reference[0].isdigit():
        return None
    reference_time = _time_of_day(reference)
    time = _time_of_day(answer) if reference_time else None
    if time is None or reference_time is None or (time.is_number and reference_time.is_number):
        return None
    # Next to `9:00` a plain 9 may be anything; next to `9 a.m.` it is the hour.
    if (time.is_number and reference_time.pm is None) or (reference_time.is_number and time.pm is None):
        return None
    if time.seconds_of_day == reference_time.seconds_of_day:
        return True
    return None in (time.pm, reference_time.pm) and time.seconds == reference_time.seconds
