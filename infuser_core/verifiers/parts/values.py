"""Comparison of two single values: words, units, exact algebra, tolerances, then the symbolic oracle."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts import algebra, tokens, units
from infuser_core.verifiers.parts.algebra import TooBigError, Value
from infuser_core.verifiers.parts.grading import Finding, Grading, Stage, correct, grading_of, unverified, wrong
from infuser_core.verifiers.parts.reading import CONSTANTS, MAX_FACTORIAL, literal, value_of
from infuser_core.verifiers.parts.tokens import Tokens, spell
from infuser_core.verifiers.parts.units import same_time

RELATIVE = Fraction(1, 10_000)
"""Relative tolerance of decimals where the route declares one without a number."""
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
    """Rules by which one question's answers are compared. Hashable: part of the key under which decisions are kept."""

    multiple: bool = False
    """The reference is a comma-joined list."""
    ordered: bool = False
    """The order of a bare list matters."""
    interval: bool = False
    """The reference is an interval: without brackets it is none."""
    tolerances: tuple[Fraction | None, ...] = ()
    """Declared absolute tolerances: one for all parts, or one per part, None for an exact one; empty: exact."""
    relative: Fraction = Fraction(0)
    """Relative tolerance where a side is written as a decimal and nothing absolute is declared."""
    unit: str = ""
    """Declared unit."""
    percent: bool = False
    """The question asks for a percentage: a bare reference counts in percent."""
    radians: bool = False
    """The question asks for radians: a bare reference counts in them, and degrees are converted."""

    ratio: bool = False
    """The question asks for a ratio: `3:20` is no time of day."""

    @property
    def allows(self) -> bool:
        """Whether any tolerance is declared."""
        return bool(self.tolerances or self.relative)

    def tolerance(self, place: int) -> Fraction | None:
        """Absolute tolerance of the part at `place` of the reference; None when nothing is declared."""
        if not self.tolerances:
            return None
        return self.tolerances[place] if place < len(self.tolerances) else self.tolerances[-1]


def rules_of(question: Question) -> Rules:
    """The rules for a question. Raises DocumentError for grading facts of another shape."""
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
"""Answers a request (see `symbolic.py`) that cheap stages leave open."""

_BASED = re.compile(r"\d[0-9A-Za-z]*_\{([2-9]|[12]\d|3[0-6])\}")
_INFINITE = {(r"\infty",): 1, ("+", r"\infty"): 1, ("-", r"\infty"): -1}
_OPERATOR_NAMES = r"\int \iint \iiint \oint \sum \prod \lim \max \min \gcd \lcm \det \limsup \liminf \sup \inf"
_OPERATORS = frozenset(_OPERATOR_NAMES.split())


Allowed = tuple[Fraction | None, Fraction]
"""Distance from the reference in its unit, None where nothing is declared, and as a share of it; 0: exact."""


def same_value(found: Tokens, wanted: Tokens, place: int, rules: Rules, oracle: Oracle) -> Finding:
    """Single values: words, units, exact algebra, tolerance, then the oracle."""
    if spell(found) == spell(wanted) or _same_words(found, wanted):
        return correct(Stage.TEXT)
    timely = None if rules.ratio else same_time(found, wanted)
    if timely is not None:
        return correct(Stage.EXACT) if timely else wrong(Stage.EXACT)
    if r"\ln" in wanted and r"\log" not in wanted:
        # Logarithms without a base are natural ones where the reference writes `\ln`.
        following = zip(found, (*found[1:], ""), strict=True)
        found = tuple(r"\ln" if one == r"\log" and after != "_" else one for one, after in following)
    gold = _measured(wanted, rules, letters=False)
    if gold is None or _is_wordy(gold.value):
        return wrong(Stage.WORDS)
    given = _measured(found, rules, letters=not any(token.isalpha() for token in gold.value))
    if given is None or _is_wordy(given.value):
        return wrong(Stage.WORDS)
    factors = _factors(given, gold, rules)
    if not factors:
        return wrong(Stage.UNITS)
    absolute = rules.tolerance(place)
    decimal = any("." in token for token in (*found, *wanted) if token[0].isdigit() or token[0] == ".")
    allowed = absolute, rules.relative if absolute is None and decimal else Fraction(0)
    outcomes = [_scaled(given.value, gold.value, factor, allowed, oracle) for factor in factors]
    return next((outcome for outcome in outcomes if outcome.verdict == Verdict.CORRECT), outcomes[0])


