"""Built-in PDF converter: turns the text layer of a born-digital PDF into Markdown, in a resource-limited process."""

from pathlib import Path

from corpus.read.embedded import CONVERTER
from corpus.read.file_kinds import pdf_fault
from corpus.read.page import ConversionJob, page_of, reason_of
from corpus.read.printed import RemovedText
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child


def trouble(job: ConversionJob) -> str:
    """Always empty: the converter works on every machine."""
    return ""


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    """Convert one PDF by its text layer; the page row is rejected if the text layer is not usable."""
    if fault := pdf_fault(path):
        return page_of(source_id, converter=CONVERTER, reason=fault)
    argument = {"path": str(path), "max_pages": job.settings.max_pages}
    try:
        reading = child.call("corpus.read.embedded:convert_file", argument, job.limits)
    except DocumentError as error:
        return page_of(source_id, converter=CONVERTER, reason=reason_of(error))
    return page_of(
        source_id,
        reading["markdown"],
        num_pages=reading["num_pages"],
        converter=CONVERTER,
        reason=reading["reason"],
        page_starts=reading["page_starts"],
        removed=[RemovedText(**row) for row in reading["removed"]],
        chosen=f"text layer on {reading['num_pages'] - reading['num_empty']} of {reading['num_pages']} pages",
    )
