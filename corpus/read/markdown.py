"""Markdown printed from the blocks of a book, with the offset at which each page begins."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from corpus.read.formulas.signs import GARBLED
from corpus.read.garble import MARK
from corpus.read.lines import Line
from corpus.read.paragraphs import BULLET, Role, Text

# Line starts that Markdown, or the block scanner, would read as markup although the book only prints them.
MARKUP = re.compile(
    r"^(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|\||`{3,}|~{3,}|\${2}|\\\[|[-=_*]{3,}\s*$|(?:[-*_]\s*){3,}$|<(?=[A-Za-z/!?]))"
)
RULE = re.compile(r"^(?:[-*_]\s*){3,}$")
WIDE_END = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]$")
WIDE_START = re.compile(r"^[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
HYPHEN_END = re.compile(r"[^\W\d_][-\u2010]$")
FEWEST, SHARE = 20, 0.3
"""Lines of paragraphs, and their share, that begin at the same place and so tell the edge of the text."""
LAST_WORD = re.compile(r"[^\W\d_]+$")
FIRST_WORD = re.compile(r"^[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One block's Markdown."""

    text: str
    """The Markdown without an empty line around it."""
    starts: list[tuple[int, int]]
    """(page index, offset in the text) of the first line from each page."""


def print_texts(texts: Sequence[Text], num_pages: int) -> tuple[str, list[int]]:
    """Markdown of the blocks, separated by one empty line, and the offset at which each page's text begins.

    A page without text has the next one's.
    """
    known = vocabulary(whole for text in texts for whole in _whole_words(text.lines))
    shift = _shift(texts)
    parts = [_part(_evened(text, shift), known) for text in texts]
    starts: dict[int, int] = {}
    position = 0
    for part in parts:
        for page, offset in part.starts:
            starts.setdefault(page, position + offset)
        position += len(part.text) + 2
    markdown = "\n\n".join(part.text for part in parts) + "\n" if parts else ""
    return markdown, _filled(starts, num_pages, len(markdown))


def _shift(texts: Sequence[Text]) -> float:
    """Distance by which right pages are set further in than left ones, points; 0 where few lines say so."""
    sides = [Counter[int](), Counter[int]()]
    for text in texts:
        if text.role is Role.PARAGRAPH:
            for line in text.lines:
                sides[line.page % 2][round(line.x0)] += 1
    edges = [side.most_common(1)[0] if side else (0, 0) for side in sides]
    if any(count < max(FEWEST, SHARE * side.total()) for side, (_, count) in zip(sides, edges, strict=True)):
        return 0.0
    return float(edges[1][0] - edges[0][0])


def _evened(text: Text, shift: float) -> Text:
    """A listing that goes on over a page, its lines where they would stand on pages with equal margins."""
    if text.role is not Role.LISTING or abs(shift) < 2 or len({line.page % 2 for line in text.lines}) < 2:
        return text
    lines = (replace(line, x0=line.x0 - shift, x1=line.x1 - shift) if line.page % 2 else line for line in text.lines)
    return replace(text, lines=tuple(lines))


def _filled(starts: dict[int, int], num_pages: int, length: int) -> list[int]:
    """One offset per page, never falling."""
    result = []
    following = length
    for page in reversed(range(num_pages)):
        following = min(following, starts.get(page, following))
        result.append(following)
    result.reverse()
    return [0, *result[1:]] if result else []


def _whole_words(lines: Sequence[Line]) -> Iterator[str]:
    """Texts of the lines without the parts of divided words, which are no words of the book."""
    divided = False
    for line in lines:
        text = FIRST_WORD.sub("", line.text) if divided else line.text
        divided = line.broken or bool(HYPHEN_END.search(text))
        yield LAST_WORD.sub("", text.rstrip("-\u2010")) if divided else text


def vocabulary(texts: Iterable[str]) -> Counter[str]:
    """Words of the book in lower case, hyphenated ones whole."""
    return Counter(word for text in texts for word in WORD.findall(text.casefold()))


