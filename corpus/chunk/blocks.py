"""Markdown as a gapless row of blocks with character offsets. Nothing is rewritten.

Headings are those of CommonMark at the top level: not in code, HTML, lists or quotations. Two differences are meant:
display formulas (`$$` and `\\[`) are blocks, and an opener that never closes is text instead of swallowing the book.
A line ends at LF, CR or CR LF, as in CommonMark; `str.splitlines` would also break at form feeds and U+2028.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of block. Code, math and table are never cut unless they alone exceed the limit."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    CODE = "code"
    MATH = "math"
    TABLE = "table"
    BLANK = "blank"


MAX_ROWS = 5000
"""An opener that is still open after so many lines is text."""
ATOMIC = frozenset({Kind.CODE, Kind.MATH, Kind.TABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One span of the source."""

    kind: Kind
    """Kind of block."""
    start: int
    """First character."""
    end: int
    """One past the last character, line end included."""
    level: int = 0
    """Heading level 1-6; 0 otherwise."""
    title: str = ""
    """Heading text without markers; empty otherwise."""


LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|$)")
ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$", re.DOTALL)
CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
INDENTED = re.compile(r" {4}| {0,3}\t")
RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$")
ITEM = re.compile(r" {0,3}(?:[-+*]|(\d{1,9})[.)])(?:([ \t]+)(?=[^ \t])|[ \t]*$)")
HOLLOW = re.compile(r" {0,3}(?:(?:[-+*]|\d{1,9}[.)])(?:[ \t]+|$)|>[ \t]*)+$")
QUOTE = re.compile(r" {0,3}>")
DEFINITION = re.compile(
    r" {0,3}\[(?:[^\[\]\\]|\\.)+\]:[ \t]*[^ \t]+(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?[ \t]*$"
)
DELIMITERS = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
RAW_TAGS = re.compile(r" {0,3}<(?:script|pre|style|textarea)(?:[ \t>]|$)", re.IGNORECASE)
RAW_END = re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE)
HTML_SPANS = (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"))
BLOCK_TAG = re.compile(
    r" {0,3}</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir"
    r"|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link"
    r"|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead"
    r"|title|tr|track|ul)(?:[ \t]|/?>|$)",
    re.IGNORECASE,
)
ATTRIBUTE = r"[ \t]+[A-Za-z_:][\w.:-]*(?:[ \t]*=[ \t]*(?:[^ \t\"'=<>`]+|'[^']*'|\"[^\"]*\"))?"
LONE_TAG = re.compile(
    rf" {{0,3}}(?:<[A-Za-z][A-Za-z0-9-]*(?:{ATTRIBUTE})*[ \t]*/?>|</[A-Za-z][A-Za-z0-9-]*[ \t]*>)[ \t]*$"
)
# Lines that begin with none of these, after up to three blanks, can be nothing but text.
STARTERS = frozenset("#`~$\\<|>-+*=_0123456789")


def scan(source: str) -> list[Block]:
    """Blocks that tile the source: the first starts at 0, each starts where the one before ends."""
    return list(_Scanner(source).blocks())


class _Scanner:
    """The rows of one source, and where its spans close."""

    def __init__(self, source: str) -> None:
        found = [match for match in LINE.finditer(source) if match.end() > match.start()]
        self.texts = [match[1] for match in found]
        self.starts = [match.start() for match in found] + [len(source)]
        self.closers: dict[str, list[int]] = {}
        self.item = 0

    def blocks(self) -> Iterator[Block]:
        place = 0
        while place < len(self.texts):
            block, place = self._next(place)
            yield block

    def _block(self, kind: Kind, place: int, stop: int, *, level: int = 0, title: str = "") -> tuple[Block, int]:
        start, end = self.starts[place], self.starts[stop]
        return Block(kind=kind, start=start, end=end, level=level, title=title), stop

    def _next(self, place: int) -> tuple[Block, int]:
        text = self.texts[place]
        bare = text.lstrip(" \t")
        if not bare:
            stop = place + 1
            while stop < len(self.texts) and not self.texts[stop].strip(" \t"):
                stop += 1
            return self._block(Kind.BLANK, place, stop)
        inside = self.item and _width(text) >= self.item
        if not inside:
            self.item = 0
        if bare[0] not in STARTERS and text[0] not in " \t" and "|" not in text:
            return self._paragraph(place, inside=bool(inside))
        if not inside and (atx := ATX.match(text)):
            title = _without_closing_hashes(text[atx.end() :])
            return self._block(Kind.HEADING, place, place + 1, level=len(atx[1]), title=title)
        if found := self._span(place):
            return self._block(found[0], place, found[1])
        if INDENTED.match(self._inner(text) if inside else text):
            return self._block(Kind.CODE, place, self._while_indented(place))
        if self._starts_table(place):
            return self._block(Kind.TABLE, place, self._table_end(place))
        if RULE.match(text) or (inside and ATX.match(self._inner(text))):
            return self._block(Kind.PARAGRAPH, place, place + 1)
        return self._paragraph(place, inside=bool(inside))

    # Spans with an opener and a closer

    def _span(self, place: int) -> tuple[Kind, int] | None:
        """A fence, display formula or HTML block and the row after its end. One that never closes is text."""
        text = self.texts[place]
        bare = text.strip(" \t")
        if not bare or bare[0] not in "`~$\\<" or INDENTED.match(text):
            return None
        if bare[0] == "<":
            stop = self._html_end(place, bare)
            return (Kind.CODE, stop) if stop else None
        if (fence := FENCE.match(text)) and not (bare[0] == "`" and "`" in fence[2]):
            stop = self._fence_end(place, bare[0], len(fence[1]))
            return (Kind.CODE, stop) if stop else None
        for opener, closer in (("$$", "$$"), ("\\[", "\\]")):
            if bare.startswith(opener):
                stop = self._formula_end(place, bare, closer)
                return (Kind.MATH, stop) if stop else None
        return None

    def _fence_end(self, place: int, sign: str, length: int) -> int:
        """Row after the first closing fence that is long enough; 0 without one."""
        rows = self._rows_that(sign, lambda text: bool((end := CLOSING.match(text)) and end[1][0] == sign))
        for number in range(bisect_right(rows, place), len(rows)):
            if rows[number] - place > MAX_ROWS:
                return 0
            if len(self.texts[rows[number]].strip(" \t")) >= length:
                return rows[number] + 1
        return 0

    def _formula_end(self, place: int, bare: str, closer: str) -> int:
        """Row after the closing sign; 0 where an empty line comes first, which a formula cannot have."""
        if bare.endswith(closer) and len(bare) >= 4:
            return place + 1
        ends = self._rows_that(closer, lambda text: text.rstrip(" \t").endswith(closer))
        blanks = self._rows_that("blank", lambda text: not text.strip(" \t"))
        end, blank = (_after(rows, place) for rows in (ends, blanks))
        return end + 1 if end is not None and (blank is None or end < blank) else 0

    def _html_end(self, place: int, bare: str, *, in_text: bool = False) -> int:
        """Row after an HTML block; 0 where none begins."""
        text = self.texts[place]
        if RAW_TAGS.match(text):
            return self._closed(place, "raw", RAW_END)
        for opener, closer in HTML_SPANS:
            if bare.startswith(opener):
                return self._closed(place, closer, re.compile(re.escape(closer)))
        if re.match(r"<![A-Za-z]", bare):
            return self._closed(place, "declaration", re.compile(">"))
        if BLOCK_TAG.match(text) or (not in_text and LONE_TAG.match(text)):
            return self._while_inked(place)
        return 0

    def _closed(self, place: int, name: str, closer: re.Pattern[str]) -> int:
        rows = self._rows_that(name, lambda text: bool(closer.search(text)))
        number = bisect_right(rows, place - 1)
        return rows[number] + 1 if number < len(rows) and rows[number] - place <= MAX_ROWS else 0

    def _rows_that(self, name: str, closes: Callable[[str], bool]) -> list[int]:
        """Rows that close a kind of span; looked for once."""
        if name not in self.closers:
            self.closers[name] = [number for number, text in enumerate(self.texts) if closes(text)]
        return self.closers[name]

    # Runs of rows

    def _while_inked(self, place: int) -> int:
        stop = place + 1
        while stop < len(self.texts) and self.texts[stop].strip(" \t"):
            stop += 1
        return stop

    def _while_indented(self, place: int) -> int:
        stop = place + 1
        while stop < len(self.texts) and self.texts[stop].strip(" \t") and INDENTED.match(self.texts[stop]):
            stop += 1
        return stop

    def _starts_table(self, place: int) -> bool:
        """A row of cells above a row of dashes with as many cells."""
        text = self.texts[place]
        below = self.texts[place + 1] if place + 1 < len(self.texts) else ""
        if "|" not in text or "-" not in below or not DELIMITERS.match(below):
            return False
        return ("|" in below or text.count("|") == 1) and _cells(text) == _cells(below)

    def _table_end(self, place: int) -> int:
        stop = place + 2
        while stop < len(self.texts) and self.texts[stop].strip(" \t"):
            if INDENTED.match(self.texts[stop]) or self._interrupts(self.texts[stop], stop):
                break
            stop += 1
        return stop

    # Text

    def _paragraph(self, place: int, *, inside: bool) -> tuple[Block, int]:
        """Text up to an empty line or another block; with an underline it is a heading."""
        opened = self._opens(place)
        titled = not inside and not opened
        if opened and not inside:
            self.item = opened
        # A marker without text, or a link definition, has no text that the next line could continue.
        alone = HOLLOW.match(self.texts[place]) or (titled and DEFINITION.match(self.texts[place]))
        stop = place + 1
        while stop < len(self.texts) and not alone:
            text = self.texts[stop]
            first = text.lstrip(" \t")[:1]
            if not first:
                break
            if first in STARTERS or "|" in text:
                if titled and (underline := SETEXT.match(text)):
                    title = " ".join(row.strip(" \t") for row in self.texts[place:stop])
                    level = 1 if underline[1][0] == "=" else 2
                    return self._block(Kind.HEADING, place, stop + 1, level=level, title=title)
                if self._interrupts(self._inner(text), stop) or (opened and ITEM.match(text)):
                    break
            stop += 1
        return self._block(Kind.PARAGRAPH, place, stop)

    def _opens(self, place: int) -> int:
        """Width of the list marker that a row begins with, 1 for a quotation, 0 for plain text."""
        text = self.texts[place]
        if QUOTE.match(text):
            return 1 << 30
        item = ITEM.match(text)
        if not item:
            return 0
        marker = len(text[: item.end() - len(item[2] or "")].expandtabs(4))
        gap = len(text[: item.end()].expandtabs(4)) - marker
        return marker + (gap if item[2] and gap <= 4 else 1)

    def _inner(self, text: str) -> str:
        """A row without the indentation that makes it part of a list item."""
        width = _width(text)
        return " " * (width - self.item) + text.lstrip(" \t") if 0 < self.item <= width else text

    def _interrupts(self, text: str, place: int) -> bool:
        """Whether a row ends the paragraph above it."""
        if INDENTED.match(text):
            return False
        if ATX.match(text) or RULE.match(text) or QUOTE.match(text):
            return True
        if (item := ITEM.match(text)) and item[2] and item[1] in (None, "1"):
            return True
        bare = text.strip(" \t")
        if bare[0] == "<":
            return bool(self._html_end(place, bare, in_text=True))
        # A table does not begin on a line that continues a list item without its indentation.
        lazy = self.item > _width(self.texts[place])
        return bool(self._span(place)) or (not lazy and self._starts_table(place))


def _after(rows: list[int], place: int) -> int | None:
    """The first of the rows below a place."""
    number = bisect_right(rows, place)
    return rows[number] if number < len(rows) else None


def _width(text: str) -> int:
    """Columns of indentation."""
    lead = text[: len(text) - len(text.lstrip(" \t"))]
    return len(lead.expandtabs(4)) if lead else 0


def _cells(text: str) -> int:
    return len(text.strip(" \t").strip("|").replace("\\|", "").split("|"))


def _without_closing_hashes(text: str) -> str:
    bare = text.strip(" \t")
    open_end = bare.rstrip("#")
    return open_end.rstrip(" \t") if not open_end or open_end[-1] in " \t" else bare
