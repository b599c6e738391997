"""Reader of a PDF's text layer by PDFium: positioned pieces of text, and bookmarks.

Runs only in resource-limited child processes (`system.child`).
"""

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from corpus.read.characters import (
    BLANKS,
    BROKEN_WORD,
    LIGATURES,
    LINE_ENDS,
    Span,
    Turns,
    WordGaps,
    clean,
    codes_of,
    printed_lines,
)
from corpus.read.doubt import LEFTWARD
from corpus.read.fonts import Fonts, TextObjects, bind_by_address
from corpus.read.formulas.accents import Accents
from corpus.read.formulas.drawings import PageDrawings, collect_drawings, split_labels
from corpus.read.formulas.fractions import assemble_fractions
from corpus.read.formulas.scripts import SMALLER, assemble_scripts
from corpus.read.formulas.signs import EXTENSION, GARBLED, HOLE, Signs
from corpus.read.formulas.stacks import mark_stacks
from corpus.read.printed import OutlineEntry, PdfContent, Piece

TYPED = {0x2018: ord("`"), 0x2019: ord("'")}
OFFICE_BULLETS = dict.fromkeys((0xF06E, 0xF09F, 0xF0A7, 0xF0A8, 0xF0B7, 0xF0D8), 0x2022)
"""Bullets of the fonts Symbol and Wingdings, whose signs have no Unicode values."""
AXIS = 0.25
"""Height above the baseline of the axis on which mathematical symbols are centred, in units of the font size."""
RULE_SLACK = 0.7
OVER = 1.8
"""Height above a baseline at which a rule may belong to the line, in units of the font size."""
SAME_BASELINE = 0.3
"""Largest distance between two baselines that count as the same, points."""
EMPTY = BLANKS | BROKEN_WORD | {HOLE} | frozenset(range(0x20))
FENCES = frozenset(map(ord, "()[]{}|\u2016\u2308\u2309\u230a\u230b\u27e8\u27e9"))
"""Brackets that may enclose several rows."""
BRACKETS = BLANKS | frozenset(map(ord, "{}<>|\\\u02d3\u2192\u21aa\u2423"))
# Width of a gap between cells or columns, in units of the font size; gaps between words of justified text are narrower.
GAP = 1.0
KERNED, SET_APART = 0.05, 0.3
"""Largest gap that is not a space, in a line of words and in one of spaced letters, in units of the font size."""
APART, LETTERS = 0.6, 8
"""A line is of spaced letters if more than APART of its gaps (counted as LETTERS at least) follow single letters."""
NUMBER_END = re.compile(r"(?<=[\w)\]])[+\u2212-]?\d+(?![\d.,]\d)")
"""Digits that may be a script, drawn by a font in the size of the text."""
SMALL, RAISED, LOWERED = 0.5, 0.25, 0.08
"""Largest height of the ink of such a script, and its least distances from the baseline, in units of the font size."""
TALL = 1.7
"""Least height of the ink of a tall bracket, in units of the font size."""
MAX_OUTLINE = 20_000

_loose_box = bind_by_address(raw.FPDFText_GetLooseCharBox, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
Gap = tuple[int, int, float]
"""Index of the last character before a run of spaces, that of the first after it, and the run's width in points."""


def read_pdf(path: str) -> PdfContent:
    """Read the pieces of text on every page, and the bookmarks."""
    with pdfium.PdfDocument(path) as document:
        coded = set[str]()
        content = _read_pages(document, coded)
        # A later page may show that a font gives its codes as Unicode values, which changes earlier pages too.
        return _read_pages(document, coded) if coded else content


def _read_pages(document: Any, coded: set[str]) -> PdfContent:
    pages: list[list[Piece]] = []
    labels: list[list[str]] = []
    unreadable = 0
    gaps = WordGaps()
    for index in range(len(document)):
        try:
            page, page_labels = _read_page(document, index, gaps, coded)
        except pdfium.PdfiumError:
            unreadable += 1
            page, page_labels = [], []
        pages.append(page)
        labels.append(page_labels)
    return PdfContent(pages=pages, labels=labels, outline=read_outline(document), unreadable=unreadable)


def read_outline(document: Any) -> list[OutlineEntry]:
    """Read the bookmarks of an open document."""
    height_places = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0}
    entries = []
    for item in document.get_toc(max_depth=8):
        destination = item.get_dest()
        index = destination.get_index() if destination else None
        page = -1 if index is None else int(index)
        y = None
        if destination and page >= 0:
            view, values = destination.get_view()
            place = height_places.get(view)
            if place is not None and len(values) > place and values[place] is not None:
                y = float(values[place])
        entries.append(OutlineEntry(level=item.level + 1, title=clean(item.get_title()), page=page, y=y))
        if len(entries) >= MAX_OUTLINE:
            break
    return entries


