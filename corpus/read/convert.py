"""Conversion of a source to Markdown: one page row per source, converted or rejected with its reason."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from corpus.find.registry import ADMITTED, file_of
from corpus.read import soundness
from corpus.read.embedded import ReadingConfig
from infuser_core import child
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page, Source

CONVERTER = "embedded-3"
Converter = Callable[[Path, str], Page]
"""Path and source id to a page."""
FUNCTION = re.compile(r"^corpus\.\w+:\w+: ")
NEEDS_MARKER = ("needs_ocr", "garbled")
"""Reasons that another converter, which looks at the printed page, can help with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertConfig:
    """How the embedded converter reads a PDF."""

    reading: ReadingConfig = field(default_factory=ReadingConfig)
    """What it takes for a heading, a paragraph, a usable page."""
    limits: child.Limits = field(default_factory=child.Limits)
    """Limits of the process that parses the file."""


def convert_pdf(path: Path, source_id: str, config: ConvertConfig) -> Page:
    """The source's text as Markdown, or a rejected page with its reason. The file is parsed in a limited process."""
    if fault := soundness.fault_of(path):
        return page_of(source_id, "", num_pages=0, converter=CONVERTER, reason=fault)
    try:
        made = child.call(
            "corpus.read.embedded:convert_file", {"path": str(path), **asdict(config.reading)}, config.limits
        )
    except DocumentError as error:
        return page_of(source_id, "", num_pages=0, converter=CONVERTER, reason=reason_of(error))
    page = page_of(
        source_id,
        made["markdown"],
        num_pages=made["num_pages"],
        converter=CONVERTER,
        reason=made["reason"],
        page_starts=made["page_starts"],
        math_garbled=made["math_garbled"],
        chosen=f"text layer on {made['num_pages'] - made['num_empty']} of {made['num_pages']} pages",
    )
    return page


def reason_of(error: DocumentError) -> str:
    """The reason for a file that could not be parsed."""
    if "password" in error.message.lower():
        return "encrypted: the file needs a password"
    return "unreadable: " + FUNCTION.sub("", error.message)


def convert(sources: Sequence[Source], folder: Path, one: Converter, *, progress: Progress = no_progress) -> list[Page]:
    """One page per admitted source, in order. `one` is a converter with its configuration bound."""
    admitted = [source for source in sources if source.status == ADMITTED]
    pages = []
    for done, source in enumerate(admitted, start=1):
        pages.append(one(file_of(folder, source.sha256), source.source_id))
        progress(done, len(admitted), 0)
    return pages


def page_of(
    source_id: str,
    text: str,
    *,
    num_pages: int,
    converter: str,
    reason: str,
    chosen: str = "",
    page_starts: Sequence[int] = (),
    math_garbled: Sequence[float] = (),
) -> Page:
    """A page row; its status follows from the reason."""
    return Page(
        source_id=source_id,
        markdown=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        num_pages=num_pages,
        converter=converter,
        status="rejected" if reason else "converted",
        reason=reason,
        chosen=chosen,
        page_starts=list(page_starts),
        math_garbled=list(math_garbled),
    )
