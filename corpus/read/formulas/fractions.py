"""Conversion of printed fractions, roots and overlines to LaTeX, by the rules (lines) drawn between and above text."""

import re
from collections.abc import Sequence
from dataclasses import replace

from corpus.read.formulas.scripts import LEVEL, SMALLER, assemble_scripts
from corpus.read.formulas.signs import EXTENSION, GARBLED
from corpus.read.printed import Piece, Rule

SQUARE_ROOT = "\u221a"
FIT = 0.6
"""Largest difference of a fraction bar's length from the wider of its two parts, in units of the font size."""
SLACK = 1.5
"""Points by which a numerator, denominator or radicand may stick out beyond its rule."""
NUMERATOR = (0.05, 1.5)
"""Range of the distance of a numerator's baseline from the bar, in units of the font size."""
DENOMINATOR = (0.5, 1.7)
SCRIPT = 0.6
"""Largest distance between the baselines of two pieces of one numerator or denominator, in units of the font size."""
SCRIPTED = 1.0
"""As SCRIPT, if one of the pieces is a large sign, or a script of a bracket, which may be taller than its line."""
RADICAND = (0.4, 1.8)
OVERLINE = (0.5, 1.05)
INDEX = 0.75
"""Largest font size of a root's index, as a share of the radicand's."""
JOINED = 1.0
"""Largest distance at which a bar touches its root's sign, points."""
AXIS = 0.25
"""Height of a fraction bar above the baseline of its line, in units of the font size."""
WORD = re.compile(r"(?<![\\\w])[^\W\d_]{3,}")
NOTE = re.compile(r"\[\^(\w+)\]")
MAX_WORDS = 3
"""Most words in a numerator or denominator; lines of prose above and below a rule have more."""
WORDS = re.compile(r"^[^\W\d_]{3,}(?:[ -][^\W\d_]{2,})*$")


def assemble_fractions(pieces: Sequence[Piece], rules: Sequence[Rule]) -> list[Piece]:
    """Join the pieces of each fraction, root and overline into one piece of LaTeX; the innermost first."""
    result = list(pieces)
    for rule in sorted(rules, key=lambda rule: rule.x1 - rule.x0):
        near = [piece for piece in result if rule.x0 - SLACK <= piece.x0 and piece.x1 <= rule.x1 + SLACK]
        if near:
            result = (
                _assemble_root(result, near, rule, rules)
                or _assemble_fraction(result, near, rule)
                or _assemble_overline(result, near, rule)
                or result
            )
    return result


def _assemble_root(pieces: list[Piece], near: Sequence[Piece], rule: Rule, rules: Sequence[Rule]) -> list[Piece] | None:
    """Join the pieces of the root whose bar is this rule; None if no root sign is at the rule's left end."""
    signs = (p for p in pieces if p.text.endswith(SQUARE_ROOT) and _meets(p, rule))
    sign = next((p for p in signs if rule is _bar(p, rules)), None)
    if sign is None:
        return None
    least, most = RADICAND[0], max(RADICAND[1], (rule.y - sign.y) / sign.size + 0.6)
    under = [p for p in near if p is not sign and least * p.size < rule.y - p.y < most * p.size]
    if not under:
        return None
    under = _add_scripts(under, [p for p in near if p is not sign], rule)
    size, base = max((p.size, p.y) for p in under)
    # The index of a root is a small text above the left part of the root sign.
    over = [p for p in pieces if p.size < INDEX * size and 0.2 * size < p.y - base < size]
    index = [p for p in over if sign.x1 - size < p.x0 and p.x1 < sign.x1]
    degree = f"[{_text(index)}]" if index else ""
    root = f"{sign.text[:-1].strip()}\\sqrt{degree}{{{_text(under)}}}"
    return _replace(pieces, [sign, *index, *under], _formula(under, root, min(sign.x0, rule.x0), rule.x1, base, size))


def _assemble_overline(pieces: list[Piece], near: Sequence[Piece], rule: Rule) -> list[Piece] | None:
    """Join the pieces below a rule that overlines them from end to end; None if it covers no formula."""
    under = [p for p in near if OVERLINE[0] * p.size < rule.y - p.y < OVERLINE[1] * p.size]
    text = _text(under) if under else ""
    if (
        not under
        or WORD.search(text)
        or rule.x1 - rule.x0 > max(p.x1 for p in under) - min(p.x0 for p in under) + SLACK
    ):
        return None
    size, base = max((p.size, p.y) for p in under)
    return _replace(pieces, under, _formula(under, f"\\overline{{{text}}}", rule.x0, rule.x1, base, size))


def _meets(sign: Piece, rule: Rule) -> bool:
    """Whether a rule begins at the upper end of a root sign; the position of a tall sign is its middle."""
    least, most = (0.5, 2.6) if EXTENSION.search(sign.font) else (-0.3, 1.3)
    return abs(sign.x1 - rule.x0) < 0.35 * sign.size and least * sign.size < rule.y - sign.y < most * sign.size


def _bar(sign: Piece, rules: Sequence[Rule]) -> Rule:
    """The rule that begins nearest to a root sign; of several, the lowest, as the line above may have a fraction."""
    candidates = [rule for rule in rules if _meets(sign, rule)]
    return min(candidates, key=lambda rule: (max(abs(sign.x1 - rule.x0), JOINED), rule.y))


