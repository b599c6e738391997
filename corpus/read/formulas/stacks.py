"""Detection of formulas that cannot be read as one line: rows in tall brackets, unmatched brackets, loose parts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from corpus.read.doubt import MARK, TORN
from corpus.read.formulas.signs import EXTENSION, GARBLED, RELATIONS
from corpus.read.paragraphs import SENTENCE_END, BlockKind, TextBlock
from corpus.read.printed import Piece

OPENERS, CLOSERS = "([{\u230a\u2308\u27e8|\u2016", ")]}\u230b\u2309\u27e9|\u2016"
TALL = re.compile(r"[()\[\]{}\u2308-\u230b\u27e8\u27e9|\u2016\s]+$")
HEIGHT = 1.7
"""Reach of a tall bracket above and below the baseline of its line, in units of the font size."""
FULL = 0.88
"""Least font size of text that is not a script, as a share of the largest within a bracket."""
APART = 0.9
"""Least distance between two rows within a bracket, in units of the font size."""
SIGNS = re.compile(r"[=+\u2212\u00d7\u00b7\u0391-\u03c9\u2190-\u22ff]|[\^_]\{|\\[a-z]+\{")
WORD = re.compile(r"(?<![\\^_{\w])[^\W\d_]{3,}")
BRACKETS = {**dict.fromkeys("([{\u230a\u2308\u27e8", 1), **dict.fromkeys(")]}\u230b\u2309\u27e9", -1)}
LOOSE = re.compile(
    r"(?<![\w`^~])[\u02c6\u02c7\u02d8\u02d9\u02da\u02dc\u02dd\u00a8\u00af\u00b4](?![`^~])"
    r"|(?:^|[^\w\s] )[_^]\{|\u221a_|(?:(?<!\S)[^\W\d_] ){4}"
)
"""Accents without a letter, scripts and roots without a base, and spaced letters."""
BARS = re.compile(r"[|\u2016]")
FRAGMENT = 4
"""Largest number of characters of a block that is a part of the formula above or below it."""
SMALL, LONGEST = 0.8, 40
"""Largest font size of scripts that became a block, as a share of the body's, and their largest length, characters."""
ALONE = re.compile(
    r"^\(?[A-Z]?[\d.]+[a-z]?\)?$|^[\u2022*\u2013-]$|^[a-z]{2,}[.,:]?$|^\w\s?[=<>\u2248\u2260\u2264\u2265]\s?[-\u2212]?\w$"
)
"""Complete short blocks: the number of a formula, a bullet, a word between formulas, a relation of two signs."""

BARE = re.compile(r"^[\u2022*\u2013-]\W{0,3}$")
"""A bullet without a text: two in succession are entries of a matrix, or have lost their texts."""


def mark_stacks(pieces: Sequence[Piece]) -> list[Piece]:
    """Append GARBLED to each tall bracket that encloses several rows, and to each relation with small text above."""
    pieces = _join_bars(pieces)
    tall = [piece for piece in pieces if piece.tall or (EXTENSION.search(piece.font) and TALL.match(piece.text))]
    stacks = {id(piece) for piece in tall if piece.text[-1] in OPENERS and _holds_rows(piece, tall, pieces)}
    stacks |= {id(below) for above, below in pairwise(pieces) if _is_over_relation(above, below)}
    if not stacks:
        return list(pieces)
    return [replace(piece, text=piece.text + GARBLED) if id(piece) in stacks else piece for piece in pieces]


