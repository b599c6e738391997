"""Download of admitted sources into files named by their digest; what is no whole, readable book is rejected.

Books are shared by all runs of a store: one that is there under any of its names is not fetched again.
"""

import contextlib
import fcntl
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx

from corpus.find.guard import MAX_WAIT_SECONDS, WebConfig, body_of
from corpus.find.landing import read as read_page
from corpus.find.polite_http import BUSY, polite_client, retry_after
from corpus.find.registry import ADMITTED, REJECTED
from corpus.read import file_kinds
from infuser_core.errors import CatalogueError, DocumentError
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Source
from infuser_core.system import child, durable
from infuser_core.system.sealed import digest_of_file

MAX_AT_ONCE = 8
"""Downloads under way at one time; each host serves one of them."""
PAGE_BYTES = 4 << 20
"""Largest part that is read of a web page where a file was expected, bytes."""
HYPERTEXT = frozenset({"text/html", "application/xhtml+xml"})
OPEN_LIMITS = child.Limits(wall_seconds=60.0, cpu_seconds=60)
"""Limits of the process that opens a file to count its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLog:
    """Log of a transfer. Differs from run to run, therefore kept apart from the registry."""

    source_id: str
    """Source asked for."""
    url: str
    """Absolute address asked for."""
    final_url: str
    """Address that answered last, after redirects and pages; empty when none did."""
    status_code: int
    """Last HTTP status; 0 when no answer came or nothing was asked."""
    content_type: str
    """Type that the server named; empty when no body was read."""
    num_bytes: int
    """Bytes received."""
    sha256: str
    """Digest of what was kept; empty when nothing was."""
    seconds: float
    """Duration with all attempts, seconds."""
    downloaded_on: str
    """End of the transfer, ISO 8601, UTC."""
    attempts: int
    """Times that a transfer was begun; 0 for a book that was there already."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty when admitted."""


class Holdings:
    """Downloaded books of all runs: each file under its digest, and under each of its names a note of the digest.

    Several processes and threads may use the folder at one time; it must lie on a local file system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("files", "names", "locks"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def find(self, names: Sequence[str]) -> Path | None:
        """The file of the book that goes by any of the names; one that is damaged does not count."""
        for name in names:
            note = self._folder / "names" / _short(name)
            sha256 = note.read_text() if note.is_file() else ""
            path = file_kinds.file_of(self._folder / "files", sha256)
            if sha256 and path.is_file() and digest_of_file(path) == sha256:
                return path
        return None

    def keep(self, draft: Path, names: Sequence[str], suffix: str) -> Path:
        """Take a checked file into the folder; the file first, so that no name lacks one."""
        path = self._folder / "files" / f"{digest_of_file(draft)}{suffix}"
        draft.replace(path)
        durable.fsync(path)
        durable.fsync(path.parent)
        self.name(path, [*names, f"sha256:{path.stem}"])
        return path

    def name(self, path: Path, names: Sequence[str]) -> None:
        """Note further names of a book."""
        for name in names:
            durable.write(self._folder / "names" / _short(name), path.stem)

    @contextlib.contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[None]:
        """Keep everybody else from fetching a book that goes by any of the names; ends with the process at the latest.

        Waits while another one fetches it. Locks are taken in one order, so that two claims cannot wait for each other.
        """
        with contextlib.ExitStack() as stack:
            for name in sorted({_short(name) for name in names}):
                file = stack.enter_context((self._folder / "locks" / name).open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def download(
    sources: Sequence[Source],
    address: Callable[[str], str],
    folder: Path,
    holdings: Holdings,
    config: WebConfig,
    *,
    names: dict[str, list[str]] | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Source], list[DownloadLog]]:
    """Fetch every admitted source into `folder`, from the holdings where they have it, several hosts at one time.

    Gives every row in order, rejected ones with their reason, and the log of those that were asked for. `address`
    turns a row's `download_url` into the address to fetch; `names` are further identifiers by source_id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = [source for source in sources if source.status == ADMITTED]
    # The client closes before the pool waits: an interrupt must not sit through the transfers in flight.
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool, polite_client(config) as web:

        def begin(source: Source) -> tuple[Source, DownloadLog]:
            known = [source.source_id, *(names or {}).get(source.source_id, [])]
            return _bring(source, address(source.download_url), known, folder, holdings, web, config)

        futures = [pool.submit(begin, source) for source in asked]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            progress(done, len(asked), 0)
    found = [future.result() for future in futures]
    after = {row.source_id: row for row, _ in found}
    rows = [after[row.source_id] if row.status == ADMITTED else row for row in sources]
    return refuse_twins(rows), [log for _, log in found]


