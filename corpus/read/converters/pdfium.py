"""Text layer of a born-digital PDF as Markdown, in a limited process: the built-in converter."""

from pathlib import Path

from corpus.read.embedded import CONVERTER
from corpus.read.file_kinds import pdf_fault
from corpus.read.page import Job, page_of, reason_of
from corpus.read.printed import Removed
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child


def trouble(job: Job) -> str:
    """Reason for which it cannot work here; it always can."""
    return ""


def convert(path: Path, source_id: str, job: Job) -> Page:
    """One PDF; a rejected page for one without a usable text layer."""
    if fault := pdf_fault(path):
        return page_of(source_id, converter=CONVERTER, reason=fault)
    argument = {"path": str(path), "max_pages": job.settings.max_pages}
    try:
        made = child.call("corpus.read.embedded:convert_file", argument, job.limits)
    except DocumentError as error:
        return page_of(source_id, converter=CONVERTER, reason=reason_of(error))
    return page_of(
        source_id,
        made["markdown"],
        num_pages=made["num_pages"],
        converter=CONVERTER,
        reason=made["reason"],
        page_starts=made["page_starts"],
        math_garbled=made["math_garbled"],
        removed=[Removed(**row) for row in made["removed"]],
        chosen=f"text layer on {made['num_pages'] - made['num_empty']} of {made['num_pages']} pages",
    )
