"""Download of one file from one address: redirects, retries, resumption, size limit."""

import functools
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from corpus.find import partial
from corpus.find.identifiers import absolute, scheme_of
from corpus.find.polite_http import BUSY, Clock, backoff, retry_after

REDIRECTS = frozenset({301, 302, 303, 307, 308})
HYPERTEXT = frozenset({"text/html", "application/xhtml+xml"})


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
    """Longest wait; a server whose Retry-After asks for more is given up, seconds."""
    clock: Clock = field(default_factory=Clock)
    """Time and waiting."""


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
    content_type: str = ""
    """Type that the server named, without parameters; empty when no body was read."""
    measured: bool = False
    """Whether the server told the length, so that a body that ends early was noticed."""
    final_url: str = ""
    """Address that answered, after redirects."""


class _Retry(Exception):
    """A failure that another attempt may cure."""

    def __init__(self, reason: str, *, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.status, self.wait = reason, status, wait


class _Refused(Exception):
    """A file that must not be taken."""

    def __init__(self, reason: str, *, status: int = 0, kind: str = "", url: str = "") -> None:
        super().__init__(reason)
        self.reason, self.status, self.kind, self.url = reason, status, kind, url


def fetch(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> Fetched:
    """Bring the file at `url` into `part`, continuing what an earlier call left there.

    The part file is fsynced when the transfer is complete. A file that must not be taken gives a reason; an address
    that is refused raises CatalogueError.
    """
    last = _Retry("no attempt")
    for attempt in range(1, config.attempts + 1):
        try:
            return replace(_attempt(client, url, part, config), attempts=attempt)
        except _Retry as error:
            last = error
        except httpx.TransportError as error:
            last = _Retry(f"transfer broke off: {error}")
        except httpx.InvalidURL as error:
            return _failed(part, f"no address: {error}", attempt, status=0)
        except _Refused as error:
            partial.forget(part)
            return _failed(part, error.reason, attempt, status=error.status, kind=error.kind, url=error.url)
        if last.wait > config.max_wait_seconds:
            return _failed(part, f"{last.reason}, to be asked again in {last.wait:.0f} s", attempt, status=last.status)
        if attempt < config.attempts:
            config.clock.sleep(max(last.wait, backoff(attempt, config.backoff_seconds, config.max_wait_seconds)))
    return _failed(part, last.reason, config.attempts, status=last.status)


def _failed(part: Path, reason: str, attempts: int, *, status: int, kind: str = "", url: str = "") -> Fetched:
    return Fetched(
        status_code=status,
        num_bytes=partial.size(part),
        attempts=attempts,
        reason=reason,
        content_type=kind,
        final_url=url,
    )


def _attempt(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> Fetched:
    headers = partial.request_headers(part, url)
    deadline = config.clock.now() + config.max_seconds
    here = url
    for _ in range(config.max_redirects + 1):
        with client.stream("GET", here, headers=headers) as response:
            if response.status_code in REDIRECTS:
                here = _next_address(here, response)
                continue
            if response.status_code == 416 and partial.is_whole(response, part):
                return _done(part, response, here, measured=True)
            offset = _accept(response, part, here, config)
            partial.begin(part, url, response, offset)
            _receive(response, part, offset, deadline=deadline, config=config)
            total = partial.total(response, offset)
            if total is not None and total != partial.size(part):
                partial.forget(part)
                raise _Retry(f"{partial.size(part)} bytes of {total}", status=response.status_code)
            chunked = response.headers.get("transfer-encoding", "").lower() == "chunked"
            return _done(part, response, here, measured=total is not None or chunked)
    raise _Refused(f"more than {config.max_redirects} redirects", url=here)


def _done(part: Path, response: httpx.Response, url: str, *, measured: bool) -> Fetched:
    return Fetched(
        status_code=response.status_code,
        num_bytes=partial.size(part),
        attempts=1,
        reason="",
        content_type=_kind(response),
        measured=measured,
        final_url=url,
    )


def _next_address(here: str, response: httpx.Response) -> str:
    location = response.headers.get("location", "")
    target, scheme = absolute(here, location), scheme_of(here, location)
    if not target or (here.startswith("https:") and scheme == "http"):
        reason = f"refused redirect from {here.partition(':')[0]} to {scheme or 'nowhere'}"
        raise _Refused(reason, status=response.status_code, url=here)
    return target


def _accept(response: httpx.Response, part: Path, url: str, config: FetchConfig) -> int:
    """Offset at which the body continues the part file. Raises _Retry or _Refused when it must not be read."""
    status, kind = response.status_code, _kind(response)
    if status in BUSY:
        wait = retry_after(response.headers.get("retry-after", ""), time.time())
        raise _Retry(f"HTTP {status}", status=status, wait=wait)
    if status == 416:
        # The part is longer than the file or the file changed: nothing of it can be trusted.
        partial.forget(part)
        raise _Retry("HTTP 416: the part file does not fit", status=status)
    refuse = functools.partial(_Refused, status=status, kind=kind, url=url)
    if status not in (200, 206):
        raise refuse(f"HTTP {status}")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise refuse(f"content encoding {encoding!r} was not asked for")
    if kind in HYPERTEXT or kind.startswith(("image/", "audio/", "video/")):
        raise refuse(f"content type {kind}, no document")
    offset = partial.size(part) if status == 206 else 0
    if status == 206 and not partial.continues(response, part):
        partial.forget(part)
        raise _Retry("partial answer does not continue the part file", status=status)
    length = response.headers.get("content-length", "")
    if offset + int(length if length.isdecimal() else 0) > config.max_bytes:
        raise refuse(f"larger than {config.max_bytes} bytes")
    return offset


def _receive(response: httpx.Response, part: Path, offset: int, *, deadline: float, config: FetchConfig) -> None:
    with part.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        # No block size: a buffer in between would be lost with the connection, and resumption with it.
        for block in response.iter_raw():
            file.write(block)
            # What a killed process still held in its own memory could not be continued.
            file.flush()
            if file.tell() > config.max_bytes:
                raise _Refused(f"larger than {config.max_bytes} bytes", status=response.status_code)
            if config.clock.now() > deadline:
                raise _Retry(f"slower than {config.max_seconds:g} s", status=response.status_code)
        os.fsync(file.fileno())


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind
