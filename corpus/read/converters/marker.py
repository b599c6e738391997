"""marker as a converter of PDFs: the command that `INFUSER_MARKER` names, on ranges of pages.

Its licence, memory use and crashes stay outside this process.

One process per range of pages: it loses everything when it dies in the middle, and its memory grows with the book.
Finished ranges are kept, so that the next attempt goes on where this one ended. The models are loaded by servers that
the command starts and finds again (see Servers): they serve one book after the other.
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
from corpus.read.formats.markdown import outside
from corpus.read.marker_servers import Servers
from corpus.read.page import Job, Kept, page_of, reason_of
from corpus.read.printed import Removed
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
"""Faults that only the command's owner can mend: how each shows, its name, and what to do."""
SEPARATOR = re.compile(r"(?:^|\n)\s*\{(\d+)\}-{10,}[ \t]*\n*")
TAIL_CHARS = 300
FENCED = re.compile(r"(?ms)^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1[`~]*[ \t]*$")
ANCHOR = re.compile(r"<span id=[\"'][^\"'>]*[\"']>\s*</span>|<a (?:id|name)=[\"'][^\"'>]*[\"']>\s*</a>")
PICTURE = re.compile(r"!\[([^\]\n]*)\]\(([^()\n]*)\)")
JUMP = re.compile(r"(?<!!)\[((?:[^\[\]\n\\]|\\.)*)\]\(#[^()\s]*\)")
RAISED = re.compile(r"(\d+|\w?)<(sup|sub)>([\w+\u2212-]+)</\2>")
BREAK = re.compile(r"<br ?/?>")
STYLE = re.compile(r"</?(?:b|i|u|strong|em|span|mark)(?: [^<>]*)?>")
BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
OPTIONS = ("--output_format", "markdown", "--paginate_output", "--disable_image_extraction")
KEPT_VERSION = 2
ATTEMPTS = 2
"""Times that a range is tried."""
COUNT_LIMITS = child.Limits(wall_seconds=60.0, cpu_seconds=60)
"""Limits of the process that counts the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Converted pages."""

    text: str
    """Markdown without page separators."""
    starts: dict[int, int]
    """Page index to the offset of its text, for the pages the command told apart."""
    pictures: list[str]
    """Captions or names of pictures that were left out."""


def missing(command: str) -> str:
    """Fault of a command line that names no program on this machine; empty for any other."""
    words = shlex.split(command)
    return "" if words and shutil.which(words[0]) else f"no command {command!r} is installed"


def trouble(job: Job) -> str:
    """Reason for which it cannot work here; empty when nothing speaks against it."""
    return missing(settings.marker_command())


