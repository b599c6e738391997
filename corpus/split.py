"""Spans of a source that are too long, cut at the best places: paragraph, sentence, clause, character.

Every function works on offsets and counts real slices: token counts of pieces do not add up.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corpus.blocks import ATOMIC, Block, Kind

Count = Callable[[str], int]

ABBREVIATION = r"(?<!\b[A-Z])(?<!\bFig)(?<!\bEq)(?<!\bNo)(?<!\bal)(?<!\bcf)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)(?<!\bDr)"
SENTENCE = re.compile(rf"{ABBREVIATION}[.!?][\"'\u2019\u201d)\]]*\s+|[\u3002\uff01\uff1f]")
CLAUSE = re.compile(r"[,;:]\s+|[\uff0c\uff1b\u3001]")
LINE_END = re.compile(r"\r\n|\r|\n")
SHRINK = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A span that packing never cuts."""

    start: int
    """First character."""
    end: int
    """One past the last character."""
    depth: int
    """Level that produced it: 0 block, 1 sentence or line, 2 clause, 3 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Counts trimmed slices of one source."""

    source: str
    """The source."""
    count: Count
    """Token counter."""

    def __call__(self, start: int, end: int) -> int:
        start, end = trim(self.source, start, end)
        return self.count(self.source[start:end]) if end > start else 0


def trim(source: str, start: int, end: int) -> tuple[int, int]:
    """The span without blank characters at its ends, except the indentation of its first line."""
    text = source[start:end]
    end -= len(text) - len(text.rstrip())
    lead = len(text) - len(text.lstrip())
    # Indentation is part of indented code: cut back only to the last line end before the first ink.
    breaks = [match.end() for match in LINE_END.finditer(text[:lead])]
    return (start + (breaks[-1] if breaks else 0), end) if end > start else (start, start)


def units(blocks: Sequence[Block]) -> list[tuple[int, int, int, bool]]:
    """(start, first cuttable position, end, atomic) of every block, headings taken together with what follows."""
    result: list[tuple[int, int, int, bool]] = []
    start: int | None = None
    for block in blocks:
        if block.kind is Kind.BLANK:
            continue
        start = block.start if start is None else start
        if block.kind is not Kind.HEADING:
            result.append((start, block.start, block.end, block.kind in ATOMIC))
            start = None
    if start is not None:
        last = max(block.end for block in blocks if block.kind is not Kind.BLANK)
        result.append((start, start, last, False))
    return result


def pieces(blocks: Sequence[Block], measure: Measure, max_tokens: int) -> list[Piece]:
    """The four-level fallback; a level is applied only to a piece that alone exceeds the limit."""
    result: list[Piece] = []
    for start, cuttable, end, atomic in units(blocks):
        levels = [LINE_END] if atomic else [SENTENCE, CLAUSE]
        if atomic and start < cuttable and measure(start, end) > max_tokens >= measure(cuttable, end):
            # Only the heading makes it too long: a table in one piece is worth more than its heading.
            result.extend(_cut(Piece(start=start, end=cuttable, depth=0), start, [], measure, max_tokens))
            start = cuttable
        result.extend(_cut(Piece(start=start, end=end, depth=0), cuttable, levels, measure, max_tokens))
    return result


def _cut(piece: Piece, cuttable: int, levels: list[re.Pattern[str]], measure: Measure, max_tokens: int) -> list[Piece]:
    if measure(piece.start, piece.end) <= max_tokens:
        return [piece]
    if not levels:
        return _characters(piece, cuttable, measure, max_tokens)
    places = [m.end() for m in levels[0].finditer(measure.source, cuttable, piece.end) if m.end() < piece.end]
    edges = [piece.start, *places, piece.end]
    result: list[Piece] = []
    for start, end in pairwise(edges):
        part = Piece(start=start, end=end, depth=piece.depth + 1)
        result.extend(_cut(part, max(cuttable, start), levels[1:], measure, max_tokens))
    return result


def _characters(piece: Piece, cuttable: int, measure: Measure, max_tokens: int) -> list[Piece]:
    """Windows shrunk until they fit; a blank in the second half is the preferred place to cut."""
    result: list[Piece] = []
    start = piece.start
    while start < piece.end:
        end = piece.end
        while (tokens := measure(start, end)) > max_tokens and end > start + 1:
            end = start + max(1, min(int((end - start) * SHRINK), int((end - start) * max_tokens / tokens * 1.1)))
        if end < piece.end:
            blank = measure.source.rfind(" ", start + (end - start) // 2, end)
            # The heading in front keeps at least one word of its text, unless it alone is too long.
            end = blank + 1 if blank > max(start, cuttable) else end
        result.append(Piece(start=start, end=end, depth=3))
        start = end
    return result


def pack(parts: Sequence[Piece], measure: Measure, *, min_tokens: int, max_tokens: int) -> list[tuple[int, int]]:
    """Neighbouring pieces put together greedily; a short tail is balanced with the chunk before it."""
    runs: list[list[Piece]] = []
    for part in parts:
        if runs and measure(runs[-1][0].start, part.end) <= max_tokens:
            runs[-1].append(part)
        else:
            runs.append([part])
    if len(runs) > 1 and measure(runs[-1][0].start, runs[-1][-1].end) < min_tokens:
        runs[-2:] = _balance(runs[-2] + runs[-1], measure, min_tokens=min_tokens, max_tokens=max_tokens) or runs[-2:]
    return [(run[0].start, run[-1].end) for run in runs]


def _balance(parts: list[Piece], measure: Measure, *, min_tokens: int, max_tokens: int) -> list[list[Piece]]:
    for cut in range(len(parts) - 1, 0, -1):
        head, tail = parts[:cut], parts[cut:]
        sizes = [measure(side[0].start, side[-1].end) for side in (head, tail)]
        if all(min_tokens <= size <= max_tokens for size in sizes):
            return [head, tail]
    return []
