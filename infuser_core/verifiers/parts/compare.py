r"""Compare a mathematical answer with the reference by text, structure and exact values, then in a symbolic worker.

The cheapest stage comes first, and the decision of a stage is final. A chain of equations such as `42=43` is correct
only if each member is. Nothing here computes with numbers whose size the answer could make arbitrary.

`a<b` says that `b-a` is positive, and so do `b>a` and `2b>2a`. A set of real numbers is compared as its intervals from
left to right: `(0,2]\cup[1,3)` is `(0,3)`, and `x\ne 2` is two rays. If exact algebra cannot order the ends, only the
structures are compared.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts import algebra
from infuser_core.verifiers.parts.algebra import OPAQUE, TooBigError, Value, value_of
from infuser_core.verifiers.parts.grading import Finding, Stage, correct, unverified, wrong
from infuser_core.verifiers.parts.structure import (
    INTERVALS,
    ORDERED,
    OTHERWISE,
    Kind,
    Node,
    is_name,
    parse_answer,
    split_relation,
)
from infuser_core.verifiers.parts.tokens import Tokens, is_too_big, tokenize
from infuser_core.verifiers.parts.units import in_several_units
from infuser_core.verifiers.parts.values import Oracle, Rules, same_value, tex

MAX_PARTS = 32
"""Longest list that is matched part by part."""
MAX_MEMBERS = 4
"""Longest chain of equalities that counts as an answer."""
_ALL = r"all real(?:s| numbers)"
_FORMULAS = {
    rf"(?:[a-z] ?\\in ?)?\\(?:math(?:bb|bf) ?(?:\{{ ?R ?\}}|R)|R\b)|{_ALL}": r"(-\infty,\infty)",
    rf"{_ALL},? (?:except|other than|excluding)(?: for)? (\S.*)": r"R\setminus\{X\}",
    r"(?:there (?:is|are) )?no (?:real |integer )?solutions?(?: exists?)?|(?:the )?empty set|none": r"\emptyset",
    r"(?:(?:the|this) limit |it )?(?:does not exist|is undefined)|undefined|DNE|d\.n\.e|\\nexists": r"\text{undefined}",
}
_NAMES = {re.compile(pattern, re.IGNORECASE): formula for pattern, formula in _FORMULAS.items()}
_NAME_WORD = re.compile(r"[RrSsEeNnUuDd](?:(?<=R)|(?i:eal|olution|mpty|one|xist|ndefined|ne|\.n\.e))")
"""Part of a word of each name, or a capital R. A quick test: few formulas match it."""
_WORDS = re.compile(r"\\(?:text|textbf|textrm|mathrm)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?([A-Z])\s*[.):]\s+\S.*", re.DOTALL)
COMPOSED = frozenset([Kind.UNION, Kind.INTERSECTION, Kind.WITHOUT])
"""Sets composed of other sets."""
SETS = COMPOSED | {*INTERVALS.values(), Kind.SET}
"""Structures that may be a set of real numbers."""
_POSITIVE = {"<": "<", ">": "<", r"\le": r"\le", r"\ge": r"\le", r"\neq": r"\neq"}
_LOW_AFTER = (Kind.TUPLE, Kind.OPEN_LEFT)
_HIGH_AFTER = (Kind.CLOSED, Kind.OPEN_LEFT)
_ENDS = {("-", r"\infty"): -float("inf"), (r"\infty",): float("inf"), ("+", r"\infty"): float("inf")}
_NEAR = 1e-9

Cut = tuple[float, int]
"""A position on the real line, and 0 for just before it or 1 for just after it."""
Region = list[tuple[Cut, Cut]]
"""Disjoint intervals from left to right."""
_WHOLE_LINE: Region = [((-float("inf"), 0), (float("inf"), 0))]


def decide(answer: str, reference: str, rules: Rules, oracle: Oracle) -> Finding:
    """Decide whether an answer is equivalent to the reference. Errors of `oracle`, the symbolic worker, propagate."""
    if answer.strip() == reference.strip():
        return correct(Stage.TEXT)
    answer, reference = _name_to_formula(answer, reference), _name_to_formula(reference, reference)
    if is_too_big(answer) or is_too_big(reference):
        return unverified(Stage.LIMIT)
    try:
        tokens, gold = tokenize(answer), tokenize(reference)
        if not tokens or not gold:
            return wrong(Stage.UNREADABLE) if gold else unverified(Stage.REFERENCE)
        if tokens == gold:
            return correct(Stage.TEXT)
        for text, other in ((answer, gold), (reference, tokens)):
            # `C. because` for the reference `C`, or the other way round.
            letter = _LETTER.fullmatch(text.strip())
            if letter and other == (letter.group(1),):
                return correct(Stage.TEXT)
        return _Comparison(rules, oracle).decide(
            _strip_approx(tokens) if rules.has_tolerance else tokens, _strip_approx(gold)
        )
    except RecursionError:
        # Commands nest without brackets: a hundred roots of roots.
        return unverified(Stage.LIMIT)


class _Comparison:
    """Compares one answer with one reference."""

    def __init__(self, rules: Rules, oracle: Oracle) -> None:
        self.rules, self.oracle = rules, oracle

    def decide(self, answer: Tokens, reference: Tokens) -> Finding:
        """Compare under each reading of `1,250`, as one number or two: correct if one is, else the first outcome."""
        is_single = len(reference) == 1
        first: Finding | None = None
        for reference_joined in _thousands_readings(reference, only=not self.rules.multiple if is_single else None):
            for joined in _thousands_readings(answer, only=None):
                outcome = self.compare(
                    parse_answer(answer, thousands=joined), parse_answer(reference, thousands=reference_joined), 0
                )
                if outcome.verdict == Verdict.CORRECT:
                    return outcome
                first = first or outcome
        assert first is not None, "there is always one reading"
        return first

    def compare(self, answer: Node, reference: Node, place: int) -> Finding:
        """Compare structures; `place` is the part's position in the reference, which selects its tolerance."""
        if Kind.EQUATION in (answer.kind, reference.kind):
            return self._compare_equations(answer, reference, place)
        same = None if Kind.VALUE in (answer.kind, reference.kind) else same_inequality(answer.tokens, reference.tokens)
        if same or (answer == reference and answer.kind == Kind.CLAIM):
            return correct(Stage.RELATION)
        if Kind.CLAIM in (answer.kind, reference.kind):
            both = answer.kind == reference.kind or OTHERWISE in (answer.tokens, reference.tokens)
            return unverified(Stage.RELATION) if both and same is None else wrong(Stage.RELATION)
        if answer.unknown and reference.unknown and answer.unknown != reference.unknown:
            return wrong(Stage.RELATION)
        if reference.kind in SETS and {answer.kind, reference.kind} & COMPOSED and same_set(answer, reference):
            return correct(Stage.STRUCTURE)
        if answer.kind == Kind.SET and len(answer.items) == 1 and reference.kind == Kind.VALUE:
            return self.compare(answer.items[0], reference, place)
        if reference.kind == Kind.SET and len(reference.items) == 1 and answer.kind != Kind.SET:
            return self.compare(answer, reference.items[0], place)
        if answer.kind == reference.kind == Kind.VALUE:
            return same_value(answer.tokens, reference.tokens, place, self.rules, self.oracle)
        return self._compare_parts(answer, reference, place)

    def _compare_parts(self, answer: Node, reference: Node, place: int) -> Finding:
        answer, reference = _column(answer), _column(reference)
        kinds = {answer.kind, reference.kind}
        if kinds == {Kind.VALUE, Kind.LIST}:
            # `2 hours and 30 minutes` is parsed as a list.
            amount, reference_amount = (_amount_tokens(node) for node in (answer, reference))
            if amount and reference_amount:
                return same_value(amount, reference_amount, place, self.rules, self.oracle)
        if kinds == {Kind.VALUE, Kind.TUPLE}:
            return _compare_vector(answer, reference)
        if (kinds == {Kind.LIST, Kind.TUPLE} and not self.rules.interval) or (
            kinds == {Kind.LIST} and self.rules.ordered
        ):
            return self._compare_in_order(answer, reference, place)
        if kinds <= {Kind.LIST, Kind.SET} or kinds in ({Kind.UNION}, {Kind.INTERSECTION}, {Kind.CASES}):
            return self._compare_in_any_order(answer, reference, is_set=kinds not in ({Kind.LIST}, {Kind.CASES}))
        if len(kinds) == 1 and (answer.kind in ORDERED or answer.kind == Kind.WITHOUT):
            return self._compare_in_order(answer, reference, place)
        return wrong(Stage.STRUCTURE)

    def _compare_in_order(self, answer: Node, reference: Node, place: int) -> Finding:
        if len(answer.items) != len(reference.items):
            return wrong(Stage.STRUCTURE)
        start = place if reference.kind in ORDERED else 0
        worst = correct(Stage.STRUCTURE)
        for step, (part, gold) in enumerate(zip(answer.items, reference.items, strict=True)):
            outcome = self.compare(part, gold, start if reference.kind in ORDERED else start + step)
            if outcome.verdict == Verdict.WRONG:
                return outcome
            worst = outcome if outcome.verdict == Verdict.UNVERIFIED else worst
        return worst

    def _compare_in_any_order(self, answer: Node, reference: Node, *, is_set: bool) -> Finding:
        parts, golds = (tuple(dict.fromkeys(node.items)) if is_set else node.items for node in (answer, reference))
        if (len(parts) != len(golds) and not is_set) or max(len(parts), len(golds)) > MAX_PARTS:
            return wrong(Stage.STRUCTURE) if len(parts) != len(golds) else unverified(Stage.LIMIT)
        table = [[self.compare(part, gold, place) for place, gold in enumerate(golds)] for part in parts]
        sure = [[cell.verdict == Verdict.CORRECT for cell in row] for row in table]
        possible = [[cell.verdict != Verdict.WRONG for cell in row] for row in table]
        if _has_matching(sure, len(golds), is_set=is_set):
            return correct(Stage.STRUCTURE)
        if _has_matching(possible, len(golds), is_set=is_set):
            return next(cell for row in table for cell in row if cell.verdict == Verdict.UNVERIFIED)
        return wrong(Stage.STRUCTURE)

    def _compare_equations(self, answer: Node, reference: Node, place: int) -> Finding:
        answers, references = _equations_of_names(answer), _equations_of_names(reference)
        if (
            answers
            and references
            and (answer.kind == reference.kind == Kind.EQUATION or Kind.LIST in (answer.kind, reference.kind))
        ):
            return self._compare_in_any_order(answers, references, is_set=False)
        if reference.kind == Kind.EQUATION:
            signs, sides = _signs_and_sides(reference)
            if r"\approx" in signs:
                # The exact side of `1/3 \approx 0.33`, the only value of `p \approx 3`.
                return self.compare(answer, sides[is_name(sides[0])], place)
            value = _named_value(sides)
            if answer.kind != Kind.EQUATION:
                return wrong(Stage.RELATION) if value is None else self.compare(answer, value, place)
            return self._compare_two_equations(answer, reference, place)
        signs, sides = _signs_and_sides(answer)
        value = _named_value(sides)
        if value is not None and (signs == ["="] or self.rules.has_tolerance):
            return self.compare(value, reference, place)
        if is_name(sides[0]) and signs[0] == "=":
            signs, sides = signs[1:], sides[1:]
        return self._compare_chain(signs, sides, reference, place)

    def _compare_chain(self, signs: list[str], sides: list[Node], reference: Node, place: int) -> Finding:
        """Correct if every member is the reference, or a correct rounding of it after an approximation sign."""
        if len(sides) > MAX_MEMBERS:
            return wrong(Stage.RELATION)
        worst = self.compare(sides[0], reference, place)
        for sign, side in zip(signs, sides[1:], strict=True):
            if worst.verdict != Verdict.CORRECT:
                break
            worst = (
                self._compare_rounded(side, reference) if sign == r"\approx" else self.compare(side, reference, place)
            )
        return wrong(Stage.RELATION) if worst.verdict == Verdict.WRONG else worst

    def _compare_rounded(self, side: Node, reference: Node) -> Finding:
        decimals = len(side.tokens[-1].partition(".")[2]) if side.tokens and side.tokens[-1][0].isdigit() else 0
        half = Fraction(1, 2 * 10**decimals)
        if side.kind != Kind.VALUE or reference.kind != Kind.VALUE:
            return wrong(Stage.RELATION)
        rules = Rules(tolerances=(half,), unit=self.rules.unit, percent=self.rules.percent)
        return same_value(side.tokens, reference.tokens, 0, rules, self.oracle)

    def _compare_two_equations(self, answer: Node, reference: Node, place: int) -> Finding:
        left, right = _signs_and_sides(answer)[1], _signs_and_sides(reference)[1]
        if len(left) != 2 or len(right) != 2:
            return unverified(Stage.RELATION)
        names = [side for side in (left[0], right[0]) if is_name(side)]
        if len(names) == 2 and names[0] == names[1]:
            outcome = self.compare(left[1], right[1], place)
            if outcome.verdict == Verdict.CORRECT:
                return outcome
        if any(side.kind != Kind.VALUE for side in (*left, *right)):
            return wrong(Stage.STRUCTURE)
        try:
            zeros = [[value_of(side.tokens) for side in pair] for pair in (left, right)]
            (a, b), (c, d) = zeros
            if a is not None and b is not None and c is not None and d is not None:
                same = algebra.is_proportional(a + -b, c + -d)
                if same is not None:
                    return correct(Stage.EXACT) if same else wrong(Stage.EXACT)
        except (TooBigError, ZeroDivisionError):
            return unverified(Stage.LIMIT)
        sides = {"answer": [tex(side.tokens) for side in left], "gold": [tex(side.tokens) for side in right]}
        return self.oracle({"ask": "equation", **sides})


