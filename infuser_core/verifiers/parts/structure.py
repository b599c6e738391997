r"""Parse the structure of a mathematical answer: value, relation, list, tuple, matrix, cases, interval or other set.

Inequalities with one unknown become intervals: `0 \le x < 1` and `[0,1)` are the same.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from infuser_core.verifiers.parts.tokens import COMMA, Tokens, closing_index, split_at, tokenize
from infuser_core.verifiers.parts.units import ALTERING


class Kind(StrEnum):
    """Kinds of answers and their parts. A claim is a relation that is not analysed further, such as a congruence."""

    VALUE = "value"
    LIST = "list"
    TUPLE = "(,)"
    CLOSED = "[,]"
    OPEN_LEFT = "(,]"
    OPEN_RIGHT = "[,)"
    SET = "{,}"
    UNION = "union"
    INTERSECTION = "intersection"
    WITHOUT = "\\"
    CASES = "cases"
    MATRIX = "matrix"
    ROW = "row"
    EQUATION = "="
    CLAIM = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An answer or a part of one."""

    kind: Kind
    tokens: Tokens = ()
    """Tokens of a value or a relation."""
    items: tuple["Node", ...] = ()
    unknown: str = ""
    """Name of the unknown, if a relation gives it."""


ORDERED = frozenset([Kind.TUPLE, Kind.CLOSED, Kind.OPEN_LEFT, Kind.OPEN_RIGHT, Kind.ROW, Kind.MATRIX])
INTERVALS = {("(", ")"): Kind.TUPLE, ("[", "]"): Kind.CLOSED, ("(", "]"): Kind.OPEN_LEFT, ("[", ")"): Kind.OPEN_RIGHT}
_OR = frozenset(['"or', "or", r"\lor", r"\vee"])
_BETWEEN = frozenset([",", ";", '"and', "and"]) | _OR
_ORDER = frozenset(["<", ">", r"\le", r"\ge"])
_CLAIMS = frozenset([r"\to", r"\neq", r"\equiv", r"\notin", r"\subset", r"\subseteq", r"\mod", r"\pmod", r"\bmod"])
_SIGNS = frozenset(["=", r"\approx", r"\in"]) | _ORDER | _CLAIMS
_INFINITY = (r"\infty",)
_MATRICES = frozenset(
    [r"\begin{pmatrix}", r"\begin{bmatrix}", r"\begin{matrix}", r"\begin{array}", r"\begin{smallmatrix}"]
)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_EMPTY = Node(kind=Kind.SET)
_REALS = Node(kind=Kind.VALUE, tokens=("R",))
_COMPOSED = ((frozenset([r"\cup"]), Kind.UNION), (frozenset([r"\cap"]), Kind.INTERSECTION))
_MINUS = frozenset([r"\setminus", r"\backslash"])
OTHERWISE = ('"otherwise',)
_CONDITION = re.compile(r"(?:if|for|when|where|otherwise|else)\b")
_FILLING = re.compile(r"\b(?:if|for|when|where|is|are)\b|[,;.]")
_LETTERS = (
    r"(?:[A-Za-z]{1,4}|\"[A-Za-z ]+|\\(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|rho|sigma"
    r"|tau|phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega|ell))"
)
_ARGUMENT = rf"(?:{_LETTERS}|\d+)"
_NAME = re.compile(
    rf"\\(?:angle|triangle|measuredangle|Delta) {_LETTERS}|\| {_LETTERS} \||\\overline {{ {_LETTERS} }}"
    rf"|{_LETTERS}(?: ')*(?: \( {_ARGUMENT}(?: (?:[,|]|\\mid|\\cap|\\cup) {_ARGUMENT})* \))?"
)


@lru_cache(maxsize=4096)
def parse_answer(tokens: Tokens, *, thousands: bool = True) -> Node:
    """The structure of an answer. `thousands`: `1,250` is one number, not two."""
    # `\text{ , and }` is the separator `and`.
    words = ('"' + token[1:].strip(" ,").lower() if token[0] == '"' else token for token in tokens)
    tokens = tuple(word if word in _BETWEEN else token for word, token in zip(words, tokens, strict=True))
    tokens = tokens if thousands else _split_thousands(tokens)
    parts = [part for part in split_at(tokens, _BETWEEN) if part]
    if len(parts) > 1:
        return _parse_list(parts, thousands=thousands, alternatives=any(token in _OR for token in tokens))
    return _parse_part(parts[0] if parts else tokens, thousands=thousands)


def split_relation(tokens: Tokens) -> tuple[list[Tokens], list[str]]:
    """The sides of a relation and the signs between them that are outside all brackets."""
    sides, place, signs = split_at(tokens, _SIGNS), 0, []
    for side in sides[:-1]:
        place += len(side) + 1
        signs.append(tokens[place - 1])
    return sides, signs


