r"""Two mathematical answers, cheapest decision first: same text, same structure, exact values, then a symbolic worker.

What a stage decides is final. A relation is no value: `42=43` holds two claims, and an answer counts only when each
member of a chain is the reference. Nothing here computes with a size that the answer chose.
"""

import re
from fractions import Fraction

from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts import algebra
from infuser_core.verifiers.parts.algebra import TooBigError
from infuser_core.verifiers.parts.grading import Finding, Stage, correct, unverified, wrong
from infuser_core.verifiers.parts.reading import value_of
from infuser_core.verifiers.parts.relations import COMPOSED, SETS, same_inequality, same_set
from infuser_core.verifiers.parts.structure import ORDERED, OTHERWISE, Kind, Node, is_name, read
from infuser_core.verifiers.parts.tokens import Tokens, tokens, too_big
from infuser_core.verifiers.parts.units import in_several_units
from infuser_core.verifiers.parts.values import Oracle, Rules, same_value, tex

MAX_PARTS = 32
"""Longest list that is matched part by part."""
MAX_MEMBERS = 4
"""Longest chain of equalities that counts as an answer."""
_ALL = r"all real(?:s| numbers)"
_BY_NAME = {
    rf"(?:[a-z] ?\\in ?)?\\(?:math(?:bb|bf) ?(?:\{{ ?R ?\}}|R)|R\b)|{_ALL}": r"(-\infty,\infty)",
    rf"{_ALL},? (?:except|other than|excluding)(?: for)? (\S.*)": r"R\setminus\{X\}",
    r"(?:there (?:is|are) )?no (?:real |integer )?solutions?(?: exists?)?|(?:the )?empty set|none": r"\emptyset",
    r"(?:(?:the|this) limit |it )?(?:does not exist|is undefined)|undefined|DNE|d\.n\.e|\\nexists": r"\text{undefined}",
}
_NAMES = {re.compile(pattern, re.IGNORECASE): meaning for pattern, meaning in _BY_NAME.items()}
_NAMED = re.compile(r"[RrSsEeNnUuDd](?:(?<=R)|(?i:eal|olution|mpty|one|xist|ndefined|ne|\.n\.e))")
"""A word of every name, or a capital R: few formulas have one, and only they are compared with the names."""
_WORDS = re.compile(r"\\(?:text|textbf|textrm|mathrm)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?([A-Z])\s*[.):]\s+\S.*", re.DOTALL)


def decide(answer: str, reference: str, rules: Rules, oracle: Oracle) -> Finding:
    """Whether an answer means the reference. Raises what the oracle raises, and nothing else."""
    if answer.strip() == reference.strip():
        return correct(Stage.TEXT)
    answer, reference = _by_name(answer, reference), _by_name(reference, reference)
    if too_big(answer) or too_big(reference):
        return unverified(Stage.LIMIT)
    try:
        found, wanted = tokens(answer), tokens(reference)
        if not found or not wanted:
            return wrong(Stage.UNREADABLE) if wanted else unverified(Stage.REFERENCE)
        if found == wanted or _same_letter(answer, reference, found, wanted):
            return correct(Stage.TEXT)
        return _Comparison(rules, oracle).decide(_exact(found) if rules.allows else found, _exact(wanted))
    except RecursionError:
        # Commands nest without brackets: a hundred roots of roots.
        return unverified(Stage.LIMIT)


