"""marker as an external command: its licence, memory use and crashes stay outside this process."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from corpus import child
from corpus.convert import page_of
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page

NO_WEIGHTS = re.compile(
    r"huggingface|models\.datalab|ConnectionError|MaxRetryError|NameResolution|LocalEntryNotFound|offline",
    re.IGNORECASE,
)
TAIL_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerConfig:
    """How the command is called."""

    command: str = "marker_single"
    """Command line to which the file and the output options are added."""
    version: str = "unknown"
    """Version written into the page; the command has no option that prints it."""
    wall_seconds: float = 3600.0
    """Time until the command's process group is killed, seconds."""
    count_limits: child.Limits = field(default_factory=lambda: child.Limits(wall_seconds=60.0, cpu_seconds=60))
    """Limits of the process that counts the pages."""


def convert_marker(path: Path, source_id: str, config: MarkerConfig) -> Page:
    """The command's Markdown for one file. A file that it cannot convert is a rejected page.

    Raises DocumentError when the command itself cannot work: not installed, or its weights are missing.
    """
    words = shlex.split(config.command)
    if not words or not shutil.which(words[0]):
        raise DocumentError(
            f"marker: no command {config.command!r}",
            hint="install marker-pdf in its own environment and name its marker_single, or use the embedded converter",
        )
    converter = f"{Path(words[0]).name}-{config.version}"
    try:
        num_pages = int(child.call("corpus.pdf:count_pages", {"path": str(path)}, config.count_limits))
    except DocumentError as error:
        return page_of(source_id, "", num_pages=0, converter=converter, reason=f"unreadable: {error.message}")
    with tempfile.TemporaryDirectory(prefix="infuser-marker-") as folder:
        arguments = [*words, str(path.resolve()), "--output_dir", folder, "--output_format", "markdown"]
        reason = _run(arguments, config)
        text, reason = ("", reason) if reason else _result(Path(folder))
    return page_of(source_id, text, num_pages=num_pages, converter=converter, reason=reason)


def _run(arguments: list[str], config: MarkerConfig) -> str:
    """Why the command failed; empty when it did not."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout=config.wall_seconds)
        except subprocess.TimeoutExpired:
            return f"marker: still running after {config.wall_seconds:g} s"
        finally:
            child.kill_group(process)
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        tail = " ".join(log.read().decode(errors="replace").split())
    if status and NO_WEIGHTS.search(tail):
        raise DocumentError(
            f"marker: cannot load its weights: {tail[-TAIL_CHARS:]}",
            hint="run the command once with network access so that it can download them",
        )
    return f"marker: exit status {status}: {tail[-TAIL_CHARS:]}" if status else ""


def _result(folder: Path) -> tuple[str, str]:
    """Text and reason: exactly one Markdown file that is not empty counts as success."""
    files = sorted(folder.rglob("*.md"))
    if len(files) != 1:
        return "", f"marker: wrote {len(files)} Markdown files, expected one"
    text = files[0].read_text(encoding="utf-8", errors="replace")
    return (text, "") if text.strip() else ("", "marker: wrote an empty file")