def _name_to_formula(text: str, reference: str) -> str:
    """The formula of a name such as `no solution` or `DNE`; `R` is the real numbers if the reference is."""
    if not _NAME_WORD.search(text):
        return text
    bare, other = (
        " ".join(_WORDS.sub(r"\1", one).strip(" \n$").removesuffix(".").split()) for one in (text, reference)
    )
    bare = r"\mathbb{R}" if bare == "R" and next(iter(_NAMES)).fullmatch(other) else bare
    for name, formula in _NAMES.items():
        if match := name.fullmatch(bare):
            return formula.replace("X", match[match.lastindex or 0])
    return text


def _strip_approx(tokens: Tokens) -> Tokens:
    """Drop the leading sign of an approximate value."""
    return tokens[1:] if tokens[0] == r"\approx" and len(tokens) > 1 else tokens


def _thousands_readings(tokens: Tokens, *, only: bool | None) -> list[bool]:
    """Values of `thousands` to try: both if a token like `1,250` may be one number or two."""
    ambiguous = any("," in token and token[0].isdigit() for token in tokens)
    if not ambiguous:
        return [True]
    return [True, False] if only is None else [only]


def _signs_and_sides(node: Node) -> tuple[list[str], list[Node]]:
    """The signs and the sides of an equation."""
    count = len(node.items) // 2
    return [mark.tokens[0] for mark in node.items[count + 1 :]], list(node.items[: count + 1])


