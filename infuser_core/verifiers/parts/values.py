"""Compare two single values by words, units, exact algebra and tolerances, then in a symbolic worker."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts import algebra, units
from infuser_core.verifiers.parts.algebra import CONSTANTS, MAX_FACTORIAL, TooBigError, Value, parse_number, value_of
from infuser_core.verifiers.parts.grading import Finding, Grading, Stage, correct, grading_of, unverified, wrong
from infuser_core.verifiers.parts.tokens import FUNCTIONS, Tokens, spell
from infuser_core.verifiers.parts.units import same_time

RELATIVE = Fraction(1, 10_000)
"""Relative tolerance of decimals on `_RELATIVE_ROUTES`."""
_RADIANS = re.compile(r"\bradians?\b", re.IGNORECASE)
_RATIO = re.compile(r"\b(?:ratios?|odds|proportions?)\b", re.IGNORECASE)
_RELATIVE_ROUTES = ("olympiad",)
_PERCENT = re.compile(
    r"\b(?:what|which|how many|find|compute|determine|calculate|express|give|by how much|as an?)\b[^.?!]{0,60}?"
    r"\bpercent(?:age)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules by which the answers to one question are compared. Hashable: part of the key of cached decisions."""

    multiple: bool = False
    """The reference is a comma-joined list."""
    ordered: bool = False
    """The order of a bare list matters."""
    interval: bool = False
    """The reference is an interval, so the brackets are required."""
    tolerances: tuple[Fraction | None, ...] = ()
    """Declared absolute tolerances: one for all parts, or one per part, None for an exact part; empty: exact."""
    relative: Fraction = Fraction(0)
    """Relative tolerance if a side is a decimal and no absolute tolerance is declared."""
    unit: str = ""
    """Declared unit."""
    percent: bool = False
    """The question asks for a percentage: a reference without a unit is in percent."""
    radians: bool = False
    """The question asks for radians: a reference without a unit is in radians, and degrees are converted."""
    ratio: bool = False
    """The question asks for a ratio: `3:20` is not a time of day."""

    @property
    def has_tolerance(self) -> bool:
        """Whether any tolerance applies."""
        return bool(self.tolerances or self.relative)

    def tolerance(self, place: int) -> Fraction | None:
        """Absolute tolerance of part `place` of the reference; None if none is declared."""
        if not self.tolerances:
            return None
        return self.tolerances[place] if place < len(self.tolerances) else self.tolerances[-1]


def rules_of(question: Question) -> Rules:
    """The rules for a question. Raises DocumentError if its grading facts are malformed."""
    return _rules(question.text, grading_of(question))


@lru_cache(maxsize=4096)
def _rules(text: str, grading: Grading) -> Rules:
    types = {part.strip().lower() for part in grading.answer_type.split(",")}
    route = grading.route.lower()
    return Rules(
        multiple=grading.multiple,
        ordered=types == {"tuple"} and not grading.multiple,
        interval=types == {"interval"},
        tolerances=tuple(map(_tolerance, grading.tolerance.split(","))) if grading.tolerance.strip(" ,") else (),
        relative=RELATIVE if route.startswith(_RELATIVE_ROUTES) else Fraction(0),
        unit=grading.unit,
        percent=grading.unit.strip(" $\\") in ("%", "percent") or _PERCENT.search(text) is not None,
        radians=_RADIANS.search(text) is not None,
        ratio=_RATIO.search(text) is not None,
    )


def _tolerance(text: str) -> Fraction | None:
    bare = text.strip().strip("$")
    try:
        return abs(Fraction(bare)) if bare else None
    except ValueError as error:
        hint = "a decimal number, or a comma-joined list of them"
        raise DocumentError(f"grading: tolerance {text!r} is no number", hint=hint) from error


Oracle = Callable[[dict[str, object]], Finding]
"""Function that sends a request to a symbolic worker (`symbolic.py`) and returns its finding."""

