"""Download admitted sources into files named by their digest; incomplete and unreadable files are rejected.

All runs of a store share the downloaded books: a book already stored under any of its identifiers is not fetched again.
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

from corpus.find.landing_page import read_page
from corpus.find.polite_http import BUSY, polite_client, retry_after
from corpus.find.registry import ADMITTED, REJECTED
from corpus.find.ssrf_guard import body_of
from corpus.find.web_config import MAX_WAIT_SECONDS, WebConfig
from corpus.read import file_kinds
from infuser_core.errors import CatalogueError, DocumentError
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Source
from infuser_core.system import child, durable
from infuser_core.system.sealed import digest_of_file

MAX_AT_ONCE = 8
"""Concurrent downloads; at most one from each host."""
PAGE_BYTES = 4 << 20
"""Largest web page that is read if it comes instead of a file, bytes."""
HYPERTEXT = frozenset({"text/html", "application/xhtml+xml"})
OPEN_LIMITS = child.Limits(wall_seconds=60.0, cpu_seconds=60)
"""Limits of the process that opens a file to count its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLog:
    """Log of one download. It differs between runs, so it is not part of the registry."""

    source_id: str
    url: str
    """Absolute address of the request."""
    final_url: str
    """Address that answered last, after redirects and pages; empty without an answer."""
    status_code: int
    """Last HTTP status; 0 without an answer or a request."""
    content_type: str
    """Type in the server's header; empty if no body was read."""
    num_bytes: int
    """Bytes received."""
    sha256: str
    """Digest of the stored file; empty without one."""
    seconds: float
    """Duration of all attempts, seconds."""
    downloaded_on: str
    """End of the transfer, ISO 8601, UTC."""
    attempts: int
    """Transfers started; 0 for a book that was stored already."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty if admitted."""


class Holdings:
    """Folder with the downloaded books of all runs.

    Each file is named by its digest; for each identifier ("name") of its book there is a small file with that digest.

    Processes and threads may share the folder; it must be on a local file system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("files", "names", "locks"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def find(self, names: Sequence[str]) -> Path | None:
        """The stored file of the book that has any of the names; None without one. A damaged file does not count."""
        for name in names:
            note = self._folder / "names" / _short(name)
            sha256 = note.read_text() if note.is_file() else ""
            path = file_kinds.file_of(self._folder / "files", sha256)
            if sha256 and path.is_file() and digest_of_file(path) == sha256:
                return path
        return None

    def add(self, draft: Path, names: Sequence[str], suffix: str) -> Path:
        """Store a checked file, then its names: in this order every name points to a file."""
        path = self._folder / "files" / f"{digest_of_file(draft)}{suffix}"
        draft.replace(path)
        durable.fsync(path)
        durable.fsync(path.parent)
        self.add_names(path, [*names, f"sha256:{path.stem}"])
        return path

    def add_names(self, path: Path, names: Sequence[str]) -> None:
        """Record further names of a stored book."""
        for name in names:
            durable.write(self._folder / "names" / _short(name), path.stem)

    @contextlib.contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[None]:
        """Lock the names of a book against other processes and threads; a lock ends with its process at the latest.

        Waits while another process or thread fetches the book. Locks are acquired in sorted order, which prevents a
        deadlock.
        """
        with contextlib.ExitStack() as stack:
            for name in sorted({_short(name) for name in names}):
                file = stack.enter_context((self._folder / "locks" / name).open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def download_sources(
    sources: Sequence[Source],
    address: Callable[[str], str],
    folder: Path,
    holdings: Holdings,
    config: WebConfig,
    *,
    names: dict[str, list[str]] | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Source], list[DownloadLog]]:
    """Fetch every admitted source into `folder`: from `holdings`, or by downloads from several hosts in parallel.

    Returns all rows in the given order, those that failed as rejected with the reason, and a log row for each source
    that was admitted. `address` turns a row's `download_url` into the address to fetch; `names` are further identifiers
    by source_id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    admitted = [source for source in sources if source.status == ADMITTED]
    # On an interrupt the client closes first, which ends running transfers, so that the thread pool need not wait.
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool, polite_client(config) as web:

        def begin(source: Source) -> tuple[Source, DownloadLog]:
            aliases = [source.source_id, *(names or {}).get(source.source_id, [])]
            return _download_source(source, address(source.download_url), aliases, folder, holdings, web, config)

        futures = [pool.submit(begin, source) for source in admitted]
        for count, future in enumerate(as_completed(futures), 1):
            future.result()
            progress(count, len(admitted), 0)
    results = [future.result() for future in futures]
    after = {row.source_id: row for row, _ in results}
    rows = [after[row.source_id] if row.status == ADMITTED else row for row in sources]
    return reject_duplicates(rows), [log for _, log in results]


