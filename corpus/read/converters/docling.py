"""PDF converter that runs docling with the command in `INFUSER_DOCLING`, which may include further options."""

import shlex
import tempfile
from pathlib import Path

from corpus.read.converters.marker import command_fault
from corpus.read.formats.markdown import clean_markup
from corpus.read.page import ConversionJob, page_of
from corpus.read.printed import RemovedText
from infuser_core import settings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child

OPTIONS = ("--from", "pdf", "--to", "md", "--image-export-mode", "placeholder")


def trouble(job: ConversionJob) -> str:
    """Return why docling cannot run here; empty if it can."""
    return command_fault(settings.docling_command())


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    """Convert one PDF; docling's Markdown does not show page breaks. Raises DocumentError without the command."""
    if fault := trouble(job):
        raise DocumentError(f"docling: {fault}", hint="install docling, or set INFUSER_DOCLING to its command")
    with tempfile.TemporaryDirectory(prefix="infuser-docling-") as folder:
        words = [*shlex.split(settings.docling_command()), str(path.resolve()), *OPTIONS, "--output", folder]
        memory = int(job.settings.marker_gigabytes * 10**9)
        process = child.run(words, wall_seconds=job.settings.seconds, resident_bytes=memory)
        files = sorted(Path(folder).rglob("*.md"))
        pictures: list[str] = []
        text = files[0].read_text(encoding="utf-8", errors="replace") if files else ""
        text = clean_markup(text, pictures)
    failure = process.fault or (
        f"exit status {process.status}: {process.tail.strip()[-300:]}" if process.status else ""
    )
    reason = f"docling: {failure or 'wrote no text'}" if failure or not text.strip() else ""
    return page_of(
        source_id,
        "" if reason else text,
        converter="docling",
        reason=reason,
        chosen="docling was asked for",
        removed=[RemovedText(text=name, reason="image", page=-1) for name in pictures],
    )
