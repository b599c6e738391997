"""Detection of headings and their levels among printed lines, by the PDF's bookmarks, or by fonts if these are few."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise

from corpus.read.lines import CHAPTER, NUMERAL, SECTION_NUMBER, PdfLine, prose_lines, title_key
from corpus.read.printed import OutlineEntry

TITLE_CHARS = 150
TITLE_LINES = 3
MEAN_CHARS = 70
"""Mean length of the titles of one style, characters."""
PAGES_PER_ENTRY = 12
"""Pages per bookmark above which the bookmarks name chapters only, so that fonts are used as well."""
SURE_DEPTH = 3
"""Least number of parts in a section number (3.1.2 has three) with which a single title makes a heading style."""
TRUSTED = 0.6
"""Share of a style's blocks that bookmarks must name before other titles in this style count as headings too."""
PURE = 0.55
"""Share of a style's blocks that must look like titles for it to be a heading style."""
MAX_SHARE = 0.1
"""Largest share of a book's text that may be in one heading style."""
EDGE_SHARE = 0.15
"""Share of a book's lines above which the left edge of their columns counts as an edge of the text."""
NUMBERED = re.compile(
    r"^(?:(?:chapter|section|appendix)\s+)?((?:\d{1,3}|[A-Z](?=\.))(?:\.\d{1,3})*)[.:)]?\s+\S"
    r"|^\u7b2c\s*\S{1,3}\s*[\u7ae0\u8282]",
    re.I,
)
WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
LABEL = re.compile(
    rf"^(?:{CHAPTER}|\u7b2c)\s*(?:\d{{1,3}}|[IVXLC]{{1,6}}|[A-Z]|[\u4e00-\u5341]+)\s*[.:\u7ae0\u90e8\u7bc7]?$", re.I
)
MATTER = re.compile(
    r"(?:table of )?contents|preface|foreword|acknowledge?ments?|(?:subject |name )?index|references|bibliography"
    r"|glossary|(?:answers|solutions)(?: to .*)?|answer key|appendix|about the authors?|list of (?:figures|tables)"
    r"|\u76ee\u5f55|\u76ee\u6b21|\u524d\u8a00|\u5e8f\u8a00?|\u53c2\u8003\u6587\u732e|\u7d22\u5f15",
    re.IGNORECASE,
)
ENDS = (".", "\u3002", "\uff0c", "\uff1b", "\uff1a", ":", ";")
# Dot leaders, or a section number before and a page number after the title ("World War 2" is a title).
CONTENTS_LINE = re.compile(
    r"(?:\.\s?){3,}\s*(?:[ivxlc]{1,7}|[A-Z]?\d[\d.,\s-]*)$|^(?:\d+|[A-Z](?=\.\d))(?:\.\d+)*\.?\s+\S.*\s(?:\d{1,4}|[ivxlc]{1,6})$"
)
BULLET = re.compile(r"^[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7*\u2013\u2014-]\s")
NOT_A_TITLE = re.compile(r"^(?:note|tip|caution|warning|important|hint|example|figure|table|fig\.)\b[\s\d.:]*$", re.I)
SPELLED = re.compile(rf"^(?:{CHAPTER}|({NUMERAL}))$", re.I)
"""The label above a chapter's title: a word such as Chapter, or a number in words."""
SENTENCES = re.compile(r"\u3002|[\uff0c\uff1b].*[\uff0c\uff1b]|[a-z]{3}[.!?] [A-Z]")
"""The end of a sentence, or several clauses, in the middle of a line."""
CAPTION = re.compile(r"^(?:fig(?:ure|\.)|tab(?:le|\.)|listing|\u56fe|\u8868)\s*(?:\d|[A-Z]\.\d)", re.I)