def _part(text: Text, known: Counter[str]) -> _Part:
    """The block, with the mark behind it where its formula could not be read."""
    if not text.garbled:
        return _printed(text, known)
    lines = tuple(replace(line, text=line.text.replace(GARBLED, "").strip()) for line in text.lines)
    rows = tuple(tuple(cell.replace(GARBLED, "") for cell in row) for row in text.rows)
    part = _printed(replace(text, lines=lines, rows=rows), known)
    return part if text.role is Role.HEADING else replace(part, text=f"{part.text} {MARK}")


def _printed(text: Text, known: Counter[str]) -> _Part:
    first = text.lines[0]
    if text.role is Role.HEADING:
        # Number signs at the end of a title would be its closing sequence.
        title = re.sub(r"(#+)$", r"\\\1", first.text)
        return _Part(text=f"{'#' * first.level} {title}", starts=[(first.page, 0)])
    if text.role is Role.TABLE:
        return _Part(text=_table(text.rows), starts=[(first.page, 0)])
    if text.role is Role.LISTING and (len(text.lines) > 1 or MARKUP.match(first.text)):
        return _listing(text.lines)
    return _paragraph(text, known)


def _paragraph(text: Text, known: Counter[str]) -> _Part:
    whole = ""
    starts: list[tuple[int, int]] = []
    above: Line | None = None
    for line in text.lines:
        whole = line.text if above is None else join(whole, line.text, broken=above.broken, known=known)
        if above is None or line.page != above.page:
            starts.append((line.page, len(whole) - len(line.text)))
        above = line
    if above and above.broken:
        whole += "-"
    is_item = text.role is not Role.PARAGRAPH and BULLET.match(whole) and not RULE.match(whole)
    printed = "- " + BULLET.sub("", whole) if is_item else whole
    printed = "\\" + whole if printed is whole and MARKUP.match(whole) else printed
    shift = len(printed) - len(whole)
    return _Part(text=printed, starts=[(page, max(0, offset + shift) if offset else 0) for page, offset in starts])


def join(text: str, more: str, *, broken: bool, known: Counter[str]) -> str:
    """Two printed lines as one. `broken` says that a hyphen at the end of the first was already taken away.

    A divided word is put together, unless the book writes it with a hyphen elsewhere or both parts are words of the
    book and the whole is not.
    """
    if not broken and not (HYPHEN_END.search(text) and more[:1].islower()):
        joint = "" if WIDE_END.search(text) and WIDE_START.match(more) else " "
        return f"{text}{joint}{more}"
    bare = text if broken else text[:-1]
    head, tail = LAST_WORD.search(bare), FIRST_WORD.match(more)
    if not head or not tail:
        return f"{bare}-{more}"
    left, right = head[0].casefold(), tail[0].casefold()
    if known[left + right]:
        return bare + more
    hyphenated = known[f"{left}-{right}"] or (len(left) > 2 and len(right) > 2 and known[left] > 1 and known[right] > 1)
    return f"{bare}-{more}" if hyphenated or not more[:1].islower() else bare + more


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def _listing(lines: Sequence[Line]) -> _Part:
    """A fenced block; the indentation is read from the left edges, empty lines from the distances."""
    left = min(line.x0 for line in lines)
    longest = max(lines, key=lambda line: len(line.text))
    width = max((longest.x1 - longest.x0) / max(len(longest.text), 1), 1.0)
    gaps = [above.y - line.y for above, line in pairwise(lines)]
    pitch = min((gap for gap in gaps if gap > 0.8 * lines[0].size), default=lines[0].size)
    ticks = max((len(run) for line in lines for run in re.findall(r"`+", line.text)), default=0)
    fence = "`" * max(3, ticks + 1)
    rows = [fence]
    starts: list[tuple[int, int]] = []
    for gap, line in zip([0.0, *gaps], lines, strict=True):
        if not starts or starts[-1][0] != line.page:
            starts.append((line.page, len("\n".join(rows)) + 1 if starts else 0))
        rows += [""] * max(0, round(gap / pitch) - 1)
        rows.append(" " * round((line.x0 - left) / width) + line.text)
    return _Part(text="\n".join([*rows, fence]), starts=starts)
