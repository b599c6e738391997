"""Detection of displayed formulas, so that they are separated from the lines of the sentence around them.

A book sets a formula away from both edges of its column, often without a full stop. Joined with the line below, it
would read as one statement: "m = 1 mod n Now what suits our need".
"""

import re

from corpus.read.lines import PdfLine

RELATION = re.compile(
    r"[=<>\u2260\u2264\u2265\u2261\u2248\u223c\u2243\u2245\u221d\u2208\u2286\u2282\u2192\u21d2\u21d4\u2190\u21a6]"
)
"""Relation symbols, which separate the two sides of a formula."""
OPERATOR = re.compile(rf"{RELATION.pattern[:-1]}+*/,(\[{{\u2212\u00b7\u00d7\u00b1\u2227\u2228\u222a\u2229-]")
"""Symbols at the end of a line, or the beginning of the next, with which a formula continues."""
FREE = 1.5
"""Least space on both sides of a displayed line, in units of the font size."""
SENTENCE = re.compile(r"[A-Z](?:[a-z]+|(?= [a-z]))")
"""The first word of a sentence."""


def begins_display(above: PdfLine, line: PdfLine) -> bool:
    """Whether a displayed formula, centred in its column, begins at a line below a line of text."""
    return line.x0 > above.x0 + above.size and _is_display(line, centred=True) and not _is_display(above)


def ends_display(above: PdfLine, line: PdfLine) -> bool:
    """Whether a displayed formula ends in the line above, because the line is another formula or begins a sentence."""
    if not _is_display(above) or OPERATOR.search(above.text[-1:]):
        return False
    return not OPERATOR.match(line.text) if _is_display(line) else bool(SENTENCE.match(line.text))


def _is_display(line: PdfLine, *, centred: bool = False) -> bool:
    """Whether a line is away from both edges of its column and has a relation symbol."""
    before, after = line.x0 - line.left, line.margin - line.x1
    is_free = min(before, after) > FREE * line.size and (not centred or abs(before - after) < line.size)
    return is_free and bool(RELATION.search(line.text))
