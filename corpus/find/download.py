"""Download of admitted sources into files named by their digest; what is no whole, readable book is rejected.

`bring` is one source: the unit that a run resumes by. `download` is many, in parallel across hosts.
"""

import hashlib
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx

from corpus.find.fetch import HYPERTEXT, FetchConfig, Fetched, fetch, forget
from corpus.find.guard import GuardConfig
from corpus.find.holdings import Holding, Holdings, holding_of, joined
from corpus.find.identifiers import host_of
from corpus.find.landing import read as read_page
from corpus.find.polite_http import Clock, Patience, Politeness, polite_client
from corpus.find.registry import ADMITTED, REJECTED
from corpus.read import file_kinds
from infuser_core import child
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import CatalogueError, DocumentError
from infuser_core.schemas import Source

PAGE_BYTES = 4 << 20
"""Largest part that is read of a web page where a file was expected, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadConfig:
    """How sources are fetched and checked."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    """Addresses that may be reached."""
    transfer: FetchConfig = field(default_factory=FetchConfig)
    """Limits and patience of one transfer."""
    politeness: Politeness = field(default_factory=Politeness)
    """Pauses between requests to hosts outside `guard.allowed_hosts`; how often one is repeated is for `transfer`."""
    max_hosts: int = 4
    """Hosts that are downloaded from at one time; each serves one file at a time."""
    follow_pages: bool = True
    """Whether a web page in the place of a file is read for the file that it names."""
    open_limits: child.Limits = field(default_factory=lambda: child.Limits(wall_seconds=60.0, cpu_seconds=60))
    """Limits of the process that opens the file to count its pages."""
    clock: Clock = field(default_factory=Clock)
    """Time and waiting between requests."""


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
    """Requests made; 0 for a book that was there already."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty when admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """One source after its download."""

    source: Source
    """The registry row, with digest and size, or with the reason of its rejection."""
    log: DownloadLog
    """Log of the transfer."""
    holding: Holding
    """The row of the holdings, with every name and address of the book."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadResult:
    """Registry rows after the download, and the log of the wire."""

    sources: list[Source]
    """Every input row in order; newly rejected rows carry their reason."""
    log: list[DownloadLog]
    """One row per source that was asked for."""
    holdings: list[Holding] = field(default_factory=list)
    """One row per source that was asked for."""


def web_client(config: DownloadConfig) -> httpx.Client:
    """The client of a download: guarded and polite. `fetch` has its own patience, so one attempt is enough here."""
    politeness = replace(config.politeness, without_delay=config.guard.allowed_hosts, patience=Patience(attempts=1))
    return polite_client(config.guard, politeness, config.clock)


