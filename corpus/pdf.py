"""Reads a PDF into positioned lines and its outline. Called inside a limited process only (see `corpus.child`)."""

import ctypes
import math
import re
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

BOLD = re.compile(r"bold|black|heavy|semibold|cmbx|sfbx|medi\b", re.IGNORECASE)
MONO = re.compile(r"mono|courier|typewriter|consol|cmtt|sftt|code", re.IGNORECASE)
BOLD_WEIGHT = 600
LINE_ENDS = frozenset({0x0A, 0x0D})
# PDFium marks the hyphen of a word broken at a line end with one of these instead of "-".
BROKEN_WORD = frozenset({0x02, 0xFFFE})
SOFT_HYPHEN = 0xAD
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}


def count_pages(path: str) -> int:
    """Number of pages, after the first one was parsed."""
    with pdfium.PdfDocument(path) as document:
        if len(document):
            document[0].get_textpage()
        return len(document)


def read(path: str) -> dict[str, Any]:
    """Plain lists, ready for JSON: `pages` of `lines` with text, box, baseline, size and style; and the `outline`."""
    with pdfium.PdfDocument(path) as document:
        outline = [[item.level, _clean(item.get_title()), _target(item)] for item in document.get_toc(max_depth=8)]
        pages = []
        for index in range(len(document)):
            page = document[index]
            textpage = page.get_textpage()
            lines = _joined([_line(textpage, codes) for codes in _raw_lines(textpage)])
            pages.append({"width": page.get_width(), "height": page.get_height(), "lines": lines})
            textpage.close()
            page.close()
        return {"pages": pages, "outline": outline}


def _target(item: Any) -> int:
    destination = item.get_dest()
    index = destination.get_index() if destination else None
    return -1 if index is None else int(index)


def _raw_lines(textpage: Any) -> Iterator[list[tuple[int, int]]]:
    """Lists of (character index, code point), one list per line of PDFium."""
    line: list[tuple[int, int]] = []
    for index in range(raw.FPDFText_CountChars(textpage)):
        code = raw.FPDFText_GetUnicode(textpage, index)
        if code in LINE_ENDS:
            if line:
                yield line
            line = []
        else:
            line.append((index, code))
    if line:
        yield line


def _line(textpage: Any, codes: list[tuple[int, int]]) -> dict[str, Any]:
    broken = codes[-1][1] in BROKEN_WORD or codes[-1][1] == SOFT_HYPHEN
    text = _clean("".join(LIGATURES.get(code, chr(code)) for _, code in codes if 0 < code < 0x110000))
    inked = [index for index, code in codes if code > 0x20 and code not in BROKEN_WORD and code != 0xA0]
    if not inked:
        return {"text": ""}
    first, middle, last = inked[0], inked[len(inked) // 2], inked[-1]
    x0, _, baseline = _box(textpage, first)
    _, x1, _ = _box(textpage, last)
    fonts = [_font(textpage, index) for index in (first, middle, last)]
    return {
        "text": text,
        "x0": x0,
        "x1": x1,
        "y": baseline,
        "size": _size(textpage, middle),
        "bold": all(bold for bold, _ in fonts),
        "mono": all(mono for _, mono in fonts),
        "broken": broken,
    }


def _joined(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pieces of one printed line (a running head and its page number) put together; empty lines left out."""
    result: list[dict[str, Any]] = []
    for line in lines:
        if not line["text"]:
            continue
        last = result[-1] if result else None
        if last and abs(last["y"] - line["y"]) < 1 and line["x0"] >= last["x1"] - 1:
            last.update(text=f"{last['text']} {line['text']}", x1=line["x1"], broken=line["broken"])
            last.update(bold=last["bold"] and line["bold"], mono=last["mono"] and line["mono"])
        else:
            result.append(line)
    return result


def _clean(text: str) -> str:
    """Blanks collapsed, control characters dropped, surrogate halves (PDFium returns them one by one) joined."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    visible = "".join(c for c in whole if c >= " " and c not in "\x7f\u00ad\ufffe\uffff\u200b")
    return " ".join(visible.replace("\u00a0", " ").split())


def _box(textpage: Any, index: int) -> tuple[float, float, float]:
    rect = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(textpage, index, rect)
    x, y = ctypes.c_double(), ctypes.c_double()
    raw.FPDFText_GetCharOrigin(textpage, index, x, y)
    return round(rect.left, 2), round(rect.right, 2), round(y.value, 2)


def _size(textpage: Any, index: int) -> float:
    matrix = raw.FS_MATRIX()
    scale = 1.0
    if raw.FPDFText_GetMatrix(textpage, index, matrix):
        scale = math.hypot(matrix.c, matrix.d) or 1.0
    return round(raw.FPDFText_GetFontSize(textpage, index) * scale, 1)


def _font(textpage: Any, index: int) -> tuple[bool, bool]:
    buffer = ctypes.create_string_buffer(128)
    flags = ctypes.c_int()
    raw.FPDFText_GetFontInfo(textpage, index, buffer, len(buffer), flags)
    name = buffer.value.decode("utf-8", "replace")
    bold = raw.FPDFText_GetFontWeight(textpage, index) >= BOLD_WEIGHT or bool(BOLD.search(name))
    return bold, bool(MONO.search(name)) or bool(flags.value & 1)