_BASED = re.compile(r"\d[0-9A-Za-z]*_\{([2-9]|[12]\d|3[0-6])\}")
_INFINITE = {(r"\infty",): 1, ("+", r"\infty"): 1, ("-", r"\infty"): -1}
_OPERATOR_NAMES = r"\int \iint \iiint \oint \sum \prod \lim \max \min \gcd \lcm \det \limsup \liminf \sup \inf"
_OPERATORS = frozenset(_OPERATOR_NAMES.split())


Allowed = tuple[Fraction | None, Fraction]
"""Absolute tolerance in the unit of the reference (None if not declared) and relative tolerance (0: exact)."""


def same_value(answer: Tokens, reference: Tokens, place: int, rules: Rules, oracle: Oracle) -> Finding:
    """Compare two values by words, units, exact algebra and tolerance; `oracle` decides the rest."""
    if spell(answer) == spell(reference) or _has_same_words(answer, reference):
        return correct(Stage.TEXT)
    same = None if rules.ratio else same_time(answer, reference)
    if same is not None:
        return correct(Stage.EXACT) if same else wrong(Stage.EXACT)
    if r"\ln" in reference and r"\log" not in reference:
        # If the reference writes `\ln`, logarithms without a base are natural.
        following = zip(answer, (*answer[1:], ""), strict=True)
        answer = tuple(r"\ln" if token == r"\log" and next_token != "_" else token for token, next_token in following)
    reference_measure = _measure(reference, rules, letters=False)
    if reference_measure is None or _is_wordy(reference_measure.value):
        return wrong(Stage.WORDS)
    measure = _measure(answer, rules, letters=not any(token.isalpha() for token in reference_measure.value))
    if measure is None or _is_wordy(measure.value):
        return wrong(Stage.WORDS)
    factors = _unit_factors(measure, reference_measure, rules)
    if not factors:
        return wrong(Stage.UNITS)
    absolute = rules.tolerance(place)
    decimal = any("." in token for token in (*answer, *reference) if token[0].isdigit() or token[0] == ".")
    allowed = absolute, rules.relative if absolute is None and decimal else Fraction(0)
    outcomes = [_compare_scaled(measure.value, reference_measure.value, factor, allowed, oracle) for factor in factors]
    return next((outcome for outcome in outcomes if outcome.verdict == Verdict.CORRECT), outcomes[0])


def _measure(tokens: Tokens, rules: Rules, *, letters: bool) -> units.Measure | None:
    """Separate a value from its unit. Plain letters are a unit if it is the declared one, or if `letters` allows it."""
    declared = units.parse_unit(rules.unit) if rules.unit else None
    if declared is not None:
        measure = units.measure(tokens, declared=True, letters=True)
        if measure is not None and measure.unit is not None and measure.unit.dimensions == declared.dimensions:
            return measure
    return units.measure(tokens, declared=False, letters=letters)


def _unit_factors(measure: units.Measure, reference: units.Measure, rules: Rules) -> list[Value]:
    """Factors that convert the answer to the reference's unit, to be tried in turn; none if the units differ."""
    factor = algebra.number(measure.factor / reference.factor)
    unit, reference_unit = measure.unit, reference.unit or units.parse_unit(rules.unit)
    if unit is None or reference_unit is None:
        percent, degrees = ("%", "°")
        if reference_unit is None and unit is not None and unit.dimensions == percent and not rules.percent:
            return [algebra.number(Fraction(1, 100))]
        if unit is None and reference.unit is not None and reference.unit.dimensions == percent:
            return [factor, algebra.number(100)]
        straight = algebra.symbol(r"\pi") / algebra.number(180)
        if (
            unit is not None
            and unit.dimensions == degrees
            and (r"\pi" in reference.value or (rules.radians and reference_unit is None))
        ):
            return [straight]
        if reference_unit is not None and reference_unit.dimensions == degrees and r"\pi" in measure.value:
            return [algebra.number(1) / straight]
        if unit is not None and reference.noun:
            return []
        if unit is not None:
            # A reference without a unit may be in any unit that the answer names.
            return [factor, *(factor * algebra.number(also) for also in measure.also)]
        return [] if reference.unit is not None and measure.noun else [factor]
    if unit.dimensions != reference_unit.dimensions:
        return [factor] if not unit.dimensions or not reference_unit.dimensions else []
    return [factor * algebra.number(unit.scale / reference_unit.scale)]