def is_symbol(tokens: Tokens) -> bool:
    r"""Whether a side only names a quantity: `x_1`, `f(3)`, `P(A\cap B)`, `\angle ABC`, `|AB|`, `\text{Area}`."""
    words = {word for token in tokens if token[0] == '"' for word in token[1:].lower().split()}
    return not words & ALTERING and _NAME.fullmatch(" ".join(_drop_indices(tokens))) is not None


def is_name(side: Node) -> bool:
    """Whether a side of an equation is a name, or names in brackets: `x`, `(x,y)`."""
    names = side.items if side.kind == Kind.TUPLE else (side,)
    return all(name.kind == Kind.VALUE and is_symbol(name.tokens) for name in names)


def _strip_parentheses(tokens: Tokens) -> Tokens:
    """Strip outer parentheses that only group. `((1,2))` is unchanged: it is not a pair."""
    bare = tokens
    while len(bare) > 2 and bare[0] == "(" and closing_index(bare, 0) == len(bare) - 1:
        if len(split_at(bare[1:-1], COMMA)) > 1:
            return tokens
        bare = bare[1:-1]
    return bare


def _drop_indices(tokens: Tokens) -> Tokens:
    out: list[str] = []
    index = 0
    while index < len(tokens):
        if tokens[index] == "_":
            index = max(closing_index(tokens, index + 1), index + 1) + 1
            continue
        out.append(tokens[index])
        index += 1
    return tuple(out)


def _split_thousands(tokens: Tokens) -> Tokens:
    """Split `1,250` into two numbers; `1,050` becomes 1050, because no number starts with a zero."""
    out: list[str] = []
    for token in tokens:
        pieces = token.split(",") if token[0].isdigit() else [token]
        if any(piece[0] == "0" for piece in pieces[1:]):
            pieces = [token.replace(",", "")]
        for index, piece in enumerate(pieces):
            out.extend([",", piece] if index else [piece])
    return tuple(out)


def _parse_list(parts: list[Tokens], *, thousands: bool, alternatives: bool) -> Node:
    items: list[Node] = []
    for part in parts:
        node = _parse_part(part, thousands=thousands)
        items.extend(node.items if node.kind == Kind.LIST else [node])
    unknown = items[0].unknown
    exclusions = []
    for item in items:
        if item.kind == Kind.WITHOUT and item.unknown == unknown and item.items[0] == _REALS:
            exclusions.append(item.items[1].items)
        else:
            exclusions.append((item,) if item.kind == Kind.VALUE and not item.unknown else ())
    if items[0].kind == Kind.WITHOUT and unknown and not alternatives and all(exclusions):
        # `x \ne 2, 3` and `x \ne 2, x \ne 3` exclude both numbers.
        return _without_node(_REALS, [node for part in exclusions for node in part], unknown)
    common = unknown if len({item.unknown for item in items}) == 1 else ""
    # `x<1 or x>4` is a union of intervals, `x>1, x<4` an intersection.
    kind = Kind.LIST if not common else Kind.UNION if alternatives else Kind.INTERSECTION
    return Node(kind=kind, items=tuple(items), unknown=common)


def _parse_part(tokens: Tokens, *, thousands: bool) -> Node:
    tokens = _strip_parentheses(tokens)
    if tokens == (r"\emptyset",) or tokens == (r"\{", r"\}"):
        return _EMPTY
    if len(split_at(tokens, _SIGNS)) > 1:
        return _parse_relation(tokens, thousands=thousands)
    for signs, kind in _COMPOSED:
        parts = split_at(tokens, signs)
        if len(parts) > 1:
            return Node(kind=kind, items=tuple(_parse_part(part, thousands=thousands) for part in parts))
    if r"\{" in tokens:
        # The minus of `R - \{2\}` is a set difference.
        pairs = zip(tokens, (*tokens[1:], ""), strict=True)
        difference = tuple(r"\setminus" if pair == ("-", r"\{") else pair[0] for pair in pairs)
    else:
        difference = tokens
    whole, *removed = split_at(difference, _MINUS)
    if whole and len(removed) == 1 and removed[0]:
        excluded = _elements(_parse_part(removed[0], thousands=thousands))
        return _without_node(_parse_part(whole, thousands=thousands), excluded, "")
    if tokens[:1] == (r"\begin{cases}",) and tokens[-1:] == (r"\end{cases}",):
        return _parse_cases(tokens[1:-1], thousands=thousands)
    if tokens[:1] != (r"\{",) and (r"\pm" in tokens or r"\mp" in tokens):
        both = (_choose_signs(tokens, "+", "-"), _choose_signs(tokens, "-", "+"))
        return Node(kind=Kind.LIST, items=tuple(Node(kind=Kind.VALUE, tokens=part) for part in both))
    if tokens and tokens[0] in _MATRICES and tokens[-1] == tokens[0].replace("begin", "end"):
        rows = [split_at(row, frozenset(["&"])) for row in split_at(tokens[1:-1], frozenset(["\\\\"])) if row]
        cells = [tuple(Node(kind=Kind.VALUE, tokens=cell) for cell in row) for row in rows]
        return Node(kind=Kind.MATRIX, items=tuple(Node(kind=Kind.ROW, items=row) for row in cells))
    return _parse_brackets(tokens) or Node(kind=Kind.VALUE, tokens=tokens)


