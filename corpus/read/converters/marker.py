"""PDF converter that runs marker with the command in `INFUSER_MARKER`, on ranges of pages.

marker's licence, memory use and crashes stay outside this process.

Each range of pages is converted by one process: marker loses everything if it dies, and its memory grows with the book.
Finished ranges are stored, so the next attempt resumes after them. The models are loaded by servers that the command
starts and later commands find again (see Servers): they serve one book after the other.
"""

import hashlib
import json
import re
import shlex
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from corpus.read.file_kinds import COUNTER, pdf_fault
from corpus.read.formats.markdown import clean_markup
from corpus.read.marker_servers import Servers
from corpus.read.page import ConversionJob, SharedResources, page_of, reason_of
from corpus.read.printed import RemovedText
from infuser_core import settings
from infuser_core.config.corpus import ConvertSettings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child, sealed

NO_FONT = re.compile(r"font_path|\.ttf|\.otf|font (?:file|not found)", re.IGNORECASE)
NO_WEIGHTS = re.compile(
    r"huggingface|models\.datalab|ConnectionError|MaxRetryError|NameResolution|LocalEntryNotFound|offline|checkpoint"
    r"|Failed to download",
    re.IGNORECASE,
)
NO_SERVER = re.compile(
    r"connection refused|inference server|vllm|llama[._-]?(?:cpp|server)|docker binary|not reachable|become healthy",
    re.IGNORECASE,
)
LACKING = {
    NO_FONT: ("its font", "set FONT_PATH to a .ttf file; without it marker fetches one from models.datalab.to"),
    NO_WEIGHTS: (
        "its weights",
        "run the command once with network access, or copy them: from Hugging Face into HF_HOME "
        "(~/.cache/huggingface), the others into MODEL_CACHE_DIR (~/.cache/datalab/models)",
    ),
    NO_SERVER: (
        "its inference server",
        "install llama.cpp's llama-server, or start the server and name it in SURYA_INFERENCE_URL",
    ),
}
"""Faults that only the user can fix: the message's pattern, what is missing, and the remedy."""
SEPARATOR = re.compile(r"(?:^|\n)\s*\{(\d+)\}-{10,}[ \t]*\n*")
TAIL_CHARS = 300
OPTIONS = ("--output_format", "markdown", "--paginate_output", "--disable_image_extraction")
KEPT_VERSION = 2
ATTEMPTS = 2
"""Number of times that the conversion of a range is tried."""
COUNT_LIMITS = child.Limits(wall_seconds=60.0, cpu_seconds=60)
"""Limits of the process that counts the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Converted pages of one range."""

    text: str
    """Markdown without page separators."""
    starts: dict[int, int]
    """Offset of each page's text by page index, for the pages that the command separated."""
    pictures: list[str]
    """Captions or names of pictures that were left out."""


def command_fault(command: str) -> str:
    """Return an error message if the command's program is not installed, else an empty string."""
    words = shlex.split(command)
    return "" if words and shutil.which(words[0]) else f"no command {command!r} is installed"


def trouble(job: ConversionJob) -> str:
    """Return why marker cannot run here; empty if it can."""
    return command_fault(settings.marker_command())


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    """Convert one PDF to Markdown with its page map. Returns a rejected page row for a file that marker cannot convert.

    Raises DocumentError if the command itself cannot work: not installed, or its weights, font or server missing.
    """
    if fault := trouble(job):
        raise DocumentError(
            f"marker: {fault}",
            hint="install marker-pdf in its own environment and set INFUSER_MARKER to its marker_single, "
            "or use the embedded converter",
        )
    if fault := pdf_fault(path):
        return page_of(source_id, converter=_name(), reason=fault)
    try:
        num_pages = int(child.call(COUNTER, {"path": str(path)}, COUNT_LIMITS))
    except DocumentError as error:
        return page_of(source_id, converter=_name(), reason=reason_of(error))
    ranges, step = [], job.settings.marker_pages
    with ExitStack() as stack:
        servers = (job.resources or stack.enter_context(SharedResources())).once(Servers)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=servers.home))
        folder = _range_folder(path, job.work) if job.work else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for first in range(0, num_pages, step):
            last = min(first + step, num_pages) - 1
            file = folder / f"{first:06}-{last:06}.json"
            pages = _load_range(file) or _convert_range(path, servers, file, first, last, job.settings)
            if isinstance(pages, str):
                reason = f"marker: pages {first + 1}-{last + 1} of {num_pages}: {pages}"
                return page_of(source_id, num_pages=num_pages, converter=_name(), reason=reason)
            ranges.append(pages)
    return _join_ranges(source_id, ranges, num_pages, step)


def _name() -> str:
    """Name of the converter for the page row; the command does not report its version."""
    return f"{Path(shlex.split(settings.marker_command())[0]).name}-unknown"


def _range_folder(path: Path, work: Path) -> Path:
    """Folder of a book's finished ranges, named by the file's content and the conversion options."""
    name = hashlib.sha256(path.read_bytes())
    name.update(json.dumps([KEPT_VERSION, _name(), OPTIONS]).encode())
    return work / "marker" / name.hexdigest()[:24]


