"""Displayed formulas told from the lines of the sentence that they stand in.

A book sets a formula free of both edges of its column, often without a full stop behind it. Joined with the line below
it would read as one statement: "m = 1 mod n Now what suits our need".
"""

import re

from corpus.read.lines import Line

RELATION = re.compile(
    r"[=<>\u2260\u2264\u2265\u2261\u2248\u223c\u2243\u2245\u221d\u2208\u2286\u2282\u2192\u21d2\u21d4\u2190\u21a6]"
)
"""Signs between the sides of a statement."""
OPERATOR = re.compile(rf"{RELATION.pattern[:-1]}+*/,(\[{{\u2212\u00b7\u00d7\u00b1\u2227\u2228\u222a\u2229-]")
"""Signs that a formula goes on behind, or that go on with one."""
FREE = 1.5
"""Room on both sides of a displayed line, in units of the font size."""
SENTENCE = re.compile(r"[A-Z](?:[a-z]+|(?= [a-z]))")
"""The first word of a sentence."""


def begins_display(above: Line, line: Line) -> bool:
    """Whether a line below one of text is a formula in the middle of its column.

    One that goes on with the formula above it begins none.
    """
    return line.x0 > above.x0 + above.size and _is_display(line, centred=True) and not _is_display(above)


def ends_display(above: Line, line: Line) -> bool:
    """Whether a formula without a full stop ends above a line: another one, or one that begins a sentence."""
    if not _is_display(above) or OPERATOR.search(above.text[-1:]):
        return False
    return not OPERATOR.match(line.text) if _is_display(line) else bool(SENTENCE.match(line.text))


def _is_display(line: Line, *, centred: bool = False) -> bool:
    """Whether a line stands free of both edges of its column and states a relation."""
    before, behind = line.x0 - line.left, line.margin - line.x1
    free = min(before, behind) > FREE * line.size and (not centred or abs(before - behind) < line.size)
    return free and bool(RELATION.search(line.text))