def _compare_scaled(answer: Tokens, reference: Tokens, factor: Value, allowed: Allowed, oracle: Oracle) -> Finding:
    quick = _compare_without_algebra(answer, reference)
    if quick is not None:
        return quick
    try:
        reference_value = _exact_value(reference)
    except (TooBigError, ZeroDivisionError):
        return unverified(Stage.LIMIT)
    try:
        value = _exact_value(answer)
        value = None if value is None else value * factor
        if value is not None and reference_value is not None:
            outcome = _compare_exactly(value, reference_value, allowed)
            if outcome is not None:
                return outcome
    except TooBigError:
        return unverified(Stage.LIMIT)
    except ZeroDivisionError:
        return wrong(Stage.EXACT)
    if _never_ends(answer) or _never_ends(reference):
        return unverified(Stage.LIMIT)
    scale = algebra.rational(factor)
    if scale is None:
        return unverified(Stage.UNITS)
    text = tex(answer) if scale == 1 else rf"({tex(answer)})\cdot\frac{{{scale.numerator}}}{{{scale.denominator}}}"
    within = [float(limit or 0) for limit in allowed]
    return oracle({"ask": "equal", "answer": text, "gold": tex(reference), "within": within})


def _compare_exactly(value: Value, reference: Value, allowed: Allowed) -> Finding | None:
    """Decide by exact algebra; None if it leaves the comparison open."""
    is_equal, (absolute, relative) = algebra.is_equal(value, reference), allowed
    if is_equal:
        return correct(Stage.EXACT)
    if absolute is None and not relative:
        return None if is_equal is None else wrong(Stage.EXACT)
    number, reference_number = algebra.rational(value), algebra.rational(reference)
    if number is not None and reference_number is not None:
        limit = relative * (abs(reference_number) or 1) if absolute is None else absolute
        return correct(Stage.TOLERANCE) if abs(number - reference_number) <= limit else wrong(Stage.TOLERANCE)
    approximation, reference_approximation = algebra.approximate(value), algebra.approximate(reference)
    if approximation is None or reference_approximation is None:
        return None if is_equal is None else wrong(Stage.EXACT)
    reach = float(relative) * (abs(reference_approximation) or 1.0) if absolute is None else float(absolute)
    return correct(Stage.TOLERANCE) if abs(approximation - reference_approximation) <= reach else wrong(Stage.TOLERANCE)


def _compare_without_algebra(answer: Tokens, reference: Tokens) -> Finding | None:
    """Decide on infinities, numbers in another base, and answers that are no single value; None for all others."""
    signs = _INFINITE.get(answer), _INFINITE.get(reference)
    if signs != (None, None):
        return correct(Stage.EXACT) if signs[0] == signs[1] else wrong(Stage.EXACT)
    based = _BASED.fullmatch(spell(reference))
    if based:
        digits, base = spell(reference).split("_")
        spelling = spell(answer)
        return correct(Stage.EXACT) if spelling == digits or spelling == f"{digits}_{base}" else wrong(Stage.EXACT)
    has_two_numbers = any(left[0].isdigit() and right[0].isdigit() for left, right in itertools.pairwise(answer))
    bare = answer[1:] if answer[:1] in (("-",), ("+",)) else answer
    mixed = len(bare) == 4 and bare[2] == "/" and all(bare[n].isdigit() for n in (0, 1, 3))
    if has_two_numbers and _joined_thousands(answer) is None and not mixed:
        return wrong(Stage.STRUCTURE)
    if r"\ldots" in answer and r"\ldots" not in reference:
        return wrong(Stage.STRUCTURE)
    if _is_indexed(answer) or _is_indexed(reference):
        # math-verify drops the index of a number: it reads 7_{1} as 7.
        return unverified(Stage.REFERENCE) if _is_indexed(reference) else wrong(Stage.UNREADABLE)
    # Repeating the question is not an answer: an integral is accepted only if the reference has one.
    return wrong(Stage.UNEVALUATED) if (_OPERATORS & set(answer)) - set(reference) else None


