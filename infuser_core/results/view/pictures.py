"""Pictures of the PDF pages on which given texts appear, with their words marked. Only for limited child processes."""

import base64
import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

RUN = 4
"""Length in words of the runs by which a page is recognised: single words occur everywhere."""
STRETCH = 7
"""Shortest sequence of words that is marked."""
FOUND = 0.2
"""Least share of a text's word runs found on its page; tables and formulas differ from their print."""
MAX_PAGES = 3000
"""Most pages of a file that are searched."""
SCALE = 1.6
"""Pixels per point."""
QUALITY = 70

_WORD = re.compile(r"[^\W_]+")

Box = tuple[float, float, float, float]


def pictures(path: str, texts: list[str], near: list[int] | None = None) -> list[dict[str, Any] | None]:
    """For every text, the page that contains most of it: `page` (0-based), `pages` of the file, `image` (data address)
    and `marks` (left, top, width, height in percent of the page). None for a text without a matching page.

    Reads all pages, or only those `near` (0-based).
    """
    text_runs = [set(_runs(_words(text))) for text in texts]
    with pdfium.PdfDocument(path) as file:
        count = min(len(file), MAX_PAGES)
        best = [(FOUND, -1) for _ in texts]
        for number in range(count) if near is None else [page for page in near if page < count]:
            page_runs = set(_runs(_words(_text(file[number]))))
            for place, runs in enumerate(text_runs):
                share = len(runs & page_runs) / max(1, min(len(runs), len(page_runs)))
                if share * min(len(page_runs), 50) > best[place][0] * 50:
                    best[place] = (share * min(len(page_runs), 50) / 50, number)
        return [
            None if number < 0 else _picture(file, number, runs)
            for (_, number), runs in zip(best, text_runs, strict=True)
        ]


def _picture(file: pdfium.PdfDocument, number: int, runs: set[tuple[str, ...]]) -> dict[str, Any]:
    page = file[number]
    image = page.render(scale=SCALE, grayscale=True).to_pil().convert("L")
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=QUALITY)
    coded = base64.b64encode(buffer.getvalue()).decode()
    marks = [list(box) for box in _marks(page, runs)]
    return {"page": number, "pages": len(file), "image": f"data:image/webp;base64,{coded}", "marks": marks}


def _marks(page: pdfium.PdfPage, runs: set[tuple[str, ...]]) -> list[Box]:
    """Boxes of matching words, joined by line, in percent of the page."""
    words = list(_placed(page))
    ours = _ours([word for word, _ in words], runs)
    width, height = page.get_size()
    lines: list[list[float]] = []
    for (_, (left, bottom, right, top)), mine in zip(words, ours, strict=True):
        if not mine:
            continue
        if lines and abs(lines[-1][1] - bottom) < 3 and left >= lines[-1][0]:
            lines[-1][2:] = [max(lines[-1][2], right), max(lines[-1][3], top)]
        else:
            lines.append([left, bottom, right, top])
    return [
        (
            round(100 * left / width, 2),
            round(100 * (height - top) / height, 2),
            round(100 * (right - left) / width, 2),
            round(100 * (top - bottom) / height, 2),
        )
        for left, bottom, right, top in lines
    ]


def _ours(words: Sequence[str], runs: set[tuple[str, ...]]) -> list[bool]:
    """Whether each word belongs to a long enough sequence that also occurs in the text."""
    is_ours = [False] * len(words)
    for start in range(len(words) - RUN + 1):
        if tuple(words[start : start + RUN]) in runs:
            is_ours[start : start + RUN] = [True] * RUN
    stretches = groupby(range(len(words)), key=is_ours.__getitem__)
    long = {place for ours, group in stretches if ours and len(places := list(group)) >= STRETCH for place in places}
    return [place in long for place in range(len(words))]


def _placed(page: pdfium.PdfPage) -> Iterator[tuple[str, Box]]:
    """Words of a page with their boxes, in points from the lower left."""
    text = page.get_textpage()
    try:
        codes = [raw.FPDFText_GetUnicode(text, place) for place in range(text.count_chars())]
        # One character per position; surrogate halves and the like count as spaces.
        line = "".join(chr(code) if 0 < code < 0x10000 and not 0xD800 <= code < 0xE000 else " " for code in codes)
        for match in _WORD.finditer(line):
            boxes = [text.get_charbox(place) for place in range(*match.span())]
            yield (
                match.group().lower(),
                (
                    min(box[0] for box in boxes),
                    min(box[1] for box in boxes),
                    max(box[2] for box in boxes),
                    max(box[3] for box in boxes),
                ),
            )
    finally:
        text.close()


def _text(page: pdfium.PdfPage) -> str:
    text = page.get_textpage()
    try:
        return str(text.get_text_range(errors="ignore"))
    finally:
        text.close()
        page.close()


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