def _named_value(sides: list[Node]) -> Node | None:
    """The value of an equation with a name on one side; None for other equations."""
    if len(sides) != 2:
        return None
    if is_name(sides[0]):
        return sides[1]
    return sides[0] if is_name(sides[1]) else None


def _equations_of_names(node: Node) -> Node | None:
    """`(x,y)=(1,2)`, `x=y=1` or a list of equations as equations of single names; None for anything else."""
    if node.kind == Kind.LIST:
        return node if all(item.kind == Kind.EQUATION for item in node.items) else None
    if node.kind != Kind.EQUATION:
        return None
    signs, (*names, value) = _signs_and_sides(node)
    if set(signs) != {"="} or not all(map(is_name, names)) or is_name(value):
        return None
    pairs = [(name, value) for name in names]
    if len(names) == 1 and names[0].kind == value.kind == Kind.TUPLE and len(names[0].items) == len(value.items):
        pairs = list(zip(names[0].items, value.items, strict=True))
    mark = Node(kind=Kind.VALUE, tokens=("=",))
    equations = tuple(Node(kind=Kind.EQUATION, items=(*pair, mark)) for pair in pairs)
    return Node(kind=Kind.LIST, items=equations) if len(equations) > 1 else None


def _amount_tokens(node: Node) -> Tokens | None:
    """The tokens of a value, or of a list that is one amount in several units; None for other lists."""
    whole = node.tokens if node.kind == Kind.VALUE else tuple(token for item in node.items for token in item.tokens)
    return whole if node.kind == Kind.VALUE or in_several_units(whole) else None


