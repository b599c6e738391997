"""PDF to Markdown: one `Page` per source, headings as `#` lines, one line per paragraph."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from corpus import child, layout
from corpus.layout import Line, OutlineEntry
from corpus.registry import ADMITTED, file_of
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page, Source

CONVERTER = "embedded-1"
Converter = Callable[[Path, str], Page]
"""Path and source id to a page."""
SENTENCE_END = re.compile(r"[.!?:;][\"'\u2019\u201d)\]]*$")
BULLET = re.compile(r"^[\u2022\u2023\u25aa\u25cf\u25e6\u2043\u00b7]\s*")
# Line starts that Markdown, or the block scanner, would read as markup although the book only prints them.
MARKUP = re.compile(r"^(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|\||`{3,}|~{3,}|\${2}|\\\[|[-=_*]{3,}$|<!--)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertConfig:
    """How the embedded converter reads a PDF."""

    running_head_repeats: int = 3
    """Pages on which a text must stand at the edge to count as a running head."""
    min_page_chars: int = 100
    """A page with fewer characters has no usable text layer."""
    max_empty_share: float = 0.8
    """Share of such pages above which the source is rejected as needs_ocr."""
    paragraph_gap: float = 1.3
    """Distance of two lines that separates paragraphs, in units of the usual line distance."""
    limits: child.Limits = field(default_factory=child.Limits)
    """Limits of the process that parses the file."""


def convert_pdf(path: Path, source_id: str, config: ConvertConfig) -> Page:
    """The source's text as Markdown, or a rejected page with its reason. The file is parsed in a limited process."""
    try:
        raw = child.call("corpus.pdf:read", {"path": str(path)}, config.limits)
    except DocumentError as error:
        return page_of(source_id, "", num_pages=0, converter=CONVERTER, reason=f"unreadable: {error.message}")
    pages = layout.lines_of(raw["pages"])
    if reason := _needs_ocr(pages, config):
        return page_of(source_id, "", num_pages=len(pages), converter=CONVERTER, reason=reason)
    outline = [OutlineEntry(level=level + 1, title=title, page=page) for level, title, page in raw["outline"]]
    text = markdown(pages, outline, config)
    return page_of(source_id, text, num_pages=len(pages), converter=CONVERTER, reason="")


def convert(sources: Sequence[Source], folder: Path, one: Converter, *, progress: Progress = no_progress) -> list[Page]:
    """One page per admitted source, in order. `one` is a converter with its configuration bound."""
    admitted = [source for source in sources if source.status == ADMITTED]
    pages = []
    for done, source in enumerate(admitted, start=1):
        pages.append(one(file_of(folder, source.sha256), source.source_id))
        progress(done, len(admitted), 0)
    return pages


def page_of(source_id: str, text: str, *, num_pages: int, converter: str, reason: str) -> Page:
    """A page row; its status follows from the reason."""
    return Page(
        source_id=source_id,
        markdown=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        num_pages=num_pages,
        converter=converter,
        status="rejected" if reason else "converted",
        reason=reason,
    )


def _needs_ocr(pages: Sequence[list[Line]], config: ConvertConfig) -> str:
    sizes = [sum(len(line.text) for line in page) for page in pages]
    empty = sum(size < config.min_page_chars for size in sizes)
    if sum(sizes) < config.min_page_chars or empty > config.max_empty_share * len(sizes):
        return f"needs_ocr: {empty} of {len(sizes)} pages have under {config.min_page_chars} characters"
    return ""


def markdown(pages: Sequence[list[Line]], outline: Sequence[OutlineEntry], config: ConvertConfig) -> str:
    """Headings and paragraphs, separated by one empty line."""
    cleaned = layout.without_running_heads(pages, min_repeats=config.running_head_repeats)
    marked = layout.mark_headings(cleaned, outline)
    blocks = _blocks([line for page in marked for line in page], config)
    return "\n\n".join(_print(block) for block in blocks) + "\n" if blocks else ""


def _blocks(lines: Sequence[Line], config: ConvertConfig) -> list[list[Line]]:
    """Runs of lines that belong together: a heading, a paragraph, a listing."""
    pitch = _pitch(lines)
    margin = _right_margin(lines)
    blocks: list[list[Line]] = []
    for line in lines:
        last = blocks[-1][-1] if blocks else None
        if last and _continues(last, line, pitch=pitch, margin=margin, config=config):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


def _pitch(lines: Sequence[Line]) -> float:
    """Usual distance of two baselines in units of the font size."""
    gaps = [
        (above.y - line.y) / line.size
        for above, line in pairwise(lines)
        if above.page == line.page and above.size == line.size and 0 < above.y - line.y < 3 * line.size
    ]
    return median(gaps) if gaps else 1.2


def _right_margin(lines: Sequence[Line]) -> float:
    edges = sorted(line.x1 for line in lines if not line.level)
    return edges[int(0.98 * (len(edges) - 1))] if edges else 0.0


def _continues(above: Line, line: Line, *, pitch: float, margin: float, config: ConvertConfig) -> bool:
    if above.level or line.level or above.mono != line.mono or abs(above.size - line.size) > 1:
        return False
    if BULLET.match(line.text):
        return False
    if above.broken:
        return True
    if above.page != line.page or line.y > above.y:
        return not line.mono and _flows_on(above, line, margin)
    return above.y - line.y <= config.paragraph_gap * pitch * max(line.size, above.size)


def _flows_on(above: Line, line: Line, margin: float) -> bool:
    """Whether a paragraph goes on over a page or column break.

    A line with room left for the next line's first word was ended by the author, not by the margin.
    """
    if not SENTENCE_END.search(above.text):
        return True
    width = (line.x1 - line.x0) / max(len(line.text), 1)
    first_word = len(line.text.split(" ", 1)[0]) + 1
    same_column = abs(above.x0 - line.x0) < 2
    return same_column and above.x1 + width * first_word > margin


def _print(block: list[Line]) -> str:
    if block[0].level:
        return f"{'#' * block[0].level} {block[0].text}"
    if len(block) > 1 and all(line.mono for line in block):
        return _listing(block)
    text = ""
    for above, line in zip([None, *block], block, strict=False):
        text = text + line.text if above and above.broken else _append(text, line.text)
    if BULLET.match(text):
        return "- " + BULLET.sub("", text)
    return "\\" + text if MARKUP.match(text) else text


def _append(text: str, more: str) -> str:
    """Join two printed lines; a word divided by a hyphen is put together when its second part is in lower case."""
    if not text:
        return more
    if re.fullmatch(r"[^\W\d_][-\u2010]", text[-2:]) and more[:1].islower():
        return text[:-1] + more
    return f"{text} {more}"


def _listing(block: list[Line]) -> str:
    """A fenced block; the indentation is read from the left edges."""
    left = min(line.x0 for line in block)
    width = max((block[0].x1 - block[0].x0) / max(len(block[0].text), 1), 1.0)
    rows = [" " * round((line.x0 - left) / width) + line.text for line in block]
    longest = max((len(run) for row in rows for run in re.findall(r"`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *rows, fence])
