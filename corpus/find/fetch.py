"""Download of one file from one address: redirects, retries, resumption of a part file, size limit."""

import email.utils
import functools
import json
import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from corpus.find.polite_http import BUSY, Again, Clock, Patience, retry_after, retrying

HYPERTEXT = frozenset({"text/html", "application/xhtml+xml"})
SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Limits and patience of one transfer."""

    max_bytes: int = 500 << 20
    """Largest file accepted, bytes."""
    max_seconds: float = 1800.0
    """Wall-clock limit of one attempt, seconds."""
    patience: Patience = field(default_factory=lambda: Patience(attempts=4))
    """How often a busy or broken server is asked again."""
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


class _Refused(Exception):
    """A file that must not be taken."""

    def __init__(self, reason: str, *, status: int = 0, kind: str = "", url: str = "") -> None:
        super().__init__(reason)
        self.status, self.kind, self.url = status, kind, url


def fetch(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> Fetched:
    """Bring the file at `url` into `part`, continuing what an earlier call left there.

    The part file is fsynced when the transfer is complete. A file that must not be taken gives a reason; an address
    that is refused raises CatalogueError.
    """
    asking = retrying(config.patience, config.clock)
    status, reason, kind, here = 0, "", "", ""
    try:
        return replace(asking(_attempt, client, url, part, config), attempts=asking.statistics["attempt_number"])
    except _Refused as error:
        forget(part)
        status, reason, kind, here = error.status, str(error), error.kind, error.url
    except Again as error:
        later = f", to be asked again in {error.wait:.0f} s" if error.wait > config.patience.max_wait_seconds else ""
        status, reason = error.status, f"{error}{later}"
    except httpx.TransportError as error:
        reason = f"transfer broke off: {error}"
    except httpx.TooManyRedirects:
        reason = f"more than {client.max_redirects} redirects"
    except httpx.InvalidURL as error:
        reason = f"no address: {error}"
    return Fetched(
        status_code=status,
        num_bytes=_size(part),
        attempts=asking.statistics["attempt_number"],
        reason=reason,
        content_type=kind,
        final_url=here,
    )


def _attempt(client: httpx.Client, url: str, part: Path, config: FetchConfig) -> Fetched:
    deadline = config.clock.now() + config.max_seconds
    with client.stream("GET", url, headers=_range_headers(part, url)) as response:
        if response.status_code == 416 and _is_whole(response, part):
            return _done(part, response, measured=True)
        offset = _accept(response, part, config)
        _begin(part, url, response, offset)
        _receive(response, part, offset, deadline=deadline, config=config)
        total = _total(response, offset)
        if total is not None and total != _size(part):
            had = _size(part)
            forget(part)
            raise Again(f"{had} bytes of {total}", status=response.status_code)
        chunked = response.headers.get("transfer-encoding", "").lower() == "chunked"
        return _done(part, response, measured=total is not None or chunked)


def _done(part: Path, response: httpx.Response, *, measured: bool) -> Fetched:
    return Fetched(
        status_code=response.status_code,
        num_bytes=_size(part),
        attempts=1,
        reason="",
        content_type=_kind(response),
        measured=measured,
        final_url=str(response.url),
    )


def _accept(response: httpx.Response, part: Path, config: FetchConfig) -> int:
    """Offset at which the body continues the part file. Raises Again or _Refused when it must not be read."""
    status, kind = response.status_code, _kind(response)
    if status in BUSY:
        raise Again(
            f"HTTP {status}", status=status, wait=retry_after(response.headers.get("retry-after", ""), time.time())
        )
    if status == 416:
        # The part is longer than the file or the file changed: nothing of it can be trusted.
        forget(part)
        raise Again("HTTP 416: the part file does not fit", status=status)
    refuse = functools.partial(_Refused, status=status, kind=kind, url=str(response.url))
    if status not in (200, 206):
        raise refuse(f"HTTP {status}")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise refuse(f"content encoding {encoding!r} was not asked for")
    if kind in HYPERTEXT or kind.startswith(("image/", "audio/", "video/")):
        raise refuse(f"content type {kind}, no document")
    offset = _size(part) if status == 206 else 0
    if status == 206 and not _continues(response, part):
        forget(part)
        raise Again("partial answer does not continue the part file", status=status)
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
                raise Again(f"slower than {config.max_seconds:g} s", status=response.status_code)
        os.fsync(file.fileno())


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


# The part file and its note: the address and the version of the file that the bytes are of.


def forget(part: Path) -> None:
    """Remove a part file with what is known of it."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _note(part: Path) -> Path:
    return part.with_suffix(".tag")


def _known(part: Path) -> dict[str, str]:
    try:
        known = json.loads(_note(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _begin(part: Path, url: str, response: httpx.Response, offset: int) -> None:
    """Note which version of which address the part file is of; a fresh transfer forgets the old bytes first.

    In this order a crash leaves bytes without a note, never a new note beside old bytes.
    """
    version = _version(response)
    if offset:
        version = version or _known(part).get("validator", "")
    else:
        forget(part)
    _note(part).write_text(json.dumps({"url": url, "validator": version}), encoding="utf-8")


def _range_headers(part: Path, url: str) -> dict[str, str]:
    """Range and If-Range where the part file came from the same address and the server named a version of it."""
    known = _known(part)
    if not _size(part) or known.get("url") != url or not known.get("validator"):
        return {}
    return {"Range": f"bytes={_size(part)}-", "If-Range": known["validator"]}


def _continues(response: httpx.Response, part: Path) -> bool:
    """Whether a partial answer begins where the part ends and names the version that the part is of."""
    span = SPAN.fullmatch(response.headers.get("content-range", ""))
    known = _known(part).get("validator", "")
    named = response.headers.get("etag" if known.startswith('"') else "last-modified", known)
    return _size(part) > 0 and span is not None and int(span[1]) == _size(part) and named == known


def _is_whole(response: httpx.Response, part: Path) -> bool:
    """Whether the refused range began exactly at the file's end: the part is complete."""
    return _size(part) > 0 and response.headers.get("content-range", "") == f"bytes */{_size(part)}"


def _total(response: httpx.Response, offset: int) -> int | None:
    """Size of the whole file as the server tells it, bytes; None where it does not."""
    span = SPAN.fullmatch(response.headers.get("content-range", ""))
    if response.status_code == 206 and span is not None and span[3] != "*":
        return int(span[3])
    length = response.headers.get("content-length", "")
    return offset + int(length) if length.isdecimal() else None


def _version(response: httpx.Response) -> str:
    """Validator of this exact version: a strong ETag, else a modification date well before the answer's own.

    A file that changed within the second of its date would go unnoticed (RFC 9110, section 8.8.2.2).
    """
    etag: str = response.headers.get("etag", "")
    if etag.startswith('"'):
        return etag
    modified: str = response.headers.get("last-modified", "")
    try:
        changed = email.utils.parsedate_to_datetime(modified)
        answered = email.utils.parsedate_to_datetime(response.headers.get("date", ""))
        return modified if (answered - changed).total_seconds() >= 60 else ""
    except (ValueError, TypeError):
        return ""