def convert(path: Path, source_id: str, job: Job) -> Page:
    """The command's Markdown for one PDF, with the page map. A file that it cannot convert is a rejected page.

    Raises DocumentError when the command itself cannot work: not installed, or its weights, font or server missing.
    """
    if lacking := trouble(job):
        raise DocumentError(
            f"marker: {lacking}",
            hint="install marker-pdf in its own environment and name its marker_single in INFUSER_MARKER, "
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
        servers = (job.kept or stack.enter_context(Kept())).once(Servers)
        none = stack.enter_context(tempfile.TemporaryDirectory(dir=servers.home))
        folder = _kept_folder(path, job.work) if job.work else Path(none)
        folder.mkdir(parents=True, exist_ok=True)
        for first in range(0, num_pages, step):
            last = min(first + step, num_pages) - 1
            kept = folder / f"{first:06}-{last:06}.json"
            found = _kept(kept) or _converted(path, servers, kept, first, last, job.settings)
            if isinstance(found, str):
                reason = f"marker: pages {first + 1}-{last + 1} of {num_pages}: {found}"
                return page_of(source_id, num_pages=num_pages, converter=_name(), reason=reason)
            ranges.append(found)
    return _merged(source_id, ranges, num_pages, step)


def _name() -> str:
    """Name for the page, with a version that the command does not tell."""
    return f"{Path(shlex.split(settings.marker_command())[0]).name}-unknown"


def _kept_folder(path: Path, work: Path) -> Path:
    """One folder per file content and way of converting it."""
    name = hashlib.sha256(path.read_bytes())
    name.update(json.dumps([KEPT_VERSION, _name(), OPTIONS]).encode())
    return work / "marker" / name.hexdigest()[:24]


def _kept(file: Path) -> _Range | None:
    """A range finished earlier, unless its file is damaged."""
    try:
        value = sealed.read(file)
    except (OSError, ValueError):
        return None
    starts = {int(page): start for page, start in value["starts"].items()}
    return _Range(text=value["text"], starts=starts, pictures=value["pictures"])


def _converted(
    path: Path, servers: Servers, kept: Path, first: int, last: int, limits: ConvertSettings
) -> _Range | str:
    """The range, or why it could not be converted. Raises DocumentError where new servers end as the first ones did."""
    made: _Range | str = ""
    for _ in range(ATTEMPTS):
        made, lacking = "", None
        with tempfile.TemporaryDirectory(dir=servers.home) as folder:
            try:
                ended = _ended(path, Path(folder), servers, first, last, limits)
                made = _failure(ended, servers) or _read(Path(folder), first)
            except DocumentError as error:
                # A server that was killed is missed with the same words as one that never was.
                lacking = error
            finally:
                if isinstance(made, str):
                    servers.end()
        if isinstance(made, _Range):
            sealed.write(kept, asdict(made))
            servers.served(last + 1 - first)
            return made
        if not lacking and ended.fault:
            break
    if lacking:
        raise lacking
    return made


def _ended(
    path: Path, folder: Path, servers: Servers, first: int, last: int, limits: ConvertSettings
) -> child.Finished:
    words = [*shlex.split(settings.marker_command()), str(path.resolve()), "--output_dir", str(folder)]
    return child.run(
        [*words, "--page_range", f"{first}-{last}", *OPTIONS],
        wall_seconds=limits.seconds,
        resident_bytes=int(limits.marker_gigabytes * 10**9),
        environment=servers.environment(),
        trouble=servers.given_up,
    )


def _failure(ended: child.Finished, servers: Servers) -> str:
    """Reason for which the command failed; empty when it did not. What only its owner can mend is an error."""
    if not ended.fault and not ended.status:
        return ""
    if ended.killed:
        raise child.killed("marker", ended.status)
    served = servers.given_up()
    if ended.fault and not served:
        return ended.fault
    said = _last_error(" ".join((served or ended.tail).split()))
    for pattern, (what, hint) in LACKING.items():
        # Of servers that have served pages none is missing: this book ends them.
        if not servers.proven and pattern.search(said):
            raise DocumentError(f"marker: cannot load {what}: {said}", hint=hint)
    return f"exit status {ended.status}: {said}"


def _last_error(words: str) -> str:
    """From the last exception on that is written with its module; what else was said before the end is progress."""
    names = list(re.finditer(r"\w+(?:\.\w+)+(?:Error|Exception): ", words))
    return words[names[-1].start() :][:TAIL_CHARS] if names else words[-TAIL_CHARS:]


def _read(folder: Path, first: int) -> _Range | str:
    """The one file that was written, without its page separators, which become the page map; or what is wrong."""
    files = list(folder.rglob("*.md"))
    if len(files) != 1:
        return f"wrote {len(files)} Markdown files, expected one"
    source = files[0].read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    if not files[0].read_bytes().strip():
        return "wrote an empty file"
    marks = list(SEPARATOR.finditer(source))
    # Some versions count the pages of the range instead of those of the file.
    shift = first if marks and int(marks[0][1]) < first else 0
    edges = [*(mark.start() for mark in marks), len(source)]
    pictures: list[str] = []
    before = cleaned(source[: edges[0]], pictures).strip()
    texts = [before] if before else []
    starts: dict[int, int] = {first: 0} if texts else {}
    position = len(texts[0]) + 2 if texts else 0
    for mark, end in zip(marks, edges[1:], strict=True):
        part = cleaned(source[mark.end() : end], pictures).strip("\n")
        starts.setdefault(int(mark[1]) + shift, position)
        if part.strip():
            texts.append(part)
            position += len(part) + 2
    return _Range(text="\n\n".join(texts), starts=starts, pictures=pictures)


def cleaned(text: str, pictures: list[str]) -> str:
    """marker's Markdown without anchors, jumps within the file, pictures and styles, save in code.

    Raised and lowered marks become LaTeX. The captions of pictures, or their names, are added to `pictures`.
    """
    return BLANK.sub("\n\n", outside(FENCED, lambda part: _without_markup(part, pictures), text))


def _without_markup(text: str, pictures: list[str]) -> str:
    pictures += [match[1] or match[2] for match in PICTURE.finditer(text)]
    text = JUMP.sub(r"\1", PICTURE.sub("", ANCHOR.sub("", text)))
    text = RAISED.sub(lambda match: f"${match[1]}{'^' if match[2] == 'sup' else '_'}{{{match[3]}}}$", text)
    return STYLE.sub("", BREAK.sub(" ", text))


def _merged(source_id: str, ranges: list[_Range], num_pages: int, step: int) -> Page:
    """Ranges one after the other, their offsets moved along."""
    starts: dict[int, int] = {}
    position = 0
    for number, part in enumerate(ranges):
        starts.setdefault(number * step, position)
        starts.update({page: position + start for page, start in part.starts.items()})
        position += len(part.text) + 2
    text = "\n\n".join(part.text for part in ranges) + "\n"
    filled: list[int] = []
    for page in range(num_pages):
        filled.append(min(max(starts.get(page, 0), filled[-1] if filled else 0), len(text)))
    pictures = [name for part in ranges for name in part.pictures]
    return page_of(
        source_id,
        text,
        num_pages=num_pages,
        converter=_name(),
        reason="" if text.strip() else "marker: wrote no text",
        page_starts=filled,
        chosen="marker was asked for",
        removed=[Removed(text=name, reason="image", page=-1) for name in pictures],
    )