def _measured(found: Tokens, rules: Rules, *, letters: bool) -> units.Measure | None:
    """The value and its unit. Plain letters are a unit where it is the declared one, or where they can be no value."""
    declared = units.parse(rules.unit) if rules.unit else None
    if declared is not None:
        named = units.measure(found, declared=True, letters=True)
        if named is not None and named.unit is not None and named.unit.dimensions == declared.dimensions:
            return named
    return units.measure(found, declared=False, letters=letters)


def _factors(given: units.Measure, gold: units.Measure, rules: Rules) -> list[Value]:
    """Factors that make the answer's number count in the reference's unit, to be tried in turn; none: another unit."""
    words = algebra.number(given.factor / gold.factor)
    mine, theirs = given.unit, gold.unit or units.parse(rules.unit)
    if mine is None or theirs is None:
        percent, degrees = ("%", "°")
        if theirs is None and mine is not None and mine.dimensions == percent and not rules.percent:
            return [algebra.number(Fraction(1, 100))]
        if mine is None and gold.unit is not None and gold.unit.dimensions == percent:
            return [words, algebra.number(100)]
        straight = algebra.symbol(r"\pi") / algebra.number(180)
        if (
            mine is not None
            and mine.dimensions == degrees
            and (r"\pi" in gold.value or (rules.radians and theirs is None))
        ):
            return [straight]
        if theirs is not None and theirs.dimensions == degrees and r"\pi" in given.value:
            return [algebra.number(1) / straight]
        if mine is not None and gold.noun:
            return []
        if mine is not None:
            # A bare reference may be in any unit that the answer names.
            return [words, *(words * algebra.number(also) for also in given.also)]
        return [] if gold.unit is not None and given.noun else [words]
    if mine.dimensions != theirs.dimensions:
        return [words] if not mine.dimensions or not theirs.dimensions else []
    return [words * algebra.number(mine.scale / theirs.scale)]


def _scaled(found: Tokens, wanted: Tokens, factor: Value, allowed: Allowed, oracle: Oracle) -> Finding:
    quick = _without_algebra(found, wanted)
    if quick is not None:
        return quick
    try:
        gold = _number_or_value(wanted)
    except (TooBigError, ZeroDivisionError):
        return unverified(Stage.LIMIT)
    try:
        given = _number_or_value(found)
        given = given * factor if given is not None else None
        outcome = _exactly(given, gold, allowed) if given is not None and gold is not None else None
    except TooBigError:
        return unverified(Stage.LIMIT)
    except ZeroDivisionError:
        return wrong(Stage.EXACT)
    if outcome is not None:
        return outcome
    if _never_ends(found) or _never_ends(wanted):
        return unverified(Stage.LIMIT)
    scale = algebra.rational(factor)
    if scale is None:
        return unverified(Stage.UNITS)
    answer = tex(found) if scale == 1 else rf"({tex(found)})\cdot\frac{{{scale.numerator}}}{{{scale.denominator}}}"
    within = [float(limit or 0) for limit in allowed]
    return oracle({"ask": "equal", "answer": answer, "gold": tex(wanted), "within": within})


def _exactly(given: Value, gold: Value, allowed: Allowed) -> Finding | None:
    """The decision of exact algebra; None where it leaves the matter open."""
    same, (absolute, relative) = algebra.same(given, gold), allowed
    if same:
        return correct(Stage.EXACT)
    if absolute is None and not relative:
        return None if same is None else wrong(Stage.EXACT)
    left, right = algebra.rational(given), algebra.rational(gold)
    if left is not None and right is not None:
        limit = relative * (abs(right) or 1) if absolute is None else absolute
        return correct(Stage.TOLERANCE) if abs(left - right) <= limit else wrong(Stage.TOLERANCE)
    near, far = algebra.approximate(given), algebra.approximate(gold)
    if near is None or far is None:
        return None if same is None else wrong(Stage.EXACT)
    reach = float(relative) * (abs(far) or 1.0) if absolute is None else float(absolute)
    return correct(Stage.TOLERANCE) if abs(near - far) <= reach else wrong(Stage.TOLERANCE)