def _column(node: Node) -> Node:
    """A column matrix as the tuple of its entries; other nodes unchanged."""
    is_column = node.kind == Kind.MATRIX and all(len(row.items) == 1 for row in node.items)
    return Node(kind=Kind.TUPLE, items=tuple(row.items[0] for row in node.items)) if is_column else node


def _compare_vector(answer: Node, reference: Node) -> Finding:
    """Compare a tuple with a sum of the unit vectors i, j and k."""
    one, many = (answer, reference) if answer.kind == Kind.VALUE else (reference, answer)
    try:
        total, entries = value_of(one.tokens), [value_of(item.tokens) for item in many.items]
        parts = algebra.components(total, "ijk"[: max(len(entries), 2)]) if total else None
    except (TooBigError, ZeroDivisionError):
        return unverified(Stage.LIMIT)
    if parts is None or len(parts) != len(entries):
        return wrong(Stage.STRUCTURE)
    same = [
        None if entry is None else algebra.is_equal(part, entry) for part, entry in zip(parts, entries, strict=True)
    ]
    if False in same:
        return wrong(Stage.EXACT)
    return unverified(Stage.OPEN) if None in same else correct(Stage.EXACT)


def _has_matching(table: list[list[bool]], width: int, *, is_set: bool) -> bool:
    """Whether rows and columns can be matched one to one; for sets, whether each has a partner."""
    if is_set:
        return all(map(any, table)) and all(any(row[column] for row in table) for column in range(width))
    partner: dict[int, int] = {}

    def place(row: int, visited: set[int]) -> bool:
        for column, fits in enumerate(table[row]):
            if fits and column not in visited:
                visited.add(column)
                if column not in partner or place(partner[column], visited):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(table)))


