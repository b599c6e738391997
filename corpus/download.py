"""Admitted sources to files named by their digest. What is not a whole, readable PDF is rejected with a reason."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from corpus import child
from corpus.fetch import FetchConfig, Fetched, fetch
from corpus.guard import GuardConfig, client
from corpus.registry import ADMITTED, REJECTED, file_of
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import CatalogueError, DocumentError
from infuser_core.schemas import Source

HEAD_BYTES = 1024
TAIL_BYTES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadConfig:
    """How sources are fetched and checked."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    """Who may be reached."""
    transfer: FetchConfig = field(default_factory=FetchConfig)
    """Limits and manners of one transfer."""
    host_delay_seconds: float = 1.0
    """Least time between two requests to one host outside `guard.allowed_hosts`, seconds."""
    open_limits: child.Limits = field(default_factory=lambda: child.Limits(wall_seconds=60.0, cpu_seconds=60))
    """Limits of the process that opens the file to count its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLog:
    """What happened on the wire. Differs from run to run, therefore kept apart from the registry."""

    source_id: str
    """Source asked for."""
    url: str
    """Absolute address."""
    status_code: int
    """Last HTTP status; 0 when no answer came."""
    num_bytes: int
    """Bytes received."""
    seconds: float
    """Duration with all attempts, seconds."""
    downloaded_on: str
    """End of the transfer, ISO 8601, UTC."""
    attempts: int
    """Requests made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadResult:
    """Registry rows after the download, and the log of the wire."""

    sources: list[Source]
    """Every input row in order; newly rejected rows carry their reason."""
    log: list[DownloadLog]
    """One row per source that was asked for."""


def download(
    sources: Sequence[Source],
    address: Callable[[str], str],
    folder: Path,
    config: DownloadConfig,
    *,
    progress: Progress = no_progress,
) -> DownloadResult:
    """Fetch every admitted source into `folder`, one after the other.

    `address` turns a row's `download_url` into the address to fetch (see Catalogue.address).
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Source] = []
    log: list[DownloadLog] = []
    last_request: dict[str, float] = {}
    owner: dict[str, str] = {}
    with client(config.guard) as web:
        for done, source in enumerate(sources, start=1):
            if source.status == ADMITTED:
                url = address(source.download_url)
                _wait_for_host(url, last_request, config)
                source, entry = _one(web, source, url, folder, config)
                log.append(entry)
                source = _refuse_twin(source, owner)
            rows.append(source)
            progress(done, len(sources), 0)
    return DownloadResult(sources=rows, log=log)


def _one(
    web: httpx.Client, source: Source, url: str, folder: Path, config: DownloadConfig
) -> tuple[Source, DownloadLog]:
    part = folder / f"{hashlib.sha256(source.source_id.encode()).hexdigest()[:16]}.part"
    begin = time.monotonic()
    try:
        result = fetch(web, url, part, config.transfer)
    except CatalogueError as error:
        result = Fetched(status_code=0, num_bytes=0, attempts=1, reason=error.message)
    entry = DownloadLog(
        source_id=source.source_id,
        url=url,
        status_code=result.status_code,
        num_bytes=result.num_bytes,
        seconds=round(time.monotonic() - begin, 3),
        downloaded_on=datetime.now(UTC).isoformat(timespec="seconds"),
        attempts=result.attempts,
    )
    if result.reason:
        return replace(source, status=REJECTED, reason=f"download: {result.reason}"), entry
    try:
        check_pdf(part, config.open_limits)
    except DocumentError as error:
        part.unlink()
        part.with_suffix(".tag").unlink(missing_ok=True)
        return replace(source, status=REJECTED, reason=f"download: {error.message}"), entry
    return _keep(source, part, folder), entry


def check_pdf(path: Path, limits: child.Limits) -> int:
    """Number of pages. Raises DocumentError for anything but a whole PDF that opens.

    The trailer is checked because a connection that closes early looks complete when the server sent no length.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        tail = file.read()
    if b"%PDF-" not in head:
        page = b"<html" in head.lower() or b"<!doctype" in head.lower()
        raise DocumentError("an HTML page, no PDF" if page else f"no PDF: starts with {head[:8]!r}")
    if b"%%EOF" not in tail:
        raise DocumentError("truncated: the PDF has no end mark")
    pages = child.call("corpus.pdf:count_pages", {"path": str(path)}, limits)
    if not isinstance(pages, int) or pages < 1:
        raise DocumentError(f"the PDF has {pages!r} pages")
    return pages


def _keep(source: Source, part: Path, folder: Path) -> Source:
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = part.stat().st_size
    part.rename(file_of(folder, digest))
    part.with_suffix(".tag").unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return replace(source, sha256=digest, num_bytes=size)


def _refuse_twin(source: Source, owner: dict[str, str]) -> Source:
    """The same bytes under two identifiers are one resource."""
    if source.status != ADMITTED:
        return source
    first = owner.setdefault(source.sha256, source.source_id)
    if first == source.source_id:
        return source
    reason = f"duplicate of {first}: same sha256:{source.sha256}"
    return replace(source, status=REJECTED, reason=reason, sha256="", num_bytes=0)


def _wait_for_host(url: str, last_request: dict[str, float], config: DownloadConfig) -> None:
    host = urlsplit(url).hostname or ""
    if host in config.guard.allowed_hosts:
        return
    pause = last_request.get(host, float("-inf")) + config.host_delay_seconds - time.monotonic()
    time.sleep(max(0.0, pause))
    last_request[host] = time.monotonic()
