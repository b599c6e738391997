"""One file from one address: redirects, retries, resumption, size cap. Knows nothing of PDFs."""

import email.utils
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from infuser_core.errors import DocumentError

REDIRECTS = frozenset({301, 302, 303, 307, 308})
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Limits and manners of one transfer."""

    max_bytes: int = 500 << 20
    """Largest file accepted, bytes."""
    max_seconds: float = 1800.0
    """Wall-clock limit of one attempt, seconds."""
    max_redirects: int = 5
    """Redirects followed."""
    attempts: int = 4
    """Requests made before a busy or broken server is given up."""
    backoff_seconds: float = 2.0
    """Upper end of the first random wait; doubles with every attempt, seconds."""
    max_wait_seconds: float = 120.0
    """Longest wait, also where the server's Retry-After asks for more, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """How a transfer ended."""

    status_code: int
    """Last HTTP status; 0 when no answer came."""
    num_bytes: int
    """Bytes in the part file."""
    attempts: int
    """Requests made, redirects not counted."""
    reason: str
    """Why there is no complete file; empty when there is one."""


class _Retry(Exception):
    """A failure that another attempt may cure."""

    def __init__(self, reason: str, *, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.status, self.wait = reason, status, wait


def fetch(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> Fetched:
    """Bring the file at `url` into `part`, continuing what an earlier call left there.

    The part file is fsynced when the transfer is complete. A file that must not be taken gives a reason; an address
    that is refused raises CatalogueError.
    """
    last = _Retry("no attempt")
    for attempt in range(1, config.attempts + 1):
        try:
            status = _attempt(client, url, part, config)
            return Fetched(status_code=status, num_bytes=part.stat().st_size, attempts=attempt, reason="")
        except _Retry as error:
            last = error
        except httpx.TransportError as error:
            last = _Retry(f"transfer broke off: {error}")
        except DocumentError as error:
            return Fetched(status_code=0, num_bytes=_size(part), attempts=attempt, reason=error.message)
        if attempt < config.attempts:
            # Full jitter: clients that failed together must not come back together.
            jitter = random.uniform(0, config.backoff_seconds * 2 ** (attempt - 1))
            time.sleep(min(config.max_wait_seconds, max(last.wait, jitter)))
    return Fetched(status_code=last.status, num_bytes=_size(part), attempts=config.attempts, reason=last.reason)


def _attempt(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> int:
    headers = _resume_headers(part, url)
    deadline = time.monotonic() + config.max_seconds
    here = url
    for _ in range(config.max_redirects + 1):
        with client.stream("GET", here, headers=headers) as response:
            if response.status_code in REDIRECTS:
                here = _next_address(here, response)
                continue
            offset = _accept(response, part, config)
            _tag_file(part).write_text(json.dumps({"url": url, "etag": _strong_etag(response)}), encoding="utf-8")
            _receive(response, part, offset, deadline=deadline, config=config)
            return response.status_code
    raise DocumentError(f"more than {config.max_redirects} redirects")


def _next_address(here: str, response: httpx.Response) -> str:
    target = urljoin(here, response.headers.get("location", ""))
    scheme = urlsplit(target).scheme
    if scheme not in ("http", "https") or (urlsplit(here).scheme == "https" and scheme == "http"):
        raise DocumentError(f"refused redirect from {urlsplit(here).scheme} to {scheme or 'nowhere'}")
    return target


def _accept(response: httpx.Response, part: Path, config: FetchConfig) -> int:
    """Offset at which the body continues the part file. Raises _Retry or DocumentError when it must not be read."""
    status = response.status_code
    if status in BUSY:
        raise _Retry(f"HTTP {status}", status=status, wait=_retry_after(response))
    if status == 416:
        # The part is longer than the file or the file changed: nothing of it can be trusted.
        _forget(part)
        raise _Retry("HTTP 416: the part file does not fit", status=status)
    if status not in (200, 206):
        raise DocumentError(f"HTTP {status}")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise DocumentError(f"content encoding {response.headers['content-encoding']!r} was not asked for")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind.startswith("image/"):
        raise DocumentError(f"content type {kind}, no PDF")
    offset = _size(part) if status == 206 else 0
    if status == 206 and not response.headers.get("content-range", "").startswith(f"bytes {offset}-"):
        _forget(part)
        raise _Retry("partial answer does not start where asked", status=status)
    if offset + int(response.headers.get("content-length", "0") or 0) > config.max_bytes:
        raise DocumentError(f"larger than {config.max_bytes} bytes")
    return offset


def _receive(response: httpx.Response, part: Path, offset: int, *, deadline: float, config: FetchConfig) -> None:
    with part.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        # No block size: a buffer in between would be lost with the connection, and resumption with it.
        for block in response.iter_raw():
            file.write(block)
            if file.tell() > config.max_bytes:
                raise DocumentError(f"larger than {config.max_bytes} bytes")
            if time.monotonic() > deadline:
                raise _Retry(f"slower than {config.max_seconds:g} s", status=response.status_code)
        file.flush()
        os.fsync(file.fileno())


def _resume_headers(part: Path, url: str) -> dict[str, str]:
    """Range and If-Range where the part file came from the same address and the server named a version of it."""
    tag = _tag_file(part)
    if not _size(part) or not tag.is_file():
        return {}
    try:
        known = json.loads(tag.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    if known.get("url") != url or not known.get("etag"):
        return {}
    return {"Range": f"bytes={_size(part)}-", "If-Range": known["etag"]}


def _strong_etag(response: httpx.Response) -> str:
    etag: str = response.headers.get("etag", "")
    return "" if etag.startswith("W/") else etag


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _tag_file(part: Path) -> Path:
    return part.with_suffix(".tag")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)