# --- inequalities and sets of real numbers ----------------------------------------------------------------------------


class Unordered(ValueError):
    """The order of two ends on the real line is unknown."""


def same_inequality(answer: Tokens, reference: Tokens) -> bool | None:
    """Whether two inequalities, or chains of them, differ only by a factor; None if undecided."""
    steps, reference_steps = _steps(answer), _steps(reference)
    if steps is None or reference_steps is None:
        return None
    rest = list(reference_steps)
    for step in steps:
        match = next((other for other in rest if _same_step(step, other)), None)
        if match is None:
            sides = (side for _, value in (*steps, *reference_steps) for side in (value.top, value.bottom))
            powers = [each for side in sides for _, each in side]
            is_linear = all(sum(n for _, n in each) <= 1 for each in powers)
            is_plain = all(name[0] != OPAQUE for each in powers for name, _ in each)
            return False if is_linear and is_plain else None
        rest.remove(match)
    return not rest


def _steps(tokens: Tokens) -> list[tuple[str, Value]] | None:
    """For each sign of a chain: `<`, `\\le` or `\\neq`, and the value that it compares with 0; None if unreadable."""
    sides, signs = split_relation(tokens)
    if not signs or not set(signs) <= set(_POSITIVE):
        return None
    try:
        values = [value_of(side) for side in sides]
    except (TooBigError, ZeroDivisionError):
        return None
    steps = []
    for sign, first, second in zip(signs, values, values[1:], strict=False):
        if first is None or second is None:
            return None
        low, high = (second, first) if sign in (">", r"\ge") else (first, second)
        steps.append((_POSITIVE[sign], high + -low))
    return steps


