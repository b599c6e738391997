"""Rendering of a PDF's text blocks as Markdown, with the offset at which each page begins."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from corpus.read.doubt import MARK
from corpus.read.formulas.signs import GARBLED
from corpus.read.lines import PdfLine
from corpus.read.paragraphs import BULLET, BlockKind, TextBlock

# Line starts that Markdown, or the block scanner, would read as markup although the book prints them as text.
MARKUP = re.compile(
    r"^(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|\||`{3,}|~{3,}|\${2}|\\\[|[-=_*]{3,}\s*$|(?:[-*_]\s*){3,}$|<(?=[A-Za-z/!?]))"
)
RULE = re.compile(r"^(?:[-*_]\s*){3,}$")
WIDE_END = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]$")
WIDE_START = re.compile(r"^[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
HYPHEN_END = re.compile(r"[^\W\d_][-\u2010]$")
FEWEST, SHARE = 20, 0.3
"""Least number and share of paragraph lines that must share a left edge for it to be the edge of the text."""
WRAPPED = re.compile(r"^(?:\u02d3\u2192|\u21aa)")
"""Hooked arrow at the beginning of the rest of a line of code that was too long."""
BLANK_SIGN = "\u2423"
"""Sign of a blank at which such a line was divided."""
ADDRESS_END = re.compile(r"https?://(?:\S*/)?$")
ADDRESS_PART = re.compile(r"\S*(?:\w[/_.-]\w|\d|[a-z][A-Z])")
"""Rest of an address that was divided at a slash; an ordinary word may follow a whole one."""
LAST_WORD = re.compile(r"[^\W\d_]+$")
FIRST_WORD = re.compile(r"^[^\W\d_]+")


Part = tuple[str, list[tuple[int, int]]]
"""Markdown of one block, and (page index, offset in the Markdown) of the first line from each page."""
Side = tuple[int, int]
"""0 or 1 for a left or a right page, and the column."""


def render_blocks(blocks: Sequence[TextBlock], num_pages: int) -> tuple[str, list[int]]:
    """Render the blocks, separated by one empty line; returns the Markdown and the offset at which each page begins.

    A page without text has the offset of the next one.
    """
    # Parts of hyphenated words do not count as words of the book.
    words = vocabulary(text for block in blocks for text in _without_divided_words(block.lines))
    edges = _left_edges(blocks)
    # Without these signs it is not known whether a line of code was divided at a blank.
    wraps = any(line.mono and line.text.endswith(BLANK_SIGN) for block in blocks for line in block.lines)
    texts = []
    starts: dict[int, int] = {}
    position = 0
    for block in blocks:
        text, block_starts = _render_block(_align_sides(block, edges), words, wraps=wraps)
        for page, offset in block_starts:
            starts.setdefault(page, position + offset)
        texts.append(text)
        position += len(text) + 2
    markdown = "\n\n".join(texts) + "\n" if texts else ""
    page_starts = []
    following = len(markdown)
    for page in reversed(range(num_pages)):
        following = min(following, starts.get(page, following))
        page_starts.append(following)
    page_starts.reverse()
    return markdown, [0, *page_starts[1:]] if page_starts else []


def _side(line: PdfLine) -> Side:
    return line.page % 2, line.column


def _left_edges(blocks: Sequence[TextBlock]) -> dict[Side, float]:
    """Left edge of the text on left and right pages and in their columns, points; without those of few lines."""
    sides: dict[Side, Counter[int]] = defaultdict(Counter)
    for block in blocks:
        if block.kind is BlockKind.PARAGRAPH:
            for line in block.lines:
                sides[_side(line)][round(line.x0)] += 1
    commonest = {side: edges.most_common(1)[0] for side, edges in sides.items()}
    return {
        side: float(edge)
        for side, (edge, count) in commonest.items()
        if count >= max(FEWEST, SHARE * sides[side].total())
    }


def _align_sides(block: TextBlock, edges: Mapping[Side, float]) -> TextBlock:
    """Shift the lines of a listing over several pages or columns as if all had the left edge of its first line's."""
    first = _side(block.lines[0])
    if block.kind is not BlockKind.LISTING or any(_side(line) not in edges for line in block.lines):
        return block
    shifts = [edges[first] - edges[_side(line)] for line in block.lines]
    if max(map(abs, shifts)) < 2:
        return block
    lines = zip(block.lines, shifts, strict=True)
    return replace(block, lines=tuple(replace(line, x0=line.x0 + dx, x1=line.x1 + dx) for line, dx in lines))