Style = tuple[str, float, bool, bool, int]
"""Font, size, whether bold, whether all capitals, and 0, 1 or 2 for no section number, `3`, or `3.1` and deeper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Neighbouring lines of one style."""

    page: int
    """Page index."""
    place: int
    """Index of its first line on the page."""
    count: int
    """Number of lines."""
    text: str
    is_title: bool
    """Whether it looks like a title."""
    is_term: bool
    """Whether it is at the edge of the text and the lines below are indented, as a term above its definition."""


def mark_headings(pages: Sequence[list[PdfLine]], outline: Sequence[OutlineEntry]) -> list[list[PdfLine]]:
    """Set the heading level of title lines on every page, and join titles that span several lines."""
    pages = [list(page) for page in pages]
    chars: Counter[tuple[str, float, bool]] = Counter()
    for line in prose_lines(pages):
        chars[("" if WIDE.search(line.text) else line.font, round(line.size * 2) / 2, line.bold)] += len(line.text)
    commonest = min(chars, key=lambda style: (-chars[style], style)) if chars else ("", 0.0, False)
    body = (*commonest, False, 0)
    votes = _match_outline(pages, outline)
    blocks = _blocks_by_style(pages, body)
    if votes and votes.total() * PAGES_PER_ENTRY >= len(pages):
        levels = _levels_by_outline(votes, blocks)
        levels |= _levels_below_outline(levels, _levels_by_font(blocks, body, pages, votes), body)
    else:
        levels = _levels_by_font(blocks, body, pages, votes)
    # The level of a numbered section is the level of the chapters plus the number of parts after the first.
    chapters = Counter({style: sum(b.is_title for b in blocks[style]) for style in levels if style[4] == 1})
    base = levels[chapters.most_common(1)[0][0]] if chapters else 1
    for style, level in levels.items():
        for block in blocks.get(style, []):
            if block.is_title:
                parts = number_depth(block.text)
                _set_level(pages[block.page], block, min(base + parts - 1, 6) if parts > 1 else level)
    for style, style_blocks in blocks.items():
        levels_of_size = [level for (_, size, bold, *_), level in levels.items() if (size, bold) == style[1:3]]
        for block in style_blocks:
            if levels_of_size and block.is_title and MATTER.fullmatch(block.text):
                _set_level(pages[block.page], block, min(levels_of_size))
    return [_join_titles(page) for page in pages]


def titles_of(outline: Sequence[OutlineEntry]) -> frozenset[tuple[int, str]]:
    """(page, title key) of every bookmark that points to a page."""
    return frozenset((entry.page, title_key(entry.title)) for entry in outline if entry.page >= 0)


def style_of(line: PdfLine) -> Style:
    """Typographic style of a line, see `Style`; all headings of one kind share a style."""
    letters = sum(c.lower() != c.upper() for c in line.text)
    # East Asian titles mix fonts, because their Latin words are in another font.
    font = "" if WIDE.search(line.text) else line.font
    caps = letters > 3 and bool(font) and line.text.upper() == line.text
    return font, round(line.size * 2) / 2, line.bold, caps, min(number_depth(line.text), 2)


def number_depth(text: str) -> int:
    """Number of parts of the section number at the beginning of a text: 0 for none, 2 for `3.1`."""
    number = NUMBERED.match(text)
    return 0 if not number else (number[1] or "1").count(".") + 1


# By the outline


def _match_outline(pages: list[list[PdfLine]], outline: Sequence[OutlineEntry]) -> Counter[tuple[Style, int]]:
    """Mark the lines that print a bookmark's title as headings; returns how often each style had each level."""
    votes: Counter[tuple[Style, int]] = Counter()
    unmatched = []
    for entry in outline:
        if entry.page < 0 or not title_key(entry.title):
            continue
        near = [number for number in (entry.page, entry.page + 1, entry.page - 1) if 0 <= number < len(pages)]
        line = next((match for number in near if (match := _mark_exact(pages[number], entry))), None)
        if line:
            votes[(style_of(line), entry.level)] += 1
        elif 0 <= entry.page < len(pages):
            unmatched.append(entry)
    for entry in unmatched:
        if line := _mark_similar(pages[entry.page], entry):
            votes[(style_of(line), entry.level)] += 1
    return votes