def _same_step(step: tuple[str, Value], reference: tuple[str, Value]) -> bool:
    (sign, mine), (other_sign, theirs) = step, reference
    if sign != other_sign or mine.bottom != theirs.bottom or len(mine.bottom) != 1 or not algebra.symbols(mine):
        return False
    factor = algebra.multiple(mine, theirs)
    return factor is not None and (factor > 0 or sign == r"\neq")


def same_set(answer: Node, reference: Node) -> bool:
    """Whether two structures are the same set of real numbers; False if the order of their ends is unknown.

    Empty sets are not the same: `x<1, x>2` is more likely a union without its `or`.
    """
    line = _Line()
    try:
        return _region_of(answer, line.place) == _region_of(reference, line.place) != []
    except (Unordered, TooBigError, ZeroDivisionError):
        return False


class _Line:
    """Positions of values on the real line. A symbolic value has a position only if it is the only finite value."""

    def __init__(self) -> None:
        self._places: list[tuple[Value, float]] = []
        self._symbolic = False

    def place(self, tokens: Tokens) -> float:
        """The position of a value; equal values share one. Raises Unordered."""
        if tokens in _ENDS:
            return _ENDS[tokens]
        value = value_of(tokens)
        if value is None:
            raise Unordered
        for other, place in self._places:
            if algebra.is_equal(other, value):
                return place
        near = algebra.approximate(value)
        self._symbolic |= near is None
        place = 0.0 if near is None else complex(near).real
        close = any(abs(place - other) <= _NEAR * max(1.0, abs(place)) for _, other in self._places)
        if close or (self._symbolic and self._places) or (near is not None and complex(near).imag):
            raise Unordered
        self._places.append((value, place))
        return place


def _region_of(node: Node, place: Callable[[Tokens], float]) -> Region:
    if node.kind == Kind.VALUE:
        if node.tokens == ("R",):
            return _WHOLE_LINE
        point = place(node.tokens)
        return [((point, 0), (point, 1))]
    if node.kind in INTERVALS.values() and len(node.items) == 2:
        ends = [place(item.tokens) for item in node.items]
        marks = (node.kind in _LOW_AFTER, node.kind in _HIGH_AFTER)
        low, high = ((end, int(mark and abs(end) != float("inf"))) for end, mark in zip(ends, marks, strict=True))
        return [(low, high)] if low < high else []
    parts = [_region_of(item, place) for item in node.items]
    if node.kind == Kind.WITHOUT:
        return _complement(_unite([*_complement(parts[0]), *parts[1]]))
    if node.kind == Kind.INTERSECTION:
        return _complement(_unite([piece for part in parts for piece in _complement(part)]))
    if node.kind in (Kind.UNION, Kind.LIST, Kind.SET):
        return _unite([piece for part in parts for piece in part])
    raise Unordered


def _unite(pieces: Region) -> Region:
    joined: Region = []
    for low, high in sorted(pieces):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def _complement(region: Region) -> Region:
    (start, end), pieces = _WHOLE_LINE[0], []
    for low, high in region:
        if start < low:
            pieces.append((start, low))
        start = high
    return [*pieces, (start, end)] if start < end else pieces