class _Comparison:
    """One answer against one reference."""

    def __init__(self, rules: Rules, oracle: Oracle) -> None:
        self.rules, self.oracle = rules, oracle

    def decide(self, found: Tokens, wanted: Tokens) -> Finding:
        """The best outcome over the readings of `1,250`, as one number or two, that both sides allow."""
        alone = len(wanted) == 1
        first: Finding | None = None
        for gold_joined in _readings(wanted, only=not self.rules.multiple if alone else None):
            for joined in _readings(found, only=None):
                outcome = self.nodes(read(found, thousands=joined), read(wanted, thousands=gold_joined), 0)
                if outcome.verdict == Verdict.CORRECT:
                    return outcome
                first = first or outcome
        assert first is not None, "there is always one reading"
        return first

    def nodes(self, found: Node, wanted: Node, place: int) -> Finding:
        """Structures: `place` is the part's position in the reference, for its tolerance."""
        if Kind.EQUATION in (found.kind, wanted.kind):
            return self._equations(found, wanted, place)
        same = None if Kind.VALUE in (found.kind, wanted.kind) else same_inequality(found.tokens, wanted.tokens)
        if same or (found == wanted and found.kind == Kind.CLAIM):
            return correct(Stage.RELATION)
        if Kind.CLAIM in (found.kind, wanted.kind):
            both = found.kind == wanted.kind or OTHERWISE in (found.tokens, wanted.tokens)
            return unverified(Stage.RELATION) if both and same is None else wrong(Stage.RELATION)
        if found.unknown and wanted.unknown and found.unknown != wanted.unknown:
            return wrong(Stage.RELATION)
        if wanted.kind in SETS and {found.kind, wanted.kind} & COMPOSED and same_set(found, wanted):
            return correct(Stage.STRUCTURE)
        if found.kind == Kind.SET and len(found.items) == 1 and wanted.kind == Kind.VALUE:
            return self.nodes(found.items[0], wanted, place)
        if wanted.kind == Kind.SET and len(wanted.items) == 1 and found.kind != Kind.SET:
            return self.nodes(found, wanted.items[0], place)
        if found.kind == wanted.kind == Kind.VALUE:
            return same_value(found.tokens, wanted.tokens, place, self.rules, self.oracle)
        return self._parts(found, wanted, place)

    def _parts(self, found: Node, wanted: Node, place: int) -> Finding:
        found, wanted = _column(found), _column(wanted)
        kinds = {found.kind, wanted.kind}
        if kinds == {Kind.VALUE, Kind.LIST}:
            # `2 hours and 30 minutes`, which reads as a list.
            one, other = (_amount(node) for node in (found, wanted))
            if one and other:
                return same_value(one, other, place, self.rules, self.oracle)
        if kinds == {Kind.VALUE, Kind.TUPLE}:
            return _same_vector(found, wanted)
        if (kinds == {Kind.LIST, Kind.TUPLE} and not self.rules.interval) or (
            kinds == {Kind.LIST} and self.rules.ordered
        ):
            return self._in_order(found, wanted, place)
        if kinds <= {Kind.LIST, Kind.SET} or kinds in ({Kind.UNION}, {Kind.INTERSECTION}, {Kind.CASES}):
            return self._in_any_order(found, wanted, is_set=kinds not in ({Kind.LIST}, {Kind.CASES}))
        if len(kinds) == 1 and (found.kind in ORDERED or found.kind == Kind.WITHOUT):
            return self._in_order(found, wanted, place)
        return wrong(Stage.STRUCTURE)

    def _in_order(self, found: Node, wanted: Node, place: int) -> Finding:
        if len(found.items) != len(wanted.items):
            return wrong(Stage.STRUCTURE)
        start = place if wanted.kind in ORDERED else 0
        worst = correct(Stage.STRUCTURE)
        for step, (part, gold) in enumerate(zip(found.items, wanted.items, strict=True)):
            outcome = self.nodes(part, gold, start if wanted.kind in ORDERED else start + step)
            if outcome.verdict == Verdict.WRONG:
                return outcome
            worst = outcome if outcome.verdict == Verdict.UNVERIFIED else worst
        return worst

    def _in_any_order(self, found: Node, wanted: Node, *, is_set: bool) -> Finding:
        parts, golds = (tuple(dict.fromkeys(node.items)) if is_set else node.items for node in (found, wanted))
        if (len(parts) != len(golds) and not is_set) or max(len(parts), len(golds)) > MAX_PARTS:
            return wrong(Stage.STRUCTURE) if len(parts) != len(golds) else unverified(Stage.LIMIT)
        table = [[self.nodes(part, gold, place) for place, gold in enumerate(golds)] for part in parts]
        sure = [[cell.verdict == Verdict.CORRECT for cell in row] for row in table]
        open_ = [[cell.verdict != Verdict.WRONG for cell in row] for row in table]
        if _covers(sure, len(golds), is_set=is_set):
            return correct(Stage.STRUCTURE)
        if _covers(open_, len(golds), is_set=is_set):
            return next(cell for row in table for cell in row if cell.verdict == Verdict.UNVERIFIED)
        return wrong(Stage.STRUCTURE)

    # --- relations ---------------------------------------------------------------------------------------------------

    def _equations(self, found: Node, wanted: Node, place: int) -> Finding:
        mine, theirs = _each_name(found), _each_name(wanted)
        if mine and theirs and (found.kind == wanted.kind == Kind.EQUATION or Kind.LIST in (found.kind, wanted.kind)):
            return self._in_any_order(mine, theirs, is_set=False)
        if wanted.kind == Kind.EQUATION:
            signs, sides = _members(wanted)
            if r"\approx" in signs:
                # The exact side of `1/3 \approx 0.33`, the only one of `p \approx 3`.
                return self.nodes(found, sides[is_name(sides[0])], place)
            named = _named_value(sides)
            if found.kind != Kind.EQUATION:
                return wrong(Stage.RELATION) if named is None else self.nodes(found, named, place)
            return self._two_equations(found, wanted, place)
        signs, sides = _members(found)
        named = _named_value(sides)
        if named is not None and (signs == ["="] or self.rules.allows):
            return self.nodes(named, wanted, place)
        if is_name(sides[0]) and signs[0] == "=":
            signs, sides = signs[1:], sides[1:]
        return self._chain(signs, sides, wanted, place)

    def _chain(self, signs: list[str], sides: list[Node], wanted: Node, place: int) -> Finding:
        """Right only when every member is the reference, or a correct rounding of it behind an approximation sign."""
        if len(sides) > MAX_MEMBERS:
            return wrong(Stage.RELATION)
        worst = self.nodes(sides[0], wanted, place)
        for sign, side in zip(signs, sides[1:], strict=True):
            if worst.verdict != Verdict.CORRECT:
                break
            worst = self._rounded(side, wanted) if sign == r"\approx" else self.nodes(side, wanted, place)
        return wrong(Stage.RELATION) if worst.verdict == Verdict.WRONG else worst

    def _rounded(self, side: Node, wanted: Node) -> Finding:
        decimals = len(side.tokens[-1].partition(".")[2]) if side.tokens and side.tokens[-1][0].isdigit() else 0
        half = Fraction(1, 2 * 10**decimals)
        if side.kind != Kind.VALUE or wanted.kind != Kind.VALUE:
            return wrong(Stage.RELATION)
        rules = Rules(tolerances=(half,), unit=self.rules.unit, percent=self.rules.percent)
        return same_value(side.tokens, wanted.tokens, 0, rules, self.oracle)

    def _two_equations(self, found: Node, wanted: Node, place: int) -> Finding:
        left, right = _members(found)[1], _members(wanted)[1]
        if len(left) != 2 or len(right) != 2:
            return unverified(Stage.RELATION)
        names = [side for side in (left[0], right[0]) if is_name(side)]
        if len(names) == 2 and names[0] == names[1]:
            outcome = self.nodes(left[1], right[1], place)
            if outcome.verdict == Verdict.CORRECT:
                return outcome
        if any(side.kind != Kind.VALUE for side in (*left, *right)):
            return wrong(Stage.STRUCTURE)
        try:
            zeros = [[value_of(side.tokens) for side in pair] for pair in (left, right)]
            (a, b), (c, d) = zeros
            if a is not None and b is not None and c is not None and d is not None:
                same = algebra.proportional(a + -b, c + -d)
                if same is not None:
                    return correct(Stage.EXACT) if same else wrong(Stage.EXACT)
        except (TooBigError, ZeroDivisionError):
            return unverified(Stage.LIMIT)
        sides = {"answer": [tex(side.tokens) for side in left], "gold": [tex(side.tokens) for side in right]}
        return self.oracle({"ask": "equation", **sides})