def _download_source(
    source: Source,
    url: str,
    names: Sequence[str],
    folder: Path,
    holdings: Holdings,
    web: httpx.Client,
    config: WebConfig,
) -> tuple[Source, DownloadLog]:
    """Fetch one admitted source into `folder`. Another process that needs the same book waits, then finds it stored."""
    begin = time.monotonic()
    with holdings.claim(names), tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as drafts:
        path = holdings.find(names)
        result = Transfer()
        if path:
            holdings.add_names(path, names)
        else:
            draft = Path(drafts) / "draft"
            result, suffix = _fetch_book(web, url, draft, config)
            path = None if result.reason else holdings.add(draft, names, suffix)
    after = replace(
        source,
        sha256=path.stem if path else "",
        num_bytes=path.stat().st_size if path else 0,
        status=ADMITTED if path else REJECTED,
        reason="" if path else f"download: {result.reason}",
    )
    if path:
        link_file(path, folder)
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
class Transfer:
    """Result of a transfer; fields that DownloadLog also has mean the same there."""

    status_code: int = 0
    num_bytes: int = 0
    attempts: int = 0
    reason: str = ""
    """Why there is no complete file; empty if there is one."""
    content_type: str = ""
    """Type in the server's header, without parameters."""
    has_length: bool = False
    """Whether the server sent the length, so that a truncated body was noticed."""
    final_url: str = ""


def _fetch_book(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> tuple[Transfer, str]:
    """Fetch and check a book; a web page is searched for its PDF link. Returns the transfer and the file suffix."""
    result = _transfer(web, url, draft, config)
    if result.content_type in HYPERTEXT:
        linked = _linked_pdf(web, result.final_url)
        if linked and linked != url:
            result = _transfer(web, linked, draft, config)
    if result.reason:
        return result, ""
    try:
        return result, file_kinds.check(draft, OPEN_LIMITS, measured=result.has_length)
    except DocumentError as error:
        return replace(result, reason=error.message), ""


class _TruncatedBody(Exception):
    """The connection broke before the end of the body; the file is requested again."""


def _transfer(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> Transfer:
    """Fetch the file at an address, or return the reason for failure; the client itself retries a busy server."""
    reason = ""
    for attempt in range(1, config.attempts + 1):
        try:
            return replace(_attempt(web, url, draft, config), attempts=attempt)
        except _TruncatedBody as error:
            reason = f"transfer broke off: {error}"
        except CatalogueError as error:
            return Transfer(attempts=attempt, reason=error.message)
        except httpx.TooManyRedirects:
            return Transfer(attempts=attempt, reason=f"more than {web.max_redirects} redirects")
        except (httpx.TransportError, httpx.InvalidURL) as error:
            what = "no address" if isinstance(error, httpx.InvalidURL) else "no answer"
            return Transfer(attempts=attempt, reason=f"{what}: {error}")
    return Transfer(attempts=config.attempts, reason=reason)


def _attempt(web: httpx.Client, url: str, draft: Path, config: WebConfig) -> Transfer:
    with web.stream("GET", url) as response:
        headers = response.headers
        reason = _refusal(response, config) or _receive(response, draft, config)
        return Transfer(
            status_code=response.status_code,
            num_bytes=0 if reason else draft.stat().st_size,
            reason=reason,
            content_type=_kind(response),
            has_length="content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked",
            final_url=str(response.url),
        )


def _refusal(response: httpx.Response, config: WebConfig) -> str:
    """Reason not to read the body of a response; empty if it can be read."""
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
    """Write the body to the file `draft`; returns the reason to reject it, or an empty text."""
    with draft.open("wb") as file:
        try:
            for block in response.iter_raw():
                file.write(block)
                if file.tell() > config.max_bytes:
                    return _too_large(file.tell(), config)
        except httpx.TransportError as error:
            raise _TruncatedBody(str(error)) from error
    return ""


def _too_large(count: int, config: WebConfig) -> str:
    return f"too large: {count} bytes or more, at most {config.max_bytes} are fetched"


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


def _linked_pdf(web: httpx.Client, url: str) -> str:
    """The PDF that a page links, if it links exactly one; else empty."""
    try:
        with web.stream("GET", url) as response:
            body = body_of(response, PAGE_BYTES)
    except (httpx.TransportError, CatalogueError):
        return ""
    pdfs = read_page(body.decode("utf-8", errors="replace"), url).pdfs if len(body) <= PAGE_BYTES else []
    return pdfs[0] if len(pdfs) == 1 else ""


def link_file(file: Path, folder: Path) -> Path:
    """Link the file into `folder`, or copy it if the file system has no hard links."""
    target = folder / file.name
    if not target.exists():
        try:
            target.hardlink_to(file)
        except OSError:
            target.write_bytes(file.read_bytes())
    return target


def reject_duplicates(sources: Sequence[Source]) -> list[Source]:
    """Reject each source whose file has the same bytes as that of an earlier source."""
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