def _bring(
    source: Source,
    url: str,
    names: Sequence[str],
    folder: Path,
    holdings: Holdings,
    web: httpx.Client,
    config: WebConfig,
) -> tuple[Source, DownloadLog]:
    """One admitted source into `folder`. While one process fetches a book, others that want it wait and find it."""
    begin = time.monotonic()
    with holdings.claim(names), tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as drafts:
        path = holdings.find(names)
        result = Fetched()
        if path:
            holdings.name(path, names)
        else:
            draft = Path(drafts) / "draft"
            result, suffix = _fetched(web, url, draft, config)
            path = None if result.reason else holdings.keep(draft, names, suffix)
    after = replace(
        source,
        sha256=path.stem if path else "",
        num_bytes=path.stat().st_size if path else 0,
        status=ADMITTED if path else REJECTED,
        reason="" if path else f"download: {result.reason}",
    )
    if path:
        link(path, folder)
    log = DownloadLog(
        source_id=source.source_id,
        url=url,
        final_url=result.final_url,
        status_code=result.status_code,
        content_type=result.content_type,
        num_bytes=result.num_bytes,
        sha256=after.sha256,
        seconds=round(time.monotonic() - begin, 3),
        downloaded_on=datetime.now(UTC).isoformat(timespec="seconds"),
        attempts=result.attempts,
        status=after.status,
        reason=after.reason,
    )
    return after, log


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Result of a transfer."""

    status_code: int = 0
    """Last HTTP status; 0 when no answer came."""
    num_bytes: int = 0
    """Bytes received."""
    attempts: int = 0
    """Transfers begun."""
    reason: str = ""
    """Why there is no complete file; empty when there is one."""
    content_type: str = ""
    """Type that the server named, without parameters."""
    measured: bool = False
    """Whether the server told the length, so that a body that ends early was noticed."""
    final_url: str = ""
    """Address that answered, after redirects."""


def _fetched(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> tuple[Fetched, str]:
    """The transfer, with the reason why it gave no book where it did not, and the file's kind."""
    result = _transfer(web, url, draft, config)
    if result.content_type in HYPERTEXT:
        onward = _named_file(web, result.final_url)
        if onward and onward != url:
            result = _transfer(web, onward, draft, config)
    if result.reason:
        return result, ""
    try:
        return result, file_kinds.check(draft, OPEN_LIMITS, measured=result.measured)
    except DocumentError as error:
        return replace(result, reason=error.message), ""


class _Broken(Exception):
    """A body that ended early: the file is asked for once more."""


def _transfer(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> Fetched:
    """The file at an address, or the reason why there is none; what is busy is asked again by the client itself."""
    reason = ""
    for attempt in range(1, config.attempts + 1):
        try:
            return replace(_attempt(web, url, draft, config), attempts=attempt)
        except _Broken as error:
            reason = f"transfer broke off: {error}"
        except CatalogueError as error:
            return Fetched(attempts=attempt, reason=error.message)
        except httpx.TooManyRedirects:
            return Fetched(attempts=attempt, reason=f"more than {web.max_redirects} redirects")
        except (httpx.TransportError, httpx.InvalidURL) as error:
            what = "no address" if isinstance(error, httpx.InvalidURL) else "no answer"
            return Fetched(attempts=attempt, reason=f"{what}: {error}")
    return Fetched(attempts=config.attempts, reason=reason)


def _attempt(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> Fetched:
    with web.stream("GET", url) as response:
        headers = response.headers
        reason = _refusal(response, config) or _receive(response, draft, config)
        return Fetched(
            status_code=response.status_code,
            num_bytes=0 if reason else draft.stat().st_size,
            reason=reason,
            content_type=_kind(response),
            measured="content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked",
            final_url=str(response.url),
        )


def _refusal(response: httpx.Response, config: WebConfig) -> str:
    """Reason for which a body must not be read; empty when it may."""
    status, kind, headers = response.status_code, _kind(response), response.headers
    if status != 200:
        wait = retry_after(headers.get("retry-after", ""), time.time()) if status in BUSY else 0.0
        return f"HTTP {status}" + (f", to be asked again in {wait:.0f} s" if wait > MAX_WAIT_SECONDS else "")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return f"content encoding {headers['content-encoding']!r} was not asked for"
    if kind in HYPERTEXT or kind.startswith(("image/", "audio/", "video/")):
        return f"content type {kind}, no document"
    length = headers.get("content-length", "")
    return _too_large(int(length), config) if length.isdecimal() and int(length) > config.max_bytes else ""


def _receive(response: httpx.Response, draft: Path, config: WebConfig) -> str:
    """Write the body; returns why it must not be taken, empty when it may."""
    with draft.open("wb") as file:
        try:
            for block in response.iter_raw():
                file.write(block)
                if file.tell() > config.max_bytes:
                    return _too_large(file.tell(), config)
        except httpx.TransportError as error:
            raise _Broken(str(error)) from error
    return ""


def _too_large(count: int, config: WebConfig) -> str:
    return f"too large: {count} bytes or more, at most {config.max_bytes} are fetched"


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


def _named_file(web: httpx.Client, url: str) -> str:
    """The PDF that a page names, where it names exactly one; empty otherwise."""
    try:
        with web.stream("GET", url) as response:
            body = body_of(response, PAGE_BYTES)
    except (httpx.TransportError, CatalogueError):
        return ""
    named = read_page(body.decode("utf-8", errors="replace"), url).pdfs if len(body) <= PAGE_BYTES else []
    return named[0] if len(named) == 1 else ""


def link(file: Path, folder: Path) -> Path:
    """The file in `folder` too: as a second name where the file system allows it, else as a copy."""
    target = folder / file.name
    if not target.exists():
        try:
            target.hardlink_to(file)
        except OSError:
            target.write_bytes(file.read_bytes())
    return target


def refuse_twins(sources: Sequence[Source]) -> list[Source]:
    """The same bytes under two identifiers are one resource: the first row in order keeps it."""
    owner: dict[str, str] = {}
    rows = []
    for source in sources:
        if source.status == ADMITTED:
            first = owner.setdefault(source.sha256, source.source_id)
            if first != source.source_id:
                reason = f"duplicate of {first}: same sha256:{source.sha256}"
                source = replace(source, status=REJECTED, reason=reason, sha256="", num_bytes=0)
        rows.append(source)
    return rows