def _without_divided_words(lines: Sequence[PdfLine]) -> Iterator[str]:
    """Yield the texts of lines without the parts of hyphenated words."""
    divided = False
    for line in lines:
        text = FIRST_WORD.sub("", line.text) if divided else line.text
        divided = line.broken or bool(HYPHEN_END.search(text))
        yield LAST_WORD.sub("", text.rstrip("-\u2010")) if divided else text


def vocabulary(texts: Iterable[str]) -> Counter[str]:
    """Count a book's words in lower case; a compound with hyphens is one word."""
    return Counter(word for text in texts for word in WORD.findall(text.casefold()))


def _render_block(block: TextBlock, words: Counter[str], *, wraps: bool) -> Part:
    """Render one block; `wraps`: divided lines of code are joined.

    Its mark of doubt follows a block, except a heading. In a listing `doubt.MARK` is in the place of each sign that
    could not be read: behind the fence it would keep the fence open.
    """
    first = block.lines[0]
    is_listing = block.kind is BlockKind.LISTING and (len(block.lines) > 1 or bool(MARKUP.match(first.text)))
    if block.mark and not is_listing:
        lines = tuple(replace(line, text=line.text.replace(GARBLED, "").strip()) for line in block.lines)
        rows = tuple(tuple(cell.replace(GARBLED, "") for cell in row) for row in block.rows)
        text, starts = _render_block(replace(block, lines=lines, rows=rows, mark=""), words, wraps=wraps)
        return text if block.kind is BlockKind.HEADING else f"{text} {block.mark}", starts
    if block.kind is BlockKind.HEADING:
        # Escape number signs at the end of a title, which Markdown would read as the heading's closing sequence.
        title = re.sub(r"(#+)$", r"\\\1", first.text)
        return f"{'#' * first.level} {title}", [(first.page, 0)]
    if block.kind is BlockKind.TABLE:
        table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in block.rows]
        table.insert(1, "|" + "---|" * len(block.rows[0]))
        return "\n".join(table), [(first.page, 0)]
    if is_listing:
        return _render_listing(block.lines, wraps=wraps)
    return _render_paragraph(block, words)


def _render_paragraph(block: TextBlock, words: Counter[str]) -> Part:
    whole = ""
    starts: list[tuple[int, int]] = []
    above: PdfLine | None = None
    for line in block.lines:
        whole = line.text if above is None else join_lines(whole, line.text, broken=above.broken, words=words)
        if above is None or line.page != above.page:
            starts.append((line.page, len(whole) - len(line.text)))
        above = line
    if above and above.broken:
        whole += "-"
    is_item = block.kind is not BlockKind.PARAGRAPH and BULLET.match(whole) and not RULE.match(whole)
    markdown = "- " + BULLET.sub("", whole) if is_item else whole
    markdown = "\\" + whole if markdown is whole and MARKUP.match(whole) else markdown
    shift = len(markdown) - len(whole)
    return markdown, [(page, max(0, offset + shift) if offset else 0) for page, offset in starts]


def join_lines(text: str, more: str, *, broken: bool, words: Counter[str]) -> str:
    """Join two printed lines, undoing hyphenation. `broken`: a hyphen at the end of the first was already removed.

    A divided word is joined, unless the book writes it with a hyphen elsewhere, or both parts are words of the book
    and the joined word is not. `words` are the counts of the book's words, see `vocabulary`.
    """
    if ADDRESS_END.search(text) and ADDRESS_PART.match(more):
        return f"{text}{more}"
    if not broken and not (HYPHEN_END.search(text) and more[:1].islower()):
        joint = "" if WIDE_END.search(text) and WIDE_START.match(more) else " "
        return f"{text}{joint}{more}"
    bare = text if broken else text[:-1]
    head, tail = LAST_WORD.search(bare), FIRST_WORD.match(more)
    if not head or not tail:
        return f"{bare}-{more}"
    left, right = head[0].casefold(), tail[0].casefold()
    if words[left + right]:
        return bare + more
    both_words = len(left) > 2 and len(right) > 2 and words[left] > 1 and words[right] > 1
    hyphenated = words[f"{left}-{right}"] or both_words
    return f"{bare}-{more}" if hyphenated or not more[:1].islower() else bare + more


def _render_listing(lines: Sequence[PdfLine], *, wraps: bool) -> Part:
    """Render a listing as a fenced block; indentation follows from left edges, empty lines from distances."""
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
        text = line.text.replace(GARBLED, MARK)
        if wraps and len(rows) > 1 and (sign := WRAPPED.match(text)):
            rows[-1] = re.sub(f"{BLANK_SIGN}$", " ", rows[-1]) + text[sign.end() :]
            continue
        rows += [""] * max(0, round(gap / pitch) - 1)
        rows.append(" " * round((line.x0 - left) / width) + text)
    return "\n".join([*rows, fence]), starts