def _load_range(file: Path) -> _Range | None:
    """Load a range that was finished earlier; None if it was not finished, or its file is damaged."""
    try:
        value = sealed.read(file)
    except (OSError, ValueError):
        return None
    starts = {int(page): start for page, start in value["starts"].items()}
    return _Range(text=value["text"], starts=starts, pictures=value["pictures"])


def _convert_range(
    path: Path, servers: Servers, file: Path, first: int, last: int, limits: ConvertSettings
) -> _Range | str:
    """Convert a range and store it in `file`, or return why that failed.

    Raises DocumentError if something that only the user can provide is missing even for newly started servers.
    """
    result: _Range | str = ""
    for _ in range(ATTEMPTS):
        result, missing = "", None
        with tempfile.TemporaryDirectory(dir=servers.home) as folder:
            try:
                process = child.run(
                    [
                        *shlex.split(settings.marker_command()),
                        str(path.resolve()),
                        "--output_dir",
                        folder,
                        "--page_range",
                        f"{first}-{last}",
                        *OPTIONS,
                    ],
                    wall_seconds=limits.seconds,
                    resident_bytes=int(limits.marker_gigabytes * 10**9),
                    environment=servers.environment(),
                    trouble=servers.failure,
                )
                result = _failure(process, servers) or _read_range(Path(folder), first)
            except DocumentError as error:
                # A server that was killed gives the same message as a server that is not installed.
                missing = error
            finally:
                if isinstance(result, str):
                    servers.end()
        if isinstance(result, _Range):
            sealed.write(file, asdict(result))
            servers.count_pages(last + 1 - first)
            return result
        if not missing and process.fault:
            break
    if missing:
        raise missing
    return result


def _failure(process: child.ProcessResult, servers: Servers) -> str:
    """Return why the command failed; empty if it did not. Raises DocumentError for what only the user can fix."""
    if not process.fault and not process.status:
        return ""
    if process.was_killed:
        raise child.killed_error("marker", process.status)
    server_log = servers.failure()
    if process.fault and not server_log:
        return process.fault
    words = " ".join((server_log or process.tail).split())
    # The message begins at the last exception name that includes a module; the text before it shows progress.
    names = list(re.finditer(r"\w+(?:\.\w+)+(?:Error|Exception): ", words))
    message = words[names[-1].start() :][:TAIL_CHARS] if names else words[-TAIL_CHARS:]
    for pattern, (what, hint) in LACKING.items():
        # Servers that have converted pages lack nothing: this book made them fail.
        if not servers.proven and pattern.search(message):
            raise DocumentError(f"marker: cannot load {what}: {message}", hint=hint)
    return f"exit status {process.status}: {message}"


def _read_range(folder: Path, first: int) -> _Range | str:
    """Read the one file that marker wrote, and the page map from its page separators; or return what is wrong."""
    files = list(folder.rglob("*.md"))
    if len(files) != 1:
        return f"wrote {len(files)} Markdown files, expected one"
    source = files[0].read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    if not files[0].read_bytes().strip():
        return "wrote an empty file"
    marks = list(SEPARATOR.finditer(source))
    # Some versions of marker number pages from the start of the range instead of the file.
    shift = first if marks and int(marks[0][1]) < first else 0
    edges = [*(mark.start() for mark in marks), len(source)]
    pictures: list[str] = []
    before = clean_markup(source[: edges[0]], pictures).strip()
    texts = [before] if before else []
    starts: dict[int, int] = {first: 0} if texts else {}
    position = len(texts[0]) + 2 if texts else 0
    for mark, end in zip(marks, edges[1:], strict=True):
        part = clean_markup(source[mark.end() : end], pictures).strip("\n")
        starts.setdefault(int(mark[1]) + shift, position)
        if part.strip():
            texts.append(part)
            position += len(part) + 2
    return _Range(text="\n\n".join(texts), starts=starts, pictures=pictures)


def _join_ranges(source_id: str, ranges: list[_Range], num_pages: int, step: int) -> Page:
    """Join the ranges of a book into one page row, with page offsets in the joined text."""
    starts: dict[int, int] = {}
    position = 0
    for number, part in enumerate(ranges):
        starts.setdefault(number * step, position)
        starts.update({page: position + start for page, start in part.starts.items()})
        position += len(part.text) + 2
    text = "\n\n".join(part.text for part in ranges) + "\n"
    page_starts: list[int] = []
    for page in range(num_pages):
        page_starts.append(min(max(starts.get(page, 0), page_starts[-1] if page_starts else 0), len(text)))
    pictures = [name for part in ranges for name in part.pictures]
    return page_of(
        source_id,
        text,
        num_pages=num_pages,
        converter=_name(),
        reason="" if text.strip() else "marker: wrote no text",
        page_starts=page_starts,
        chosen="marker was asked for",
        removed=[RemovedText(text=name, reason="image", page=-1) for name in pictures],
    )