def _assemble_fraction(pieces: list[Piece], near: Sequence[Piece], rule: Rule) -> list[Piece] | None:
    """Join the pieces of the fraction whose bar is this rule; None if the rule is not a fraction bar."""
    over = [p for p in near if NUMERATOR[0] * p.size < p.y - rule.y < NUMERATOR[1] * p.size]
    # A fraction or root within it makes a denominator taller.
    under = [p for p in near if DENOMINATOR[0] < (rule.y - p.y) / p.size < DENOMINATOR[1] + ("\\" in p.text)]
    over, under = (_add_scripts(_nearest_line(part, rule), near, rule) for part in (over, under))
    if not over or not under or all(p.mono for p in (*over, *under)):
        return None
    spans = [(min(p.x0 for p in part), max(p.x1 for p in part)) for part in (over, under)]
    size = max(p.size for p in (*over, *under))
    is_centred = all(abs(left + right - rule.x0 - rule.x1) <= size for left, right in spans)
    if not is_centred or rule.x1 - rule.x0 - max(right - left for left, right in spans) > FIT * size:
        return None
    # Cells of a table are apart, and the text of a footnote below a line continues after the line's end.
    beside = [p for p in pieces if any(abs(p.y - q.y) < 0.05 * q.size for q in under)]
    if any(map(_has_gap, (over, under))) or any(abs(p.x0 - rule.x1) < 0.12 * p.size for p in beside):
        return None
    top, bottom = _text(over), _text(under)
    if (WORDS.match(top) and WORDS.match(bottom)) or max(len(WORD.findall(part)) for part in (top, bottom)) > MAX_WORDS:
        return None
    # The rule of a calculation may begin within the number below it.
    heads = [p for p in beside if p.x0 < rule.x0 - SLACK and any(abs(q.x0 - p.x1) < 0.05 * q.size for q in under)]
    mark = GARBLED * any(p.font == under[0].font for p in heads)
    # A large sign has the height of its own font, by which a script next to the fraction may seem to be level.
    neighbours = [
        p for p in pieces if _is_next_to(p, rule) and not (p in over or p in under or EXTENSION.search(p.font))
    ]
    size, base = max(((p.size, p.y) for p in neighbours), default=(size, round(rule.y - AXIS * size, 2)))
    fraction = f"\\frac{{{top}}}{{{bottom}}}{mark}"
    return _replace(pieces, [*over, *under], _formula(over, fraction, rule.x0, rule.x1, base, size))


def _has_gap(part: Sequence[Piece]) -> bool:
    return any(piece.x0 - max(p.x1 for p in part[:place]) > piece.size for place, piece in enumerate(part) if place)


def _add_scripts(part: list[Piece], near: Sequence[Piece], rule: Rule) -> list[Piece]:
    """Add the scripts of a numerator, denominator or radicand, which may be further from the rule than their base."""
    base = max(part, key=lambda p: p.size, default=None)
    if base is None:
        return part
    ids = {id(piece) for piece in part}

    def belongs(piece: Piece) -> bool:
        is_close = (piece.y > rule.y) == (base.y > rule.y) and abs(piece.y - base.y) < SCRIPT * base.size
        return id(piece) in ids or (is_close and piece.size < SMALLER * base.size)

    return [piece for piece in near if belongs(piece)]


def _nearest_line(part: Sequence[Piece], rule: Rule) -> list[Piece]:
    """Pieces of the line nearest to the rule; those of the next line of text do not belong to the fraction."""
    # The position of a large sign or a tall bracket is its middle.
    line = min(part, key=lambda p: (bool(EXTENSION.search(p.font)), abs(p.y - rule.y) - p.size), default=None)
    if line is None:
        return []
    # A script of a tall bracket may be nearer to the rule than its line.
    base = next((p for p in part if line.size < SMALLER * p.size and abs(line.x0 - p.x1) < SLACK), None)
    if base is not None:
        return [p for p in part if abs(p.y - base.y) < SCRIPTED * base.size]
    return [p for p in part if abs(p.y - line.y) < (SCRIPTED if EXTENSION.search(p.font) else SCRIPT) * line.size]


def _is_next_to(piece: Piece, rule: Rule) -> bool:
    """Whether a piece is next to a fraction bar, on the line that contains the fraction."""
    is_level = abs(piece.y + AXIS * piece.size - rule.y) < 0.12 * piece.size
    is_outside = piece.x1 < rule.x0 + 1 or piece.x0 > rule.x1 - 1
    return is_level and is_outside and max(rule.x0 - piece.x1, piece.x0 - rule.x1) < 2 * piece.size


def _text(pieces: Sequence[Piece]) -> str:
    joined = assemble_scripts(pieces)
    # A script as large as its base, or of the next line.
    is_stray = max(p.y for p in joined) - min(p.y for p in joined) > LEVEL * max(p.size for p in joined)
    # A fraction has no footnote markers: a number that looks like one is an exponent.
    return NOTE.sub(r"^{\1}", " ".join(piece.text for piece in joined)) + GARBLED * is_stray


def _formula(parts: Sequence[Piece], text: str, x0: float, x1: float, y: float, size: float) -> Piece:
    return replace(parts[0], text=text, x0=x0, x1=x1, y=y, size=size, run=True, slanted=False, mono=False)


def _replace(pieces: Sequence[Piece], parts: Sequence[Piece], whole: Piece) -> list[Piece]:
    """Replace the pieces `parts` by the piece `whole`, at the index of the first."""
    ids = {id(piece) for piece in parts}
    first = next(place for place, piece in enumerate(pieces) if id(piece) in ids)
    others = [piece for piece in pieces[first:] if id(piece) not in ids]
    return [*pieces[:first], whole, *others]