def _is_indexed(tokens: Tokens) -> bool:
    """Whether a number or a bracket has an index that is not a base."""
    bases = [base for base, mark in itertools.pairwise(tokens) if mark == "_"] if "_" in tokens else []
    return any(base[-1].isdigit() or base == ")" for base in bases) and not _BASED.fullmatch(spell(tokens))


def _exact_value(tokens: Tokens) -> Value | None:
    if len(tokens) == 1 and (tokens[0][0].isdigit() or tokens[0][0] == ".") and not tokens[0].endswith("."):
        return algebra.number(parse_number(tokens[0]))
    digits = _joined_thousands(tokens)
    if digits is not None:
        return algebra.number(int(digits))
    match = _BASED.fullmatch(spell(tokens)) if "_" in tokens else None
    if match:
        try:
            return algebra.number(int(spell(tokens).partition("_")[0], int(match.group(1))))
        except ValueError:
            return None
    return value_of(tokens)


def _joined_thousands(tokens: Tokens) -> str | None:
    """The digits of `10 080` as one number; None for anything else."""
    if len(tokens) < 2 or not all(token.isdigit() for token in tokens) or len(tokens[0]) > 3 or tokens[0] == "0":
        return None
    return "".join(tokens) if all(len(token) == 3 for token in tokens[1:]) else None


def _never_ends(tokens: Tokens) -> bool:
    """Whether the worker might not terminate: powers or factorials above the limits, or towers of large powers."""
    text = spell(tokens)
    tower = re.search(r"\^\{[^{}]*\^", text) is not None and re.search(r"\d{2}", text) is not None
    large = any(int(number) > algebra.MAX_EXPONENT for number in re.findall(r"\^\{-?(\d{1,400})\}", text))
    factorial = any(int(number) > MAX_FACTORIAL for number in re.findall(r"(\d{1,400})\)*!", text))
    return tower or large or factorial


def _is_wordy(tokens: Tokens) -> bool:
    text = re.sub(r"_\{[^{}]*\}", "", spell(tokens))
    return r"\text{" in text or re.search(r"(?<![A-Za-z\\])[A-Za-z]{5,}", text) is not None


def _has_same_words(answer: Tokens, reference: Tokens) -> bool:
    """Whether both have the same words, inside of `\\text{...}` or not. Case matters next to numbers: mW is not MW."""
    if not any(token[0] == '"' or (token.isalpha() and len(token) > 1) for token in reference):
        return False
    words, reference_words = _plain(answer), _plain(reference)
    if words == reference_words:
        return True
    return not re.search(r"\d", words + reference_words) and _folded(words) == _folded(reference_words)


def _plain(tokens: Tokens) -> str:
    return " ".join(
        " ".join(token.lstrip('"').strip(" ,.;:!?") if token[0] == '"' else token for token in tokens).split()
    )


def _folded(text: str) -> str:
    return " ".join(re.sub(r"[\s,.;:!?]+", " ", text).casefold().split())


def tex(tokens: Tokens) -> str:
    """Write tokens as LaTeX for the worker: angles in radians; `I(0)` as a name, or it would be read as a product."""

    def name(match: re.Match[str]) -> str:
        is_product = match[1][1:] in FUNCTIONS or match[1].lstrip("\\") in CONSTANTS
        return match[0] if is_product else f"{match[1]}_{{{match[2]}}}"

    text = re.sub(r"(\d+(?:\.\d+)?)°", r"(\\frac{\1\\pi}{180})", spell(tokens))
    text = re.sub(r"(\\[A-Za-z]+|[A-Za-z])\((\d+)\)", name, text)
    return text.replace("*", r"\cdot ").replace("%", r"\%").replace("°", r"^{\circ}")
