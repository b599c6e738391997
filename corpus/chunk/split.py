"""Count tokens, split long spans at paragraphs, sentences, clauses or characters, and pack the pieces into chunks.

All functions work on character offsets and count the tokens of whole slices, because token counts of pieces do not add
up.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from corpus.chunk.blocks import ATOMIC, Block, BlockType

Count = Callable[[str], int]
"""Returns the number of tokens of a text."""
Span = tuple[int, int]
"""First character of a piece or chunk, and one past its last; a piece is never cut by packing."""

ABBREVIATION = r"(?<!\b[A-Z])(?<!\bFig)(?<!\bEq)(?<!\bNo)(?<!\bal)(?<!\bcf)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)(?<!\bDr)"
# A full stop after a blank or another stop is a dot leader or an ellipsis, not the end of a sentence.
SENTENCE = re.compile(rf"(?<![\s.]){ABBREVIATION}[.!?][\"'\u2019\u201d)\]]*\s+|[\u3002\uff01\uff1f]")
CLAUSE = re.compile(r"[,;:]\s+|[\uff0c\uff1b\u3001]")
ANNOUNCES = re.compile(r"(?![-*+>|] |\d+[.)] ).*[:,\w]|.*:|\*\*[^*]*\*\*|#+ .*")
"""The last line of a text that is incomplete without the next one: it ends no sentence, or is a label alone."""
CONTINUES = re.compile(r"\*\*(?i:answer|hint|proof|solution)|[-*+>|] |\d+[.)] |\(?[a-z]|`{3}|~{3}|\$\$|\[\^")
"""The beginning of what belongs to the text before it: items, quotations, code, formulas, the rest of a sentence."""
LABEL = re.compile(r"\*\*[A-Z]")
LINE_END = re.compile(r"\r\n|\r|\n")
SHRINK = 0.9
WINDOW = 1 << 17
"""Longest slice that is passed to the token counter at once, characters."""
TOKENS_PER_CHAR = 4
"""Most tokens of one character: one per byte of its UTF-8 code."""
MAX_STEPS = 4
"""Interpolations in the search for the last piece that fits, before it continues by bisection."""
HEAD_CHARS = 16
"""Length of the beginning that is counted first, characters per token of the limit; ordinary text has 3 to 6."""
TRIM_CHARS = 1024
"""Block size of the search for blanks at the end of a slice, characters."""
INK = re.compile(r"\S")
MAX_COUNTED = 1 << 18
"""Largest number of slices whose counts are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCounter:
    """Counts the tokens of slices of one source, without blanks at their ends; each slice is counted once.

    A slice longer than `WINDOW` is counted in windows, because a tokenizer would need many times its size in memory.
    Windows end at blanks, so that the sum exceeds the exact count by at most one token per window.
    """

    source: str
    count: Count
    cache: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of tokens by slice."""

    def __call__(self, start: int, end: int) -> int:
        """Number of tokens of the slice."""
        start, end = trim(self.source, start, end)
        if end <= start:
            return 0
        tokens = self.cache.get((start, end))
        if tokens is None:
            if len(self.cache) >= MAX_COUNTED:
                self.cache.clear()
            tokens = sum(self._windows(start, end))
            self.cache[(start, end)] = tokens
        return tokens

    def exceeds(self, start: int, end: int, limit: int) -> bool:
        """Whether the slice has more tokens than the limit; a long slice need not be counted to its end."""
        if end - start <= limit // TOKENS_PER_CHAR:
            return False
        start, end = trim(self.source, start, end)
        head = start + HEAD_CHARS * (limit + 1)
        # The cut may add one token; otherwise a slice never has fewer tokens than its beginning.
        if head < end and sum(self._windows(start, head)) > limit + 1:
            return True
        return self(start, end) > limit

    def _windows(self, start: int, end: int) -> Iterator[int]:
        while end - start > WINDOW:
            blank = self.source.rfind(" ", start + WINDOW // 2, start + WINDOW)
            stop = blank if blank > start else start + WINDOW
            yield self.count(self.source[start:stop])
            start = stop
        yield self.count(self.source[start:end])


def trim(source: str, start: int, end: int) -> tuple[int, int]:
    """Remove blank characters at both ends of a span, except the indentation of its first line."""
    if end > start and source[end - 1].isspace():
        # One past the last character that is not blank, block by block; `start` if all are blank.
        inked = ""
        while end > start and not inked:
            block = source[max(start, end - TRIM_CHARS) : end]
            inked = block.rstrip()
            end -= len(block) - len(inked)
    if start >= end or not source[start].isspace():
        return start, end
    ink = INK.search(source, start, end)
    assert ink
    # Indentation is part of indented code: cut only up to the last line end before the first visible character.
    line = max(source.rfind("\n", start, ink.start()), source.rfind("\r", start, ink.start()))
    return (line + 1 if line >= 0 else start), end


def units(blocks: Sequence[Block]) -> list[tuple[int, int, int, bool]]:
    """Join headings with the next block; returns (start, first cuttable position, end, is atomic) of each unit."""
    result: list[tuple[int, int, int, bool]] = []
    start: int | None = None
    for block in blocks:
        if block.kind is BlockType.BLANK:
            continue
        start = block.start if start is None else start
        if block.kind is not BlockType.HEADING:
            result.append((start, block.start, block.end, block.kind in ATOMIC))
            start = None
    if start is not None:
        last = max(block.end for block in blocks if block.kind is not BlockType.BLANK)
        result.append((start, start, last, False))
    return result


def pieces(blocks: Sequence[Block], measure: SliceCounter, max_tokens: int) -> list[Span]:
    """Split blocks into pieces of at most `max_tokens`, with the paper's four-level fallback.

    The levels are paragraphs, sentences, clauses and characters; the next level is used only for a piece that is still
    too long. Code, math and tables are split at line ends, then at characters.
    """
    result: list[Span] = []
    for start, cuttable, end, atomic in units(blocks):
        levels = [LINE_END] if atomic else [SENTENCE, CLAUSE]
        if (
            atomic
            and start < cuttable
            and measure.exceeds(start, end, max_tokens)
            and not measure.exceeds(cuttable, end, max_tokens)
        ):
            # Only the heading makes the unit too long: split off the heading, so that the table stays in one piece.
            result += _split_piece(start, cuttable, start, [], measure, max_tokens)
            start = cuttable
        result += _split_piece(start, end, cuttable, levels, measure, max_tokens)
    return result


def _split_piece(
    start: int, end: int, cuttable: int, levels: list[re.Pattern[str]], measure: SliceCounter, max_tokens: int
) -> list[Span]:
    if not measure.exceeds(start, end, max_tokens):
        return [(start, end)]
    if not levels:
        return _split_characters(start, end, cuttable, measure, max_tokens)
    places = [m.end() for m in levels[0].finditer(measure.source, cuttable, end) if m.end() < end]
    result: list[Span] = []
    for first, last in pairwise([start, *places, end]):
        result += _split_piece(first, last, max(cuttable, first), levels[1:], measure, max_tokens)
    return result


def _split_characters(start: int, stop: int, cuttable: int, measure: SliceCounter, max_tokens: int) -> list[Span]:
    """Split a span into windows that fit the limit, each cut at a blank in its second half if there is one."""
    result: list[Span] = []
    width = max(1, 4 * max_tokens)
    while start < stop:
        end = _window_end(start, stop, width, measure, max_tokens)
        if end < stop:
            width = end - start
            blank = measure.source.rfind(" ", start + (end - start) // 2, end)
            # A heading keeps at least one word of the text after it, unless it alone is too long.
            end = blank + 1 if blank > max(start, cuttable) else end
        result.append((start, end))
        start = end
    return result


def _window_end(start: int, stop: int, width: int, measure: SliceCounter, max_tokens: int) -> int:
    """End of a window that fits the limit: double `width` while the window fits, then shrink it until it fits again."""
    end = min(stop, start + width)
    while end < stop and measure(start, end) <= max_tokens:
        end = min(stop, start + 2 * (end - start))
    while (tokens := measure(start, end)) > max_tokens and end > start + 1:
        end = start + max(1, min(int((end - start) * SHRINK), int((end - start) * max_tokens / tokens * 1.1)))
    return end


def pack(parts: Sequence[Span], measure: SliceCounter, *, min_tokens: int, max_tokens: int) -> list[Span]:
    """Join neighbouring pieces into chunks, each as long as fits, but cut in its second half where least is torn.

    A last chunk that is too short is balanced with the one before.
    """
    runs: list[list[Span]] = []
    ends = [end for _, end in parts]
    place = 0
    chars_per_token = 4.0
    while place < len(parts):
        stop = _last_fitting(parts, ends, place, measure, max_tokens, chars_per_token)
        if stop < len(parts):
            half = _last_fitting(parts, ends, place, measure, max(max_tokens // 2, min_tokens), chars_per_token)
            places = range(stop, min(half, stop - 1), -1)
            stop = min(places, key=lambda end: _damage(measure.source, parts[end - 1], parts[end]))
        runs.append(list(parts[place:stop]))
        start, end = parts[place][0], ends[stop - 1]
        chars_per_token = max((end - start) / max(measure(start, end), 1), 0.1)
        place = stop
    if len(runs) > 1 and measure(*_whole(runs[-1])) < min_tokens:
        tail = runs[-2] + runs[-1]
        halves = [(tail[:place], tail[place:]) for place in range(len(tail) - 1, 0, -1)]
        fitting = [two for two in halves if all(min_tokens <= measure(*_whole(half)) <= max_tokens for half in two)]
        if fitting:
            best = min(fitting, key=lambda two: _damage(measure.source, two[0][-1], two[1][0]))
            runs[-2:] = best
    return [_whole(run) for run in runs]


def _damage(source: str, before: Span, after: Span) -> int:
    """Damage of a cut between two pieces, from 0 (none, before a heading) to 4.

    1 is before a statement with a label, 2 within an argument, 3 within a list, or between a text and what belongs to
    it, 4 between an announcement and what it announces.
    """
    last, first = source[slice(*before)].rstrip(), source[slice(*after)].lstrip()
    if ANNOUNCES.fullmatch(last[last.rfind("\n") + 1 :].strip()):
        return 4
    if CONTINUES.match(first):
        return 3
    return 0 if first.startswith("#") else 1 if LABEL.match(first) else 2


def _whole(run: Sequence[Span]) -> Span:
    return run[0][0], run[-1][1]


def _last_fitting(
    parts: Sequence[Span],
    ends: Sequence[int],
    place: int,
    measure: SliceCounter,
    max_tokens: int,
    chars_per_token: float,
) -> int:
    """Find how many pieces from `place` on fit into one chunk, by interpolation; returns one past the last.

    If more text never has fewer tokens, adding one piece after another would give the same result.
    """
    start = parts[place][0]
    fits, fails = place + 1, len(parts) + 1
    target = start + max_tokens * chars_per_token
    steps = 0
    while fits + 1 < fails:
        guess = min(max(bisect_right(ends, target), fits + 1), fails - 1)
        if steps > MAX_STEPS:
            guess = (fits + fails) // 2
        tokens = measure(start, ends[guess - 1])
        if tokens <= max_tokens:
            fits = guess
        else:
            fails = guess
        target = start + (ends[guess - 1] - start) * max_tokens / max(tokens, 1)
        steps += 1
    return fits


RULE = "pieces-1"
DESCRIPTION = (
    "tokens by rule: up to eight letters, one digit, up to three other signs, one character of a script without "
    "blanks, or a run of line ends count as one"
)
_PIECE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[A-Za-z]{1,8}|\d|[^\W\d_A-Za-z]{1,3}|(?:[^\w\s]|_){1,3}|\n+"
)


def count_tokens(text: str) -> int:
    """Number of tokens of a text by the rule in DESCRIPTION, without a tokenizer."""
    return len(_PIECE.findall(text))


def by_rule() -> Count:
    """Token counter that needs no tokenizer: the rule in DESCRIPTION."""
    return count_tokens
