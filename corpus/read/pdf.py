"""PDF reader: positioned pieces of text and the outline. Called in limited processes only (`infuser_core.child`)."""

import ctypes
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from corpus.read.printed import OutlineEntry, Piece, Printed

# PDFium marks the hyphen of a word broken at a line end with one of these instead of "-".
BROKEN_WORD = frozenset({0x02, 0xFFFE})
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
DROPPED = dict.fromkeys(
    [*range(9), 11, 12, *range(14, 0x20), 0x7F, *range(0x80, 0xA0), 0xAD, 0x200B, 0xFEFF, 0xFFFE, 0xFFFF]
)


def clean(text: str) -> str:
    """Blanks collapsed, control characters dropped, surrogate halves (PDFium returns them one by one) joined."""
    if not text.isascii():
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = whole.replace("\u00a0", " ")
    return " ".join(text.translate(DROPPED).split())


BOLD = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx|ecbx|cmb\d|-bd|\bmedi\b", re.IGNORECASE)
MONO = re.compile(r"mono|courier|typewriter|consol|cmtt|sftt|ectt|txtt|code\b|menlo|inconsolata", re.IGNORECASE)
SUBSET = re.compile(r"^[A-Z]{6}\+")
BOLD_WEIGHT = 600
FIXED_PITCH = 1
LINE_ENDS = frozenset({0x0A, 0x0D})
BLANKS = frozenset({0x20, 0xA0})
# Space between words of justified text stays below one em; cells of a table and columns are further apart.
GAP = 1.0
MAX_OUTLINE = 20_000


def count_pages(path: str) -> int:
    """Number of pages, after the first one was parsed."""
    with pdfium.PdfDocument(path) as document:
        if len(document):
            document[0].get_textpage()
        return len(document)


def read(path: str, *, first: int = 0, last: int | None = None) -> Printed:
    """Pieces of the pages `first` to `last` (exclusive) and the whole outline."""
    with pdfium.PdfDocument(path) as document:
        pages: list[list[Piece]] = []
        unreadable = []
        for index in range(first, len(document) if last is None else min(last, len(document))):
            try:
                pages.append(_page(document, index))
            except pdfium.PdfiumError:
                unreadable.append(index)
                pages.append([])
        return Printed(pages=pages, outline=_outline(document), unreadable=unreadable)


def _outline(document: Any) -> list[OutlineEntry]:
    entries = []
    for item in document.get_toc(max_depth=8):
        destination = item.get_dest()
        index = destination.get_index() if destination else None
        page = -1 if index is None else int(index)
        y = _height(destination) if destination and page >= 0 else None
        entries.append(OutlineEntry(level=item.level + 1, title=clean(item.get_title()), page=page, y=y))
        if len(entries) >= MAX_OUTLINE:
            break
    return entries


def _height(destination: Any) -> float | None:
    kind, values = destination.get_view()
    place = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0}.get(kind)
    return float(values[place]) if place is not None and len(values) > place and values[place] is not None else None


def _page(document: Any, index: int) -> list[Piece]:
    page = document[index]
    textpage = page.get_textpage()
    try:
        reader = _Reader(textpage)
        pieces = [piece for start, end, broken in reader.lines for piece in reader.pieces(start, end, broken)]
        return [piece for piece in pieces if piece.text.strip()]
    finally:
        textpage.close()
        page.close()