def _without_algebra(found: Tokens, wanted: Tokens) -> Finding | None:
    """Infinities, numbers in another base, and things that are no single value."""
    ends = _INFINITE.get(found), _INFINITE.get(wanted)
    if ends != (None, None):
        return correct(Stage.EXACT) if ends[0] == ends[1] else wrong(Stage.EXACT)
    based = _BASED.fullmatch(spell(wanted))
    if based:
        digits, base = spell(wanted).split("_")
        mine = spell(found)
        return correct(Stage.EXACT) if mine == digits or mine == f"{digits}_{base}" else wrong(Stage.EXACT)
    two = any(left[0].isdigit() and right[0].isdigit() for left, right in itertools.pairwise(found))
    bare = found[1:] if found[:1] in (("-",), ("+",)) else found
    mixed = len(bare) == 4 and bare[2] == "/" and all(bare[n].isdigit() for n in (0, 1, 3))
    if two and _thousands(found) is None and not mixed:
        return wrong(Stage.STRUCTURE)
    if r"\ldots" in found and r"\ldots" not in wanted:
        return wrong(Stage.STRUCTURE)
    if _is_indexed(found) or _is_indexed(wanted):
        # math-verify drops the index of a number, and would call 7_{1} seven.
        return unverified(Stage.REFERENCE) if _is_indexed(wanted) else wrong(Stage.UNREADABLE)
    # The question written again is no answer: an integral counts only where the reference has one.
    return wrong(Stage.UNEVALUATED) if (_OPERATORS & set(found)) - set(wanted) else None


def _is_indexed(found: Tokens) -> bool:
    """Whether a number or a bracket has an index that is no base."""
    bases = [base for base, mark in itertools.pairwise(found) if mark == "_"] if "_" in found else []
    return any(base[-1].isdigit() or base == ")" for base in bases) and not _BASED.fullmatch(spell(found))


def _number_or_value(found: Tokens) -> Value | None:
    if len(found) == 1 and (found[0][0].isdigit() or found[0][0] == ".") and not found[0].endswith("."):
        return algebra.number(literal(found[0]))
    joined = _thousands(found)
    if joined is not None:
        return algebra.number(int(joined))
    based = _BASED.fullmatch(spell(found)) if "_" in found else None
    if based:
        try:
            return algebra.number(int(spell(found).partition("_")[0], int(based.group(1))))
        except ValueError:
            return None
    return value_of(found)


def _thousands(found: Tokens) -> str | None:
    """`10 080` as one number."""
    if len(found) < 2 or not all(token.isdigit() for token in found) or len(found[0]) > 3 or found[0] == "0":
        return None
    return "".join(found) if all(len(token) == 3 for token in found[1:]) else None


def _never_ends(found: Tokens) -> bool:
    """Powers above the limit and towers of large powers, in the parts that exact algebra refused."""
    text = spell(found)
    tower = re.search(r"\^\{[^{}]*\^", text) is not None and re.search(r"\d{2}", text) is not None
    large = any(int(number) > algebra.MAX_EXPONENT for number in re.findall(r"\^\{-?(\d{1,400})\}", text))
    factorial = any(int(number) > MAX_FACTORIAL for number in re.findall(r"(\d{1,400})\)*!", text))
    return tower or large or factorial


def _is_wordy(found: Tokens) -> bool:
    text = re.sub(r"_\{[^{}]*\}", "", spell(found))
    return r"\text{" in text or re.search(r"(?<![A-Za-z\\])[A-Za-z]{5,}", text) is not None


def _same_words(found: Tokens, wanted: Tokens) -> bool:
    """The same words, whichever of them were set as words. Case counts where numbers stand beside: mW is not MW."""
    if not any(token[0] == '"' or (token.isalpha() and len(token) > 1) for token in wanted):
        return False
    left, right = _plain(found), _plain(wanted)
    if left == right:
        return True
    return not re.search(r"\d", left + right) and _folded(left) == _folded(right)


def _plain(found: Tokens) -> str:
    return " ".join(
        " ".join(token.lstrip('"').strip(" ,.;:!?") if token[0] == '"' else token for token in found).split()
    )


def _folded(text: str) -> str:
    return " ".join(re.sub(r"[\s,.;:!?]+", " ", text).casefold().split())


def tex(found: Tokens) -> str:
    """The tokens as LaTeX for a worker, angles in radians; `I(0)` as a name, since there it would be a product."""
    text = re.sub(r"(\d+(?:\.\d+)?)°", r"(\\frac{\1\\pi}{180})", spell(found))
    text = re.sub(r"(\\[A-Za-z]+|[A-Za-z])\((\d+)\)", _value_as_name, text)
    return text.replace("*", r"\cdot ").replace("%", r"\%").replace("°", r"^{\circ}")


def _value_as_name(match: re.Match[str]) -> str:
    kept = match[1][1:] in tokens.FUNCTIONS or match[1].lstrip("\\") in CONSTANTS
    return match[0] if kept else f"{match[1]}_{{{match[2]}}}"