def _join_bars(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Join the parts of each tall vertical bar into one piece."""
    if sum(bool(BARS.fullmatch(piece.text)) for piece in pieces) < 2:
        return pieces
    result: list[Piece] = []
    top = 0.0
    for piece in pieces:
        above = result[-1] if result else None
        if above and BARS.fullmatch(piece.text) and above.text == piece.text and abs(above.x0 - piece.x0) < 0.5:
            result[-1] = replace(piece, y=(top + piece.y) / 2)
        else:
            result.append(piece)
            top = piece.y
    return result


def _holds_rows(opener: Piece, tall: Sequence[Piece], pieces: Sequence[Piece]) -> bool:
    ends = [p.x0 for p in tall if p.text[0] in CLOSERS and p.x0 > opener.x0 and abs(p.y - opener.y) < opener.size]
    end = min(ends, default=opener.x1 + 30 * opener.size)
    inside = [
        p
        for p in pieces
        if opener.x1 - 1 <= p.x0 < end
        and abs(p.y - opener.y) < HEIGHT * opener.size
        and not (EXTENSION.search(p.font) or (p.tall and TALL.match(p.text)))
    ]
    size = max((p.size for p in inside), default=0.0)
    rows = sorted(p.y for p in inside if p.size >= FULL * size)
    return bool(rows) and rows[-1] - rows[0] > APART * size


def _is_over_relation(above: Piece, below: Piece) -> bool:
    """Whether a small text is above a relation, alone or at the end of a superscript."""
    sign = below.text.lstrip("\u2212")[:1]
    if not sign or sign not in RELATIONS or above.size > FULL * below.size:
        return False
    middle = (above.x0 + above.x1) / 2
    over = below.x0 < middle < below.x0 + below.size or 0.3 * below.size < above.x1 - below.x0 < 3 * below.size
    return 0.4 * below.size < above.y - below.y < below.size and over


def mark_garbled_blocks(blocks: Sequence[TextBlock], body: float) -> list[TextBlock]:
    """Mark blocks as garbled whose formulas have several rows, loose accents or unmatched brackets.

    Consecutive formulas count as one: a bracket may close in the next line.
    """
    doubtful = {place for place, block in enumerate(blocks) if _is_doubtful(block)}
    triples = zip(blocks, blocks[1:], blocks[2:], strict=False)
    doubtful |= {
        place for place, (before, block, after) in enumerate(triples, 1) if _divides(before, block, after, body)
    }
    bare = [bool(BARE.match(_whole(block))) and block.kind is not BlockKind.HEADING for block in blocks]
    doubtful |= {place for place, pair in enumerate(pairwise(bare)) if all(pair)}
    # A sign of two rows, such as a tilde above an equals sign.
    seams = (f"{_whole(above)[-1:]} {_whole(below)[:1]} ." for above, below in pairwise(blocks))
    doubtful |= {place for place, seam in enumerate(seams) if TORN.search(seam)}
    run: list[int] = []
    for place, block in enumerate([*blocks, None]):
        if (
            block is not None
            and block.kind is BlockKind.PARAGRAPH
            and (_is_fragment(block, body) or is_formula(_whole(block)))
        ):
            run.append(place)
            continue
        open_ends = sum(balance(_whole(blocks[number])) for number in run)
        fragments = any(_is_fragment(blocks[number], body) for number in run)
        if (open_ends or fragments) and any(is_formula(_whole(blocks[number])) for number in run):
            doubtful.update(run)
        run = []
    return [replace(block, mark=MARK) if place in doubtful else block for place, block in enumerate(blocks)]


def _divides(before: TextBlock, block: TextBlock, after: TextBlock, body: float) -> bool:
    """Whether a block is a fragment in the middle of a sentence, such as a sign in another font."""
    if block.kind is not BlockKind.PARAGRAPH or not _is_fragment(block, body) or after.kind is not BlockKind.PARAGRAPH:
        return False
    whole = _whole(before)
    return len(whole) > LONGEST and not SENTENCE_END.search(whole) and _whole(after)[:1].islower()


def _whole(block: TextBlock) -> str:
    return " ".join(line.text for line in block.lines)


def _is_doubtful(block: TextBlock) -> bool:
    whole = _whole(block)
    if GARBLED in whole:
        return True
    return block.kind in (BlockKind.PARAGRAPH, BlockKind.ITEM) and any(
        LOOSE.search(part) for part in (whole, *(line.text for line in block.lines))
    )


def is_formula(text: str) -> bool:
    """Whether a text is a displayed formula: mathematical symbols, and hardly a word."""
    return (
        bool(SIGNS.search(text)) and bool(re.search(r"\w", text)) and len(WORD.findall(text)) <= max(2, len(text) // 40)
    )


def balance(text: str) -> int:
    """Number of opening brackets minus closing ones; a half-open interval counts as balanced."""
    return sum(BRACKETS.get(sign, 0) for sign in text)


def _is_fragment(block: TextBlock, body: float) -> bool:
    """Whether a block is so short or small that it is a part of the formula above or below."""
    whole = _whole(block)
    if len(whole) <= FRAGMENT:
        return not ALONE.match(whole)
    small = all(line.size <= SMALL * body for line in block.lines)
    return small and len(whole) <= LONGEST and is_formula(whole)
