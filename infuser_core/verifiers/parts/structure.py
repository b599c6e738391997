r"""Structure of an answer: a value, a relation, a list, a tuple, a matrix, cases, an interval or another set.

Inequalities with one unknown become intervals, so that `0 \le x < 1` and `[0,1)` are the same thing. Nothing is
compared here; kinds and numbers of parts are what the comparison goes by.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from infuser_core.verifiers.parts.tokens import COMMA, Tokens, match_of, split, tokens
from infuser_core.verifiers.parts.units import ALTERING


class Kind(StrEnum):
    """Kinds of answers."""

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
    """One answer, or one part of it."""

    kind: Kind
    """Kind of the answer."""
    tokens: Tokens = ()
    """Of a value, a claim or an inequality."""
    items: tuple["Node", ...] = ()
    """Parts in the order written."""
    unknown: str = ""
    """Name of the unknown where a relation told it."""


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
def read(found: Tokens, *, thousands: bool = True) -> Node:
    """The structure of the tokens. `thousands`: `1,250` alone is one number, not two."""
    found = _lower_words(found)
    found = found if thousands else _apart(found)
    parts = [part for part in split(found, _BETWEEN) if part]
    if len(parts) > 1:
        return _list(parts, thousands=thousands, alternatives=any(token in _OR for token in found))
    return _one(parts[0] if parts else found, thousands=thousands)


def parts_of(found: Tokens) -> tuple[list[Tokens], list[str]]:
    """The sides of a relation and the signs between them, outside all brackets."""
    sides, place, signs = split(found, _SIGNS), 0, []
    for side in sides[:-1]:
        place += len(side) + 1
        signs.append(found[place - 1])
    return sides, signs


def is_symbol(found: Tokens) -> bool:
    r"""Whether a left side only names the answer: `x_1`, `f(3)`, `P(A\cap B)`, `\angle ABC`, `|AB|`, `\text{Area}`."""
    words = {word for token in found if token[0] == '"' for word in token[1:].lower().split()}
    return not words & ALTERING and _NAME.fullmatch(" ".join(_without_indices(found))) is not None


def is_name(side: Node) -> bool:
    """Whether a side of an equation is a name, or names in brackets: `x`, `(x,y)`."""
    names = side.items if side.kind == Kind.TUPLE else (side,)
    return all(name.kind == Kind.VALUE and is_symbol(name.tokens) for name in names)


def without_brackets(found: Tokens) -> Tokens:
    """The tokens without parentheses that only group; a pair in brackets of its own is not the pair."""
    bare = found
    while len(bare) > 2 and bare[0] == "(" and match_of(bare, 0) == len(bare) - 1:
        if len(split(bare[1:-1], COMMA)) > 1:
            return found
        bare = bare[1:-1]
    return bare


def _lower_words(found: Tokens) -> Tokens:
    """The tokens with `\\text{ , and }` as the separator it is."""
    bare = ('"' + token[1:].strip(" ,").lower() if token[0] == '"' else token for token in found)
    return tuple(word if word in _BETWEEN else token for word, token in zip(bare, found, strict=True))


def _without_indices(found: Tokens) -> Tokens:
    out: list[str] = []
    place = 0
    while place < len(found):
        if found[place] == "_":
            place = max(match_of(found, place + 1), place + 1) + 1
            continue
        out.append(found[place])
        place += 1
    return tuple(out)


def _apart(found: Tokens) -> Tokens:
    """The tokens with `1,250` taken apart into two numbers; nobody writes the number zero as `000`."""
    out: list[str] = []
    for token in found:
        pieces = token.split(",") if token[0].isdigit() else [token]
        if any(piece[0] == "0" for piece in pieces[1:]):
            pieces = [token.replace(",", "")]
        for place, piece in enumerate(pieces):
            out.extend([",", piece] if place else [piece])
    return tuple(out)


def _list(parts: list[Tokens], *, thousands: bool, alternatives: bool) -> Node:
    items: list[Node] = []
    for part in parts:
        node = _one(part, thousands=thousands)
        items.extend(node.items if node.kind == Kind.LIST else [node])
    name = items[0].unknown
    excluded = [_excluded(item, name) for item in items]
    if items[0].kind == Kind.WITHOUT and name and not alternatives and all(excluded):
        # `x \ne 2, 3` and `x \ne 2, x \ne 3` exclude both.
        return _without(_REALS, [node for part in excluded for node in part], name)
    unknown = name if len({item.unknown for item in items}) == 1 else ""
    # `x<1 or x>4` is one union of intervals; `x>1, x<4` is where both hold.
    kind = Kind.LIST if not unknown else Kind.UNION if alternatives else Kind.INTERSECTION
    return Node(kind=kind, items=tuple(items), unknown=unknown)


def _one(found: Tokens, *, thousands: bool) -> Node:
    found = without_brackets(found)
    if found == (r"\emptyset",) or found == (r"\{", r"\}"):
        return _EMPTY
    if len(split(found, _SIGNS)) > 1:
        return _relation(found, thousands=thousands)
    for signs, kind in _COMPOSED:
        parts = split(found, signs)
        if len(parts) > 1:
            return Node(kind=kind, items=tuple(_one(part, thousands=thousands) for part in parts))
    whole, *removed = split(_with_difference(found), _MINUS)
    if whole and len(removed) == 1 and removed[0]:
        return _without(_one(whole, thousands=thousands), _elements(_one(removed[0], thousands=thousands)), "")
    if found[:1] == (r"\begin{cases}",) and found[-1:] == (r"\end{cases}",):
        return _cases(found[1:-1], thousands=thousands)
    if found[:1] != (r"\{",) and (r"\pm" in found or r"\mp" in found):
        both = (_signed(found, "+", "-"), _signed(found, "-", "+"))
        return Node(kind=Kind.LIST, items=tuple(Node(kind=Kind.VALUE, tokens=part) for part in both))
    if found and found[0] in _MATRICES and found[-1] == found[0].replace("begin", "end"):
        rows = [split(row, frozenset(["&"])) for row in split(found[1:-1], frozenset(["\\\\"])) if row]
        cells = [tuple(Node(kind=Kind.VALUE, tokens=cell) for cell in row) for row in rows]
        return Node(kind=Kind.MATRIX, items=tuple(Node(kind=Kind.ROW, items=row) for row in cells))
    return _bracketed(found) or Node(kind=Kind.VALUE, tokens=found)


def _without(whole: Node, removed: list[Node], unknown: str, found: Tokens = ()) -> Node:
    items = (whole, Node(kind=Kind.SET, items=tuple(removed)))
    return Node(kind=Kind.WITHOUT, tokens=found, items=items, unknown=unknown)


def _excluded(node: Node, unknown: str) -> tuple[Node, ...]:
    r"""The numbers that `x \ne 2` excludes, or the 3 after it; none for any other part of a list."""
    if node.kind == Kind.WITHOUT and node.unknown == unknown and node.items[0] == _REALS:
        return node.items[1].items
    return (node,) if node.kind == Kind.VALUE and not node.unknown else ()


def _elements(node: Node) -> list[Node]:
    return list(node.items) if node.kind in (Kind.SET, Kind.LIST) else [node]


def _with_difference(found: Tokens) -> Tokens:
    """The tokens with the minus of `R - \\{2\\}` as the difference of sets."""
    if r"\{" not in found:
        return found
    pairs = zip(found, (*found[1:], ""), strict=True)
    return tuple(r"\setminus" if pair == ("-", r"\{") else pair[0] for pair in pairs)


def _cases(found: Tokens, *, thousands: bool) -> Node:
    """Values with their conditions; a system of equations in the same braces is a list."""
    rows = [_case(row) for row in split(found, frozenset(["\\\\"])) if row]
    if not any(condition for _, condition in rows):
        return _list([value for value, _ in rows], thousands=thousands, alternatives=False)
    items = []
    for value, condition in rows:
        node = read(condition, thousands=thousands)
        claim = Node(kind=Kind.CLAIM, tokens=condition)
        # Words are no unit here: `n even` is another condition than `n odd`.
        node = claim if node.kind == Kind.VALUE or any(token[0] == '"' for token in condition) else node
        items.append(Node(kind=Kind.ROW, items=(_one(value, thousands=thousands), node)))
    return Node(kind=Kind.CASES, items=tuple(items))


def _case(row: Tokens) -> tuple[Tokens, Tokens]:
    """The value and the condition of one row."""
    value, *rest = split(row, frozenset(["&"]))
    condition = tuple(token for part in rest for token in part)
    words = [place for place, token in enumerate(value) if token[0] == '"' and _CONDITION.match(token[1:].lower())]
    if words and not condition:
        value, condition = value[: words[0]], value[words[0] :]
    while value[-1:] and value[-1] in COMMA:
        value = value[:-1]
    condition = tuple(part for token in condition for part in _without_filling(token))
    while condition and condition[-1] in (*COMMA, "."):
        condition = condition[:-1]
    return value, OTHERWISE if condition == ('"else',) else condition


def _without_filling(token: str) -> Tokens:
    """The words of a condition without `if` and `is`; a formula among them as its tokens."""
    if token[0] != '"':
        return (token,)
    text = " ".join(_FILLING.sub(" ", token[1:].lower()).split())
    return ('"' + text,) if re.search("[a-z]{2}", text) else tokens(text)


def _signed(found: Tokens, plus: str, minus: str) -> Tokens:
    signed = tuple({r"\pm": plus, r"\mp": minus}.get(token, token) for token in found)
    return signed[1:] if signed[0] == "+" else signed


def _bracketed(found: Tokens) -> Node | None:
    if len(found) < 3:
        return None
    first, last = found[0], found[-1]
    if (first, last) in (("]", "["), ("]", "]"), ("[", "[")) and any(token in COMMA for token in found):
        # ]0,1[ is how some countries write (0,1).
        first, last = {"]": "(", "[": "["}[first], {"[": ")", "]": "]"}[last]
        found = (first, *found[1:-1], last)
    if (first, last) in INTERVALS and match_of(found, 0) == len(found) - 1:
        parts = split(_apart(found[1:-1]), COMMA)
        if len(parts) == 1 and first == "(":
            return None
        items = tuple(_one(part, thousands=False) for part in parts)
        return Node(kind=INTERVALS[first, last], items=items)
    if first == r"\{" and last == r"\}" and match_of(found, 0) == len(found) - 1:
        builder = split(found[1:-1], frozenset(["|", ":"]))
        if len(builder) == 2:
            return read(builder[1], thousands=False)
        items = tuple(_one(part, thousands=False) for part in split(_apart(found[1:-1]), COMMA))
        spread = (part for item in items for part in (item.items if item.kind == Kind.LIST else (item,)))
        return Node(kind=Kind.SET, items=tuple(spread))
    if first == r"\langle" and last == r"\rangle":
        items = tuple(_one(part, thousands=False) for part in split(_apart(found[1:-1]), COMMA))
        return Node(kind=Kind.TUPLE, items=items)
    return None


def _relation(found: Tokens, *, thousands: bool) -> Node:
    sides, signs = parts_of(found)
    claim = Node(kind=Kind.CLAIM, tokens=found)
    if not all(sides):
        return claim
    if signs in ([r"\neq"], [r"\notin"]):
        unknown, value = sides if is_symbol(sides[0]) else sides[::-1]
        removed = _elements(_one(value, thousands=thousands))
        return _without(_REALS, removed, " ".join(unknown), found) if is_symbol(unknown) else claim
    if signs == [r"\in"] and is_name(_one(sides[0], thousands=thousands)):
        inner = _one(sides[1], thousands=thousands)
        return Node(kind=inner.kind, tokens=inner.tokens, items=inner.items, unknown=" ".join(sides[0]))
    if set(signs) <= {"=", r"\approx"}:
        marks = tuple(Node(kind=Kind.VALUE, tokens=(sign,)) for sign in signs)
        items = tuple(_one(side, thousands=thousands) for side in sides)
        return Node(kind=Kind.EQUATION, tokens=found, items=(*items, *marks))
    if set(signs) <= _ORDER:
        node = _interval(sides, signs)
        return replace(node, tokens=found) if node else claim
    return claim


def _interval(sides: list[Tokens], signs: list[str]) -> Node | None:
    """The interval that an inequality describes; None when there is no single unknown in it."""
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
    """`|x| < a` as an interval, `|x| > a` as the union of two."""
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