def _read_page(document: Any, index: int, gaps: WordGaps, coded: set[str]) -> tuple[list[Piece], list[str]]:
    """Read a page: its pieces of text, and the labels within its drawings or in another direction."""
    page = document[index]
    textpage = page.get_textpage()
    try:
        # Pass the bare handle: converting the wrapper costs as much as many of the calls.
        drawings = collect_drawings(page.raw)
        reader = _PageReader(textpage.raw, drawings, gaps, coded)
        pieces = [piece for start, end, broken in reader.lines for piece in reader.pieces(start, end, broken)]
        text, labels = split_labels([piece for piece in pieces if piece.text.strip()], drawings)
        text = assemble_fractions(text, reader.rules) if reader.rules else text
        return assemble_scripts(mark_stacks(text)), [*(label.text for label in labels), *reader.labels]
    finally:
        textpage.close()
        page.close()


class _PageReader:
    """Reader of one page's characters. Each call of PDFium covers one character, so calls are made only if needed."""

    def __init__(self, textpage: Any, drawings: PageDrawings, gaps: WordGaps, coded: set[str]) -> None:
        self.textpage = textpage
        self.codes = [OFFICE_BULLETS.get(code, code) for code in codes_of(textpage)]
        self.rect = raw.FS_RECTF()
        self.address, self.rect_address = ctypes.cast(textpage, ctypes.c_void_p), ctypes.addressof(self.rect)
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.box = [ctypes.c_double() for _ in range(4)]
        self.objects = TextObjects(textpage, len(self.codes))
        self.fonts = Fonts(textpage, self.codes, self.objects)
        Signs(textpage, self.codes, self.fonts, coded).replace_codes()
        self._mark_unknown_hyphens()
        self.accents = Accents(textpage, self.codes)
        self.rules = self.accents.add_underscores(drawings.rules)
        self.missing_blanks = gaps.missing_on(textpage, self.codes)
        spans = list(printed_lines(self.codes))
        turns = Turns(textpage, self.codes, spans, self.objects)
        self.turns = turns.page
        self.lines: list[Span] = []
        self.labels: list[str] = []
        self.scripts: dict[int, str] = {}
        for start, end, _ in spans if drawings.hidden else ():
            places = [place for place in range(start, end) if self.objects.of(place) in drawings.hidden]
            if text := clean("".join(chr(self.codes[place]) for place in places)):
                self.labels.append(text)
            for place in places:
                self.codes[place] = HOLE
        for span, straight in [part for line in spans for part in turns.split(line)]:
            if straight:
                self.lines.append(span)
            elif text := self._text(*span[:2]):
                self.labels.append(text)
        if not self.turns:
            self.scripts.update(self._typographic_scripts())
        self.fonts.expect([self._middle(start, end) for start, end, _ in self.lines], self.turns)
        # TeX's monospaced fonts draw the keyboard's ` and ' as curly quotes; program code needs those of the keyboard.
        # A font that also has straight quotes prints what its author typed.
        straight_fonts = {self.fonts.of(index)[0] for index, code in enumerate(self.codes) if code in TYPED.values()}
        for index, code in enumerate(self.codes):
            if code in TYPED and self.fonts.of(index)[2] and self.fonts.of(index)[0] not in straight_fonts:
                self.codes[index] = TYPED[code]

    def _mark_unknown_hyphens(self) -> None:
        """Mark as garbled the characters within a line that PDFium takes for a hyphen at a line's end."""
        for index, code in enumerate([] if BROKEN_WORD.isdisjoint(self.codes) else self.codes[:-1]):
            if code not in BROKEN_WORD or self.codes[index + 1] in LINE_ENDS:
                continue
            raw.FPDFText_GetCharOrigin(self.textpage, index, self.x, self.y)
            x, y = self.x.value, self.y.value
            raw.FPDFText_GetCharOrigin(self.textpage, index + 1, self.x, self.y)
            if min(abs(self.x.value - x), abs(self.y.value - y)) < SAME_BASELINE:
                self.codes[index] = ord(GARBLED)

    def _edges(self, index: int) -> tuple[float, float]:
        """Beginning and end of a character in reading direction, points."""
        rect = self.rect
        _loose_box(self.address, index, self.rect_address)
        if not self.turns:
            return rect.left, rect.right
        return {1: (rect.bottom, rect.top), 2: (-rect.right, -rect.left), 3: (-rect.top, -rect.bottom)}[self.turns]

    def _baseline(self, index: int) -> float:
        raw.FPDFText_GetCharOrigin(self.textpage, index, self.x, self.y)
        return (self.y.value, -self.x.value, -self.y.value, self.x.value)[self.turns]

    def _typographic_scripts(self) -> Iterator[tuple[int, str]]:
        """Yield the raised and lowered digits that the font draws on the baseline, with their text: `^{6}`."""
        for match in NUMBER_END.finditer("".join(map(chr, self.codes))):
            first, last = match.end() - 1, match.end() - 1
            if not (side := self._side(last)):
                continue
            while first > match.start() and self._side(first - 1) == side:
                first -= 1
            for place in range(first, last + 1):
                sign = f"{side}{{{chr(self.codes[place])}" if place == first else chr(self.codes[place])
                yield place, f"{sign}}}" if place == last else sign

    def _side(self, index: int) -> str:
        """Sign of a script by the ink of a character above or below its baseline; empty for any other character."""
        bottom, top = self._ink(index)
        size = self.objects.size_of(index)
        if top - bottom > SMALL * size:
            return ""
        rise = bottom - self._baseline(index)
        return "^" if rise > RAISED * size else "_" if rise < -LOWERED * size else ""

    def pieces(self, start: int, end: int, broken: bool) -> Iterator[Piece]:
        """Cut a line into pieces at its wide gaps."""
        codes = self.codes
        while start < end and codes[start] in EMPTY:
            start += 1
        while end > start and codes[end - 1] in EMPTY:
            end -= 1
        if start == end:
            return
        middle = self._middle(start, end)
        size, ends = self.objects.size_of(middle), list[float]()
        if self.rules and not self.turns:
            # The rule of a root or an overline divides the line's text at its ends.
            base = self._baseline(middle)
            near = [rule for rule in self.rules if 0.3 * size < rule.y - base < OVER * size]
            ends = [end for rule in near for end in (rule.x0, rule.x1)]
        gaps = self._word_gaps(list(self._gaps(start, end)), start, end, size)
        wide = [gap for gap in gaps if gap[2] > size * GAP or self._ends_number(start, gap)]
        cell_starts, cell_ends = [start, *(gap[1] for gap in wide)], [*(gap[0] + 1 for gap in wide), end]
        for first, last in zip(cell_starts, cell_ends, strict=True):
            runs = list(self._runs(first, last, ends))
            for begin, stop in runs:
                inner = [gap for gap in gaps if begin <= gap[0] and gap[1] < stop]
                piece = self._piece(begin, stop, inner, broken and stop == end)
                if len(runs) > 1:
                    piece = replace(piece, run=True, slanted=self.fonts.is_slanted(stop - 1))
                if not EXTENSION.search(piece.font):
                    tall = [end for end in (begin, stop - 1) if codes[end] in FENCES and self._is_tall(end, piece.size)]
                    piece = replace(piece, tall=True) if tall else piece
                else:
                    # Large operators hang below the baseline: the middle of their ink gives the line's height.
                    piece = replace(piece, y=round(sum(self._ink(begin)) / 2 - AXIS * piece.size, 2))
                yield piece

    def _ends_number(self, start: int, gap: Gap) -> bool:
        """Whether only digits are before a gap and code in another font after it: they may count the lines."""
        before, after, _ = gap
        digits = all(0x30 <= code <= 0x39 for code in self.codes[start : before + 1])
        return digits and self.fonts.of(after)[2] and not self.fonts.of(before)[2]

    def _runs(self, first: int, last: int, ends: Sequence[float]) -> Iterator[tuple[int, int]]:
        """Divide characters into stretches on one baseline; yields (first character, one past the last)."""
        begin, stop, base = first, first, None
        for index, after in self._level_stretches(first, last, one_by_one=bool(ends)):
            level = self._baseline(index)
            if base is None:
                base = level
            elif abs(level - base) > SAME_BASELINE or (ends and self._has_rule_end(stop - 1, index, ends)):
                yield from self._split_by_size(begin, stop)
                begin, base = index, level
            stop = after
        yield from self._split_by_size(begin, last)

    def _level_stretches(self, first: int, last: int, *, one_by_one: bool) -> Iterator[tuple[int, int]]:
        """Divide characters into stretches of one text object on one baseline; yields (first, one past the last)."""
        codes, index = self.codes, first
        while index < last:
            if codes[index] in EMPTY:
                index += 1
                continue
            after = index + 1 if one_by_one else self.objects.end(index, last)
            end = after
            while codes[end - 1] in EMPTY:
                end -= 1
            if end - index > 1 and abs(self._baseline(end - 1) - self._baseline(index)) <= SAME_BASELINE:
                yield index, end
            else:
                yield from ((place, place + 1) for place in range(index, end) if codes[place] not in EMPTY)
            index = after

    def _split_by_size(self, begin: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cut a stretch at its first space if the size grows there: a script of a script can be on the baseline."""
        blank = next((index for index in range(begin, stop) if self.codes[index] in BLANKS), stop)
        after = next((index for index in range(blank, stop) if self.codes[index] not in EMPTY), stop)
        if begin < blank and after < stop and self.objects.size_of(begin) < SMALLER * self.objects.size_of(after):
            yield begin, blank
            begin = after
        yield begin, stop

    def _has_rule_end(self, before: int, index: int, ends: Sequence[float]) -> bool:
        """Whether a rule ends between two characters."""
        left = self._edges(index)[0]
        right = self._edges(before)[1]
        return any(right - RULE_SLACK < end < left + RULE_SLACK for end in ends)

    def _ink(self, index: int) -> tuple[float, float]:
        """Lower and upper end of a character's ink, points."""
        left, right, bottom, top = self.box
        raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        return (-right.value, -left.value) if self.turns % 2 else (bottom.value, top.value)

    def _is_tall(self, index: int, size: float) -> bool:
        bottom, top = self._ink(index)
        return top - bottom > TALL * size

    def _gaps(self, start: int, end: int) -> Iterator[Gap]:
        """Yield every run of spaces."""
        codes = self.codes
        place = start
        while place < end:
            if codes[place] not in BLANKS:
                place += 1
                continue
            before = place - 1
            # An accent is drawn apart from the letter with which it was composed.
            while codes[before] == HOLE:
                before -= 1
            while codes[place] in BLANKS or codes[place] == HOLE:
                place += 1
            yield before, place, self._edges(place)[0] - self._edges(before)[1]

    def _word_gaps(self, gaps: list[Gap], start: int, end: int, size: float) -> list[Gap]:
        """Gaps between words. Spaces that PDFium inserted for kerning or between spaced letters are removed."""
        words = pairwise([start, *(gap[1] for gap in gaps)])
        single = sum(1 for left, right in words if right - left == 2 and chr(self.codes[left]).isalpha())
        least = (SET_APART if single > APART * max(len(gaps), LETTERS) else KERNED) * size
        between_words = []
        for before, after, width in gaps:
            if -least <= width < least and self._is_kerning(before + 1, after, width):
                self.codes[before + 1 : after] = [HOLE] * (after - before - 1)
            else:
                between_words.append((before, after, width))
        return between_words

    def _is_kerning(self, first: int, last: int, width: float) -> bool:
        """Whether PDFium inserted all spaces of a narrow gap; a negative gap is one only at a composed accent."""
        places = [place for place in range(first, last) if self.codes[place] != HOLE]
        is_apart = width >= 0 or len(places) < last - first
        return is_apart and all(raw.FPDFText_IsGenerated(self.textpage, place) for place in places)

    def _piece(self, first: int, last: int, gaps: list[Gap], broken: bool) -> Piece:
        x0, x1 = self._edges(first)[0], self._edges(last - 1)[1]
        middle = self._middle(first, last)
        name, bold, mono = self.fonts.of(middle)
        ends = [(bold, mono)]
        if last - first >= 3:
            # Skip brackets at both ends, and signs of a continued line: TeX takes those of a listing from another font.
            inner_first, inner_last = first, last - 1
            while inner_first < inner_last and self.codes[inner_last] in BRACKETS:
                inner_last -= 1
            while inner_first < inner_last and self.codes[inner_first] in BRACKETS:
                inner_first += 1
            ends = [self.fonts.of(end)[1:] for end in (inner_first, inner_last)]
        # The line number of a listing is often set in another font.
        is_digit = 0x30 <= self.codes[first] <= 0x39
        mono = mono and all(fixed for _, fixed in ends[is_digit:])
        text = self._typewriter_text(first, last, gaps, x1 - x0) if mono else self._text(first, last)
        if LEFTWARD.search(text):
            # PDFium reverses the parts of a right-to-left line one by one, so they are not in the sentence's order.
            text, x0, x1 = text + GARBLED, min(x0, x1), max(x0, x1)
        return Piece(
            text=text,
            x0=round(x0, 2),
            x1=round(x1, 2),
            y=round(self._baseline(middle), 2),
            size=self.objects.size_of(middle),
            font=name,
            bold=bold and all(heavy for heavy, _ in ends),
            mono=mono,
            broken=broken,
        )

    def _middle(self, first: int, last: int) -> int:
        """Index of a printed character near the middle; a space has no font size."""
        middle = first + (last - first) // 2
        while middle > first and self.codes[middle] in EMPTY:
            middle -= 1
        return middle

    def _text(self, first: int, last: int) -> str:
        signs = [LIGATURES.get(code) or chr(code) for code in self.codes[first:last]]
        if self.missing_blanks:
            signs = [f"{sign} " if place in self.missing_blanks else sign for place, sign in enumerate(signs, first)]
        if self.scripts:
            signs = [self.scripts.get(place, sign) for place, sign in enumerate(signs, first)]
        text = clean(self.accents.compose(signs, range(first, last)) if self.accents.of else "".join(signs))
        # A sign of which the file says no more than that it is unknown.
        return text.replace("\ufffd", GARBLED)

    def _typewriter_text(self, first: int, last: int, gaps: list[Gap], width: float) -> str:
        """Text of a monospaced line, with gaps filled by as many spaces as they are wide."""
        blanks = sum(gap for _, _, gap in gaps)
        inked = last - first - sum(after - before - 1 for before, after, _ in gaps)
        advance = max((width - blanks) / max(inked, 1), 0.1)
        parts, start = [], first
        for before, after, gap in gaps:
            # PDFium inserts a space also between the letters of a listing with wide letter spacing.
            inserted = all(raw.FPDFText_IsGenerated(self.textpage, place) for place in range(before + 1, after))
            parts += [self._text(start, before + 1), " " * max(not inserted, round(gap / advance))]
            start = after
        return "".join([*parts, self._text(start, last)])