def _without_node(whole: Node, removed: list[Node], unknown: str, tokens: Tokens = ()) -> Node:
    items = (whole, Node(kind=Kind.SET, items=tuple(removed)))
    return Node(kind=Kind.WITHOUT, tokens=tokens, items=items, unknown=unknown)


def _elements(node: Node) -> list[Node]:
    return list(node.items) if node.kind in (Kind.SET, Kind.LIST) else [node]


def _parse_cases(tokens: Tokens, *, thousands: bool) -> Node:
    """Values with their conditions; a list if no row has a condition, as in a system of equations."""
    rows = [_parse_case(row) for row in split_at(tokens, frozenset(["\\\\"])) if row]
    if not any(condition for _, condition in rows):
        return _parse_list([value for value, _ in rows], thousands=thousands, alternatives=False)
    items = []
    for value, condition in rows:
        node = parse_answer(condition, thousands=thousands)
        claim = Node(kind=Kind.CLAIM, tokens=condition)
        # Words are not ignored here as units are: the conditions `n even` and `n odd` differ.
        node = claim if node.kind == Kind.VALUE or any(token[0] == '"' for token in condition) else node
        items.append(Node(kind=Kind.ROW, items=(_parse_part(value, thousands=thousands), node)))
    return Node(kind=Kind.CASES, items=tuple(items))


def _parse_case(row: Tokens) -> tuple[Tokens, Tokens]:
    """The value and the condition of one row."""
    value, *rest = split_at(row, frozenset(["&"]))
    condition = tuple(token for part in rest for token in part)
    conditions = [index for index, token in enumerate(value) if token[0] == '"' and _CONDITION.match(token[1:].lower())]
    if conditions and not condition:
        value, condition = value[: conditions[0]], value[conditions[0] :]
    while value[-1:] and value[-1] in COMMA:
        value = value[:-1]
    words: list[str] = []
    for token in condition:
        # Drop `if` and `is`; a text that contains only a formula is tokenized as a formula.
        text = " ".join(_FILLING.sub(" ", token[1:].lower()).split()) if token[0] == '"' else ""
        if token[0] != '"':
            words.append(token)
        elif re.search("[a-z]{2}", text):
            words.append('"' + text)
        else:
            words.extend(tokenize(text))
    condition = tuple(words)
    while condition and condition[-1] in (*COMMA, "."):
        condition = condition[:-1]
    return value, OTHERWISE if condition == ('"else',) else condition


def _choose_signs(tokens: Tokens, plus: str, minus: str) -> Tokens:
    signed = tuple({r"\pm": plus, r"\mp": minus}.get(token, token) for token in tokens)
    return signed[1:] if signed[0] == "+" else signed


def _parse_brackets(tokens: Tokens) -> Node | None:
    if len(tokens) < 3:
        return None
    first, last = tokens[0], tokens[-1]
    if (first, last) in (("]", "["), ("]", "]"), ("[", "[")) and any(token in COMMA for token in tokens):
        # Some countries write (0,1) as ]0,1[.
        first, last = {"]": "(", "[": "["}[first], {"[": ")", "]": "]"}[last]
        tokens = (first, *tokens[1:-1], last)
    if (first, last) in INTERVALS and closing_index(tokens, 0) == len(tokens) - 1:
        parts = split_at(_split_thousands(tokens[1:-1]), COMMA)
        if len(parts) == 1 and first == "(":
            return None
        items = tuple(_parse_part(part, thousands=False) for part in parts)
        return Node(kind=INTERVALS[first, last], items=items)
    if first == r"\{" and last == r"\}" and closing_index(tokens, 0) == len(tokens) - 1:
        builder = split_at(tokens[1:-1], frozenset(["|", ":"]))
        if len(builder) == 2:
            return parse_answer(builder[1], thousands=False)
        items = tuple(_parse_part(part, thousands=False) for part in split_at(_split_thousands(tokens[1:-1]), COMMA))
        spread = (part for item in items for part in (item.items if item.kind == Kind.LIST else (item,)))
        return Node(kind=Kind.SET, items=tuple(spread))
    if first == r"\langle" and last == r"\rangle":
        items = tuple(_parse_part(part, thousands=False) for part in split_at(_split_thousands(tokens[1:-1]), COMMA))
        return Node(kind=Kind.TUPLE, items=items)
    return None


