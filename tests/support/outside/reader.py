"""A converter of PDFs that knows how large they are, and no more."""

from pathlib import Path

from corpus.read.page import ConversionJob, page_of
from infuser_core.schemas import Page


def trouble(job: ConversionJob) -> str:
    return ""


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    text = f"# A book\n\nIt has {path.stat().st_size} bytes."
    return page_of(source_id, text, converter="outside.reader", reason="", chosen="by name")