class _Reader:
    """One page's characters. PDFium answers per character; asking only where it matters keeps this fast."""

    def __init__(self, textpage: Any) -> None:
        self.textpage = textpage
        self.codes = codes_of(textpage)
        self.rect = raw.FS_RECTF()
        self.x, self.y = ctypes.c_double(), ctypes.c_double()
        self.name = ctypes.create_string_buffer(128)
        self.matrix = raw.FS_MATRIX()
        self.fonts: dict[bytes, tuple[str, bool, bool]] = {}
        self.lines = list(_lines(self.codes))
        self.turns = self._turns()

    def _turns(self) -> int:
        """Quarter turns of most lines: a page may be printed sideways."""
        turns: Counter[int] = Counter()
        for start, _, _ in self.lines[:: max(1, len(self.lines) // 8)]:
            if raw.FPDFText_GetMatrix(self.textpage, start, self.matrix):
                turns[round(math.atan2(self.matrix.b, self.matrix.a) / (math.pi / 2)) % 4] += 1
        return turns.most_common(1)[0][0] if turns else 0

    def _edges(self, index: int) -> tuple[float, float]:
        """Beginning and end of a character in reading direction, points."""
        rect = self.rect
        raw.FPDFText_GetLooseCharBox(self.textpage, index, rect)
        if not self.turns:
            return rect.left, rect.right
        return {1: (rect.bottom, rect.top), 2: (-rect.right, -rect.left), 3: (-rect.top, -rect.bottom)}[self.turns]

    def _baseline(self, index: int) -> float:
        raw.FPDFText_GetCharOrigin(self.textpage, index, self.x, self.y)
        return (self.y.value, -self.x.value, -self.y.value, self.x.value)[self.turns]

    def pieces(self, start: int, end: int, broken: bool) -> Iterator[Piece]:
        """The line cut at its wide gaps."""
        codes = self.codes
        while start < end and _empty(codes[start]):
            start += 1
        while end > start and _empty(codes[end - 1]):
            end -= 1
        if start == end:
            return
        size = self._size(self._middle(start, end))
        gaps = list(self._gaps(start, end))
        for first, last, inner in _cells(gaps, start, end, size * GAP):
            yield self._piece(
                first, last, inner, size if (first, last) == (start, end) else None, broken and last == end
            )

    def _gaps(self, start: int, end: int) -> Iterator[tuple[int, int, float]]:
        """(last character before, first character after, width in points) of every run of blanks."""
        codes = self.codes
        place = start
        while place < end:
            if codes[place] not in BLANKS:
                place += 1
                continue
            before = place - 1
            while codes[place] in BLANKS:
                place += 1
            yield before, place, self._edges(place)[0] - self._edges(before)[1]

    def _piece(
        self, first: int, last: int, gaps: list[tuple[int, int, float]], size: float | None, broken: bool
    ) -> Piece:
        x0, x1 = self._edges(first)[0], self._edges(last - 1)[1]
        middle = self._middle(first, last)
        name, bold, mono = self._font(middle)
        ends = [(bold, mono)] if last - first < 3 else [self._font(first)[1:], self._font(last - 1)[1:]]
        # The number in front of a line of a listing is often set in another font.
        mono = mono and all(fixed for _, fixed in ends[self._is_digit(first) :])
        return Piece(
            text=self._spaced(first, last, gaps, x1 - x0) if mono else self._text(first, last),
            x0=round(x0, 2),
            x1=round(x1, 2),
            y=round(self._baseline(middle), 2),
            size=self._size(middle) if size is None else size,
            font=name,
            bold=bold and all(heavy for heavy, _ in ends),
            mono=mono,
            broken=broken,
        )

    def _middle(self, first: int, last: int) -> int:
        """A character in the middle that is printed: a blank has no size of its own."""
        middle = first + (last - first) // 2
        while middle > first and _empty(self.codes[middle]):
            middle -= 1
        return middle

    def _is_digit(self, index: int) -> bool:
        return 0x30 <= self.codes[index] <= 0x39

    def _text(self, first: int, last: int) -> str:
        return clean("".join([LIGATURES.get(code) or chr(code) for code in self.codes[first:last]]))

    def _spaced(self, first: int, last: int, gaps: list[tuple[int, int, float]], width: float) -> str:
        """Typewriter text with as many blanks as the gaps are wide."""
        blanks = sum(gap for _, _, gap in gaps)
        inked = last - first - sum(after - before - 1 for before, after, _ in gaps)
        advance = max((width - blanks) / max(inked, 1), 0.1)
        parts, start = [], first
        for before, after, gap in gaps:
            parts += [self._text(start, before + 1), " " * max(1, round(gap / advance))]
            start = after
        return "".join([*parts, self._text(start, last)])

    def _size(self, index: int) -> float:
        scale = 1.0
        if raw.FPDFText_GetMatrix(self.textpage, index, self.matrix):
            scale = math.hypot(self.matrix.c, self.matrix.d) or 1.0
        return round(raw.FPDFText_GetFontSize(self.textpage, index) * scale, 1)

    def _font(self, index: int) -> tuple[str, bool, bool]:
        """(name, bold, typewriter)"""
        flags = ctypes.c_int()
        raw.FPDFText_GetFontInfo(self.textpage, index, self.name, len(self.name), flags)
        value = self.name.value
        if value not in self.fonts:
            name = SUBSET.sub("", value.decode("utf-8", "replace"))
            heavy = raw.FPDFText_GetFontWeight(self.textpage, index) >= BOLD_WEIGHT or bool(BOLD.search(name))
            self.fonts[value] = (name, heavy, bool(MONO.search(name)) or bool(flags.value & FIXED_PITCH))
        return self.fonts[value]


def _lines(codes: list[int]) -> Iterator[tuple[int, int, bool]]:
    """(first character, one past the last, whether the last word goes on) of every printed line."""
    start = 0
    for place, code in enumerate(codes):
        ends = code in LINE_ENDS
        if not ends and code not in BROKEN_WORD:
            continue
        if place > start:
            yield start, place, not ends
        start = place + 1
    if len(codes) > start:
        yield start, len(codes), False


def codes_of(textpage: Any) -> list[int]:
    """UTF-16 code of every character: read at once where the bulk text has one unit per character."""
    count = raw.FPDFText_CountChars(textpage)
    buffer = (ctypes.c_ushort * (count + 2))()
    written = raw.FPDFText_GetText(textpage, 0, count, buffer) - 1
    if written == count:
        return array("H", bytes(buffer)[: 2 * count]).tolist()
    return [min(raw.FPDFText_GetUnicode(textpage, index), 0xFFFF) for index in range(count)]


def _empty(code: int) -> bool:
    return code <= 0x20 or code == 0xA0 or code in BROKEN_WORD


def _cells(
    gaps: list[tuple[int, int, float]], start: int, end: int, width: float
) -> Iterator[tuple[int, int, list[tuple[int, int, float]]]]:
    inner: list[tuple[int, int, float]] = []
    for before, after, gap in gaps:
        if gap > width:
            yield start, before + 1, inner
            start, inner = after, []
        else:
            inner.append((before, after, gap))
    yield start, end, inner
