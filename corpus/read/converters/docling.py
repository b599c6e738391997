"""docling as a converter of PDFs: the command that `INFUSER_DOCLING` names, with options of its own there."""

import re
import shlex
import tempfile
from pathlib import Path

from corpus.read.converters.marker import cleaned, missing
from corpus.read.garble import MARK
from corpus.read.page import Job, page_of
from corpus.read.printed import Removed
from infuser_core import settings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child

OPTIONS = ("--from", "pdf", "--to", "md", "--image-export-mode", "placeholder")

NO_FORMULA = "<!-- formula-not-decoded -->"
NO_LETTER = re.compile(r"(?m)^.*(?:GLYPH(?:<|&lt;)|glyph\[\w+\]).*$")
"""A line with a sign that docling found no value for."""


def trouble(job: Job) -> str:
    """Reason for which it cannot work here; empty when nothing speaks against it."""
    return missing(settings.docling_command())


def convert(path: Path, source_id: str, job: Job) -> Page:
    """One PDF, whole: docling's Markdown names no pages. Raises DocumentError where the command is missing."""
    if lacking := trouble(job):
        raise DocumentError(f"docling: {lacking}", hint="install docling, or name its command in INFUSER_DOCLING")
    with tempfile.TemporaryDirectory(prefix="infuser-docling-") as folder:
        words = [*shlex.split(settings.docling_command()), str(path.resolve()), *OPTIONS, "--output", folder]
        memory = int(job.settings.marker_gigabytes * 10**9)
        ended = child.run(words, wall_seconds=job.settings.seconds, resident_bytes=memory)
        written = sorted(Path(folder).rglob("*.md"))
        pictures: list[str] = []
        text = written[0].read_text(encoding="utf-8", errors="replace") if written else ""
        # Lost formulas and signs carry the mark that keeps their chunk out.
        text = cleaned(NO_LETTER.sub(rf"\g<0> {MARK}", text.replace(NO_FORMULA, MARK)), pictures)
    failed = ended.fault or (f"exit status {ended.status}: {ended.tail.strip()[-300:]}" if ended.status else "")
    reason = f"docling: {failed or 'wrote no text'}" if failed or not text.strip() else ""
    return page_of(
        source_id,
        "" if reason else text,
        converter="docling",
        reason=reason,
        chosen="docling was asked for",
        removed=[Removed(text=name, reason="image", page=-1) for name in pictures],
    )