def _mark_exact(page: list[PdfLine], entry: OutlineEntry) -> PdfLine | None:
    """Join the lines that print a bookmark's title, those nearest to its target, into one heading line."""
    title = title_key(entry.title)
    best: tuple[tuple[int, float], int, int] | None = None
    for place, first in enumerate(page):
        if not title.startswith(title_key(first.text)[: len(title)]) and not LABEL.match(first.text):
            continue
        for span in range(1, TITLE_LINES + 2):
            run = page[place : place + span]
            text = _text(run)
            if len(run) < span or any(line.level for line in run) or len(text) > 2 * TITLE_CHARS:
                break
            if title_key(text) == title and not (CONTENTS_LINE.search(text) and text != entry.title):
                distance = round(abs(run[0].y + run[0].size - entry.y) / 20) if entry.y and entry.y > 0 else 0
                rank = (distance, -run[0].size)
                if best is None or rank < best[0]:
                    best = (rank, place, span)
    return _mark_title(page, best[1], best[2], entry) if best else None


def _mark_title(page: list[PdfLine], place: int, span: int, entry: OutlineEntry) -> PdfLine:
    """Replace a run of lines, and a `Chapter 3` above it, by one heading line of the entry's level."""
    if place and LABEL.match(page[place - 1].text) and not page[place - 1].level:
        place, span = place - 1, span + 1
    run = page[place : place + span]
    main = max(run, key=lambda line: len(line.text))
    heading = replace(main, text=_text(run), level=min(entry.level, 6), x0=run[0].x0, x1=run[-1].x1, y=run[-1].y)
    page[place : place + span] = [heading]
    return heading


def _mark_similar(page: list[PdfLine], entry: OutlineEntry) -> PdfLine | None:
    """Mark the line at a bookmark's target if its text resembles the title: bookmarks write formulas differently."""
    if entry.y is None:
        return None
    title = title_key(entry.title)
    best = (0.6, -1)
    for place, line in enumerate(page):
        if line.level or not -5 <= entry.y - line.y <= 5 * line.size or len(line.text) > TITLE_CHARS:
            continue
        best = max(best, (SequenceMatcher(None, title_key(line.text), title, autojunk=False).ratio(), place))
    return _mark_title(page, best[1], 1, entry) if best[1] >= 0 else None


def _levels_by_outline(votes: Counter[tuple[Style, int]], blocks: dict[Style, list[_Block]]) -> dict[Style, int]:
    """Heading levels of the styles that bookmarks use; other lines in them are titles too (a preface, the contents)."""
    entries: Counter[Style] = Counter()
    for (style, _), count in votes.items():
        entries[style] += count
    levels = {}
    for style, count in entries.items():
        others = len(blocks.get(style, []))
        if count >= TRUSTED * (count + others):
            levels[style] = -max((n, -level) for (name, level), n in votes.items() if name == style)[1]
    return levels


def _levels_below_outline(levels: dict[Style, int], by_font: Mapping[Style, int], body: Style) -> dict[Style, int]:
    """Levels of titles that no bookmark names: in the face of those that one names, smaller, and larger than text."""
    faces = {(style[0], style[2]) for style in levels}
    least = min((style[1] for style in levels), default=0.0)
    below = [s for s in by_font if (s[0], s[2]) in faces and body[1] + 1 <= s[1] < least]
    sizes = sorted({style[1] for style in below}, reverse=True)
    lowest = max(levels.values(), default=0)
    return {style: min(lowest + sizes.index(style[1]) + 1, 6) for style in below}


# By fonts