def _by_name(text: str, reference: str) -> str:
    """The formula for what is written as a name, `no solution` or `DNE`; a bare `R` is one where the reference is."""
    if not _NAMED.search(text):
        return text
    bare, other = (
        " ".join(_WORDS.sub(r"\1", one).strip(" \n$").removesuffix(".").split()) for one in (text, reference)
    )
    bare = r"\mathbb{R}" if bare == "R" and next(iter(_NAMES)).fullmatch(other) else bare
    for name, meaning in _NAMES.items():
        if match := name.fullmatch(bare):
            return meaning.replace("X", match[match.lastindex or 0])
    return text


def _exact(found: Tokens) -> Tokens:
    """Without the sign that an approximate value may begin with."""
    return found[1:] if found[0] == r"\approx" and len(found) > 1 else found


def _same_letter(answer: str, reference: str, found: Tokens, wanted: Tokens) -> bool:
    """`C. because` for the reference `C`, and the other way round."""
    for text, other in ((answer, wanted), (reference, found)):
        letter = _LETTER.fullmatch(text.strip())
        if letter and other == (letter.group(1),):
            return True
    return False


def _readings(found: Tokens, *, only: bool | None) -> list[bool]:
    """Whether `1,250` is one number: yes, and also no where the text allows both."""
    ambiguous = any("," in token and token[0].isdigit() for token in found)
    if not ambiguous:
        return [True]
    return [True, False] if only is None else [only]