def download(
    sources: Sequence[Source],
    address: Callable[[str], str],
    folder: Path,
    config: DownloadConfig,
    *,
    names: dict[str, list[str]] | None = None,
    holdings: Holdings | None = None,
    progress: Progress = no_progress,
) -> DownloadResult:
    """Fetch every admitted source into `folder`, hosts in parallel.

    `address` turns a row's `download_url` into the address to fetch (see Catalogue.address). `names` are further
    identifiers by source_id. Without `holdings`, what was fetched before is known from nowhere but `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = [source for source in sources if source.status == ADMITTED]
    queues: dict[str, deque[Source]] = {}
    for source in asked:
        queues.setdefault(host_of(address(source.download_url)), deque()).append(source)
    done: dict[str, Brought] = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".holdings-") as own:
        shelf = holdings or Holdings(Path(own))
        # The client closes before the pool waits: an interrupt must not sit through the transfers in flight.
        with ThreadPoolExecutor(max_workers=config.max_hosts) as pool, web_client(config) as web:

            def begin(source: Source) -> Future[Brought]:
                known = (names or {}).get(source.source_id, [])
                url = address(source.download_url)
                return pool.submit(bring, source, url, folder, shelf, web, config, names=known)

            running = {begin(queue.popleft()): queue for queue in queues.values()}
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    queue = running.pop(future)
                    done[future.result().log.source_id] = future.result()
                    progress(len(done), len(asked), 0)
                    if queue:
                        running[begin(queue.popleft())] = queue
    rows = [done[source.source_id].source if source.status == ADMITTED else source for source in sources]
    brought = [done[source.source_id] for source in asked]
    return DownloadResult(
        sources=refuse_twins(rows), log=[row.log for row in brought], holdings=[row.holding for row in brought]
    )


def bring(
    source: Source,
    url: str,
    folder: Path,
    holdings: Holdings,
    web: httpx.Client,
    config: DownloadConfig,
    *,
    names: Sequence[str] = (),
) -> Brought:
    """One admitted source into `folder`: from the holdings where the book goes by any of its names, else fetched.

    While one process fetches a book, others that want it wait and then find it. Killing this loses nothing but the
    bytes that were on their way: the part file is continued by the next call.
    """
    begin = time.monotonic()
    with holdings.claim([source.source_id, *names]):
        held = holdings.find([source.source_id, *names])
        if held is not None:
            return _from_holdings(source, held, url, folder, holdings, names)
        part = holdings.part(source.source_id)
        result, reason, suffix = _fetched(web, url, part, config)
        digest = "" if reason else _digest(part)
        after = replace(
            source,
            sha256=digest,
            num_bytes=0 if reason else result.num_bytes,
            status=REJECTED if reason else ADMITTED,
            reason=f"download: {reason}" if reason else "",
        )
        log = _log(after, url, result, seconds=time.monotonic() - begin)
        row = holding_of(after, names, log.downloaded_on)
        if reason:
            holdings.note(row)
        else:
            row = holdings.keep(part, row, suffix)
            forget(part)
            link(holdings.file(digest), folder)
    return Brought(source=after, log=log, holding=row)


def _fetched(web: httpx.Client, url: str, part: Path, config: DownloadConfig) -> tuple[Fetched, str, str]:
    """The transfer, why it gave no book (empty when it did), and the file's kind."""
    result = _transfer(web, url, part, config)
    if config.follow_pages and result.content_type in HYPERTEXT:
        onward = _named_file(web, result.final_url or url)
        if onward and onward != url:
            result = _transfer(web, onward, part, config)
    if result.reason:
        return result, result.reason, ""
    try:
        return result, "", file_kinds.check(part, config.open_limits, measured=result.measured)
    except DocumentError as error:
        forget(part)
        return result, error.message, ""


def _transfer(web: httpx.Client, url: str, part: Path, config: DownloadConfig) -> Fetched:
    try:
        return fetch(web, url, part, config.transfer)
    except CatalogueError as error:
        return Fetched(status_code=0, num_bytes=0, attempts=1, reason=error.message)


def _named_file(web: httpx.Client, url: str) -> str:
    """The PDF that a page names, where it names exactly one; empty otherwise."""
    body = b""
    try:
        with web.stream("GET", url) as response:
            for block in response.iter_raw():
                body += block
                if len(body) > PAGE_BYTES:
                    return ""
    except (httpx.TransportError, CatalogueError):
        return ""
    named = read_page(body.decode("utf-8", errors="replace"), url).pdfs
    return named[0] if len(named) == 1 else ""


def _from_holdings(
    source: Source, held: Holding, url: str, folder: Path, holdings: Holdings, names: Sequence[str]
) -> Brought:
    """The book as it is, under the name of this source; new names and addresses enter the holdings."""
    after = replace(source, sha256=held.sha256, num_bytes=held.num_bytes)
    known = joined(held, holding_of(after, names, held.downloaded_on))
    if known != held:
        holdings.note(known)
    link(holdings.file(held.sha256), folder)
    nothing = Fetched(status_code=0, num_bytes=held.num_bytes, attempts=0, reason="")
    return Brought(source=after, log=_log(after, url, nothing, seconds=0.0), holding=known)


def link(file: Path, folder: Path) -> Path:
    """The file in `folder` too: as a second name where the file system allows it, else as a copy."""
    target = folder / file.name
    if not target.exists():
        try:
            target.hardlink_to(file)
        except OSError:
            target.write_bytes(file.read_bytes())
    return target


def _digest(part: Path) -> str:
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _log(source: Source, url: str, result: Fetched, *, seconds: float) -> DownloadLog:
    return DownloadLog(
        source_id=source.source_id,
        url=url,
        final_url=result.final_url,
        status_code=result.status_code,
        content_type=result.content_type,
        num_bytes=result.num_bytes,
        sha256=source.sha256,
        seconds=round(seconds, 3),
        downloaded_on=datetime.now(UTC).isoformat(timespec="seconds"),
        attempts=result.attempts,
        status=source.status,
        reason=source.reason,
    )


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