def _blocks_by_style(pages: Sequence[list[PdfLine]], body: Style) -> dict[Style, list[_Block]]:
    """Group neighbouring lines that no bookmark matched into blocks of one style; returns the blocks by style."""
    blocks: dict[Style, list[_Block]] = defaultdict(list)
    lefts = Counter(round(line.left) for page in pages for line in page)
    edges = [left for left, count in lefts.items() if count > EDGE_SHARE * lefts.total()]
    for page in pages:
        start = 0
        for place in range(1, len(page) + 1):
            before, line = page[place - 1], page[place] if place < len(page) else None
            if line and not before.level and not line.level and _same_title(before, line):
                continue
            run = page[start:place]
            if not run[0].level:
                above = page[start - 1] if start else None
                text = _text(run)
                is_title = len(run) <= TITLE_LINES and _could_be_title(run, text, body)
                is_title = is_title and _is_isolated(run, above, line, body)
                is_term = is_title and _is_term(run[0], page[place : place + 2], edges)
                blocks[style_of(run[0])].append(
                    _Block(page=run[0].page, place=start, count=len(run), text=text, is_title=is_title, is_term=is_term)
                )
            start = place
    return blocks


def _is_term(term: PdfLine, below: Sequence[PdfLine], edges: Sequence[float]) -> bool:
    """Whether a line is a term above its definition: at the edge of the text, with an indented paragraph below."""
    if not below or not any(abs(term.x0 - edge) < term.size / 2 for edge in edges):
        return False
    first, second = below[0], below[-1]
    apart = first.y - second.y > 1.5 * first.size
    return first.y < term.y and first.x0 > term.x0 + term.size / 2 and (apart or second.x0 > first.x0 - 1)


def _is_isolated(run: Sequence[PdfLine], above: PdfLine | None, below: PdfLine | None, body: Style) -> bool:
    """Whether lines are set apart, like a title.

    They do not fill their column, have more space above than running text, and are not a term above its definition. The
    line after them is not higher and further to the left.
    """
    last = run[-1]
    if last.size < body[1] + 1 and last.left < last.margin < last.x1 + last.size and number_depth(_text(run)) < 2:
        # Running text ends at the edge of its column; a title in the same font size seldom does.
        return False
    if above and not above.level and 0 < above.y - run[0].y < 1.25 * max(above.size, run[0].size):
        return False
    if run[0].text[0].islower() and below and below.y < last.y and below.x0 > run[0].x0 + last.size / 2:
        # A term above its definition.
        return False
    return not (below and below.y > last.y + 2 and below.x0 < last.x0)


def _could_be_title(run: Sequence[PdfLine], text: str, body: Style) -> bool:
    first = run[0]
    stands_out = first.size >= body[1] + 1 or (first.bold and not body[2])
    if (
        (first.mono and number_depth(text) < 2)
        or _length(text) > TITLE_CHARS
        or CONTENTS_LINE.search(text)
        or BULLET.match(text)
    ):
        return False
    if SENTENCES.search(SECTION_NUMBER.sub("", text, count=1).rstrip("\u3002")):
        return False
    if (
        NOT_A_TITLE.match(text)
        or SPELLED.match(text)
        or CAPTION.match(text)
        or text.endswith((",", ";", "-"))
        or (text[0].islower() and not stands_out)
    ):
        return False
    if len(first.cells) > 1 and not re.fullmatch(r"[\dA-Z.]+[.:)]?|\w+ [\dIVX]+[.:]?", first.cells[0].text):
        return False
    bare = SECTION_NUMBER.sub("", text, count=1).replace(" ", "")
    letters = sum(c.isalpha() for c in bare)
    return letters >= 2 and letters >= 0.5 * len(bare)