def _members(node: Node) -> tuple[list[str], list[Node]]:
    """The signs and the sides of an equation."""
    count = len(node.items) // 2
    return [mark.tokens[0] for mark in node.items[count + 1 :]], list(node.items[: count + 1])


def _named_value(sides: list[Node]) -> Node | None:
    """The value that an equation gives to a name, on either side; None when neither is one."""
    if len(sides) != 2:
        return None
    if is_name(sides[0]):
        return sides[1]
    return sides[0] if is_name(sides[1]) else None


def _each_name(node: Node) -> Node | None:
    """The equations of single names that `(x,y)=(1,2)`, `x=y=1` or a list of equations makes; None for others."""
    if node.kind == Kind.LIST:
        return node if all(item.kind == Kind.EQUATION for item in node.items) else None
    if node.kind != Kind.EQUATION:
        return None
    signs, (*names, value) = _members(node)
    if set(signs) != {"="} or not all(map(is_name, names)) or is_name(value):
        return None
    pairs = [(name, value) for name in names]
    if len(names) == 1 and names[0].kind == value.kind == Kind.TUPLE and len(names[0].items) == len(value.items):
        pairs = list(zip(names[0].items, value.items, strict=True))
    mark = Node(kind=Kind.VALUE, tokens=("=",))
    equations = tuple(Node(kind=Kind.EQUATION, items=(*pair, mark)) for pair in pairs)
    return Node(kind=Kind.LIST, items=equations) if len(equations) > 1 else None


def _amount(node: Node) -> Tokens | None:
    """The tokens of a value, or of a list that is one amount in several units; None for another list."""
    whole = node.tokens if node.kind == Kind.VALUE else tuple(token for item in node.items for token in item.tokens)
    return whole if node.kind == Kind.VALUE or in_several_units(whole) else None


def _column(node: Node) -> Node:
    """A column as the tuple of its entries."""
    is_column = node.kind == Kind.MATRIX and all(len(row.items) == 1 for row in node.items)
    return Node(kind=Kind.TUPLE, items=tuple(row.items[0] for row in node.items)) if is_column else node


def _same_vector(found: Node, wanted: Node) -> Finding:
    """A tuple against a sum of the unit vectors i, j and k."""
    one, many = (found, wanted) if found.kind == Kind.VALUE else (wanted, found)
    try:
        total, entries = value_of(one.tokens), [value_of(item.tokens) for item in many.items]
        parts = algebra.components(total, "ijk"[: max(len(entries), 2)]) if total else None
    except (TooBigError, ZeroDivisionError):
        return unverified(Stage.LIMIT)
    if parts is None or len(parts) != len(entries):
        return wrong(Stage.STRUCTURE)
    same = [None if entry is None else algebra.same(part, entry) for part, entry in zip(parts, entries, strict=True)]
    if False in same:
        return wrong(Stage.EXACT)
    return unverified(Stage.OPEN) if None in same else correct(Stage.EXACT)


def _covers(table: list[list[bool]], width: int, *, is_set: bool) -> bool:
    """Whether rows and columns match one to one, or, for sets, whether each has a partner."""
    if is_set:
        return all(map(any, table)) and all(any(row[column] for row in table) for column in range(width))
    partner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fits in enumerate(table[row]):
            if fits and column not in tried:
                tried.add(column)
                if column not in partner or place(partner[column], tried):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(table)))