def _parse_relation(tokens: Tokens, *, thousands: bool) -> Node:
    sides, signs = split_relation(tokens)
    claim = Node(kind=Kind.CLAIM, tokens=tokens)
    if not all(sides):
        return claim
    if signs in ([r"\neq"], [r"\notin"]):
        unknown, value = sides if is_symbol(sides[0]) else sides[::-1]
        removed = _elements(_parse_part(value, thousands=thousands))
        return _without_node(_REALS, removed, " ".join(unknown), tokens) if is_symbol(unknown) else claim
    if signs == [r"\in"] and is_name(_parse_part(sides[0], thousands=thousands)):
        inner = _parse_part(sides[1], thousands=thousands)
        return Node(kind=inner.kind, tokens=inner.tokens, items=inner.items, unknown=" ".join(sides[0]))
    if set(signs) <= {"=", r"\approx"}:
        marks = tuple(Node(kind=Kind.VALUE, tokens=(sign,)) for sign in signs)
        items = tuple(_parse_part(side, thousands=thousands) for side in sides)
        return Node(kind=Kind.EQUATION, tokens=tokens, items=(*items, *marks))
    if set(signs) <= _ORDER:
        node = _parse_interval(sides, signs)
        return replace(node, tokens=tokens) if node else claim
    return claim


def _parse_interval(sides: list[Tokens], signs: list[str]) -> Node | None:
    """The interval that an inequality describes; None if it does not bound one name."""
    if len(sides) == 2 and _is_distance(sides[1]) and not _is_distance(sides[0]):
        sides, signs = sides[::-1], [_FLIPPED[signs[0]]]
    if len(sides) == 2 and _is_distance(sides[0]) and sides[1][:1] != ("-",):
        return _around_zero(sides[0][1], sides[1], signs[0])
    if len(sides) == 2 and is_symbol(sides[1]) and not is_symbol(sides[0]):
        sides, signs = [sides[1], sides[0]], [_FLIPPED[signs[0]]]
    if len(sides) == 3 and is_symbol(sides[1]):
        if signs[0] in (">", r"\ge"):
            sides, signs = sides[::-1], [_FLIPPED[sign] for sign in reversed(signs)]
        if signs[0] not in ("<", r"\le") or signs[1] not in ("<", r"\le"):
            return None
        low, high, unknown = sides[0], sides[2], sides[1]
        closed = (signs[0] == r"\le", signs[1] == r"\le")
    elif len(sides) == 2 and is_symbol(sides[0]):
        below = signs[0] in ("<", r"\le")
        low, high = (("-", *_INFINITY), sides[1]) if below else (sides[1], _INFINITY)
        closed = (signs[0] == r"\ge", signs[0] == r"\le")
        unknown = sides[0]
    else:
        return None
    kind = INTERVALS["[" if closed[0] else "(", "]" if closed[1] else ")"]
    ends = (Node(kind=Kind.VALUE, tokens=low), Node(kind=Kind.VALUE, tokens=high))
    return Node(kind=kind, items=ends, unknown=" ".join(unknown))


def _is_distance(side: Tokens) -> bool:
    return len(side) == 3 and side[0] == side[2] == "|" and len(side[1]) == 1 and side[1].isalpha()


def _around_zero(unknown: str, limit: Tokens, sign: str) -> Node:
    """The interval of `|x| < a`, or the union of two intervals of `|x| > a`."""
    below, above = ("-", "(", *limit, ")"), limit
    closed = sign in (r"\le", r"\ge")
    ends = [Node(kind=Kind.VALUE, tokens=end) for end in (("-", *_INFINITY), below, above, _INFINITY)]
    opening, closing = ("[", "]") if closed else ("(", ")")
    if sign in ("<", r"\le"):
        return Node(kind=INTERVALS[opening, closing], items=tuple(ends[1:3]), unknown=unknown)
    parts = (
        Node(kind=INTERVALS["(", closing], items=tuple(ends[:2]), unknown=unknown),
        Node(kind=INTERVALS[opening, ")"], items=tuple(ends[2:]), unknown=unknown),
    )
    return Node(kind=Kind.UNION, items=parts, unknown=unknown)