def _levels_by_font(
    blocks: dict[Style, list[_Block]],
    body: Style,
    pages: Sequence[list[PdfLine]],
    votes: Counter[tuple[Style, int]],
) -> dict[Style, int]:
    """Levels of the heading styles: larger fonts have higher levels. Levels from bookmarks take precedence."""
    total = sum(len(line.text) for page in pages for line in page)
    styles = [style for style, members in blocks.items() if _is_heading_style(style, members, body, total)]
    front = {style for style in styles if all(block.page < 2 for block in blocks[style] if block.is_title)}
    ranks = sorted({style[1:4] for style in set(styles) - front}, reverse=True)
    by_outline = {style[1:4]: level for (style, level), _ in sorted(votes.items(), key=lambda vote: vote[1])}
    lowest = max(by_outline.values(), default=0)
    place = {rank: by_outline.get(rank, min(lowest + number, 6)) for number, rank in enumerate(ranks, start=1)}
    return {style: place.get(style[1:4], 1) for style in styles}


def _is_heading_style(style: Style, blocks: Sequence[_Block], body: Style, total: int) -> bool:
    font, size, bold, caps, number = style
    titles = [block for block in blocks if block.is_title]
    if not titles or len(titles) < PURE * len(blocks) or sum(len(b.text) for b in titles) > MAX_SHARE * total:
        return False
    if sum(_length(block.text) for block in titles) > MEAN_CHARS * len(titles):
        return False
    if size < body[1] + 1 and not number and sum(block.is_term for block in titles) > 0.5 * len(titles):
        return False
    are_sentences = sum(block.text.endswith(ENDS) for block in titles) > 0.5 * len(titles)
    if size >= body[1] + 1:
        return number > 0 or not are_sentences or size >= body[1] + 1.5
    # A number shows that a title is one of many, even if no other has its depth.
    if size < body[1] - 1 or (len(titles) < 2 and number_depth(titles[0].text) < SURE_DEPTH):
        return False
    if bold and not body[2]:
        return number > 1 or not are_sentences
    return number > 1 and (font, caps) != (body[0], body[3]) and not are_sentences


def _length(text: str) -> int:
    """Number of characters, East Asian ones counted twice because each is worth about two letters."""
    return len(text) + len(WIDE.findall(text))


def _set_level(page: list[PdfLine], block: _Block, level: int) -> None:
    for place in range(block.place, block.place + block.count):
        page[place] = replace(page[place], level=level)


# Titles over several lines


def _join_titles(page: Sequence[PdfLine]) -> list[PdfLine]:
    """Join the lines of each title, and a chapter's label above it, into one heading."""
    result: list[PdfLine] = []
    for line in page:
        while line.level and result and _is_label(result[-1], line):
            above = result.pop()
            # Add a full stop after a number in words, which otherwise looks like the first word of the title.
            spelled = SPELLED.match(above.text)
            mark = "." if spelled and spelled[1] else ""
            text = f"{above.text}{mark} {line.text}"
            line = replace(line, text=text, level=min(line.level, above.level or line.level))
        before = result[-1] if result else None
        if before and line.level and line.level == before.level and _same_title(before, line):
            result[-1] = replace(before, text=_text([before, line]), y=line.y, broken=line.broken)
        else:
            result.append(line)
    return result


def _is_label(above: PdfLine, title: PdfLine) -> bool:
    """Whether a line is the label, such as Chapter 3, of the chapter whose title is below."""
    near = above.page == title.page and 0 < above.y - title.y < 8 * title.size
    return near and bool((LABEL if above.level else SPELLED).match(above.text)) and (above.level > 0 or above.bold)


def _same_title(above: PdfLine, line: PdfLine) -> bool:
    """Whether a line continues the title above; a line with another section number begins a new title."""
    # A word in another font makes a title's line not bold, but not its other lines.
    alike = (above.bold == line.bold or above.font == line.font) and abs(above.size - line.size) < 0.5
    alike = alike and not (number_depth(above.text) > 1 and number_depth(line.text) > 1)
    return alike and 0 < above.y - line.y < 1.7 * line.size


def _text(run: Sequence[PdfLine]) -> str:
    text = run[0].text
    for above, line in pairwise(run):
        text += line.text if above.broken else f" {line.text}"
    return text
