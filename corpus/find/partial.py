"""Partial downloads: a part file and its version, so that a transfer resumes where it broke off."""

import email.utils
import json
import re
from pathlib import Path

import httpx

SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def size(part: Path) -> int:
    """Bytes that are there."""
    return part.stat().st_size if part.is_file() else 0


def begin(part: Path, url: str, response: httpx.Response, offset: int) -> None:
    """Note which version of which address the part file is of; a fresh transfer forgets the old bytes first.

    In this order a crash leaves bytes without a note, never a new note beside old bytes.
    """
    validator = _validator(response)
    if offset:
        validator = validator or _known(part).get("validator", "")
    else:
        forget(part)
    _tag_file(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def request_headers(part: Path, url: str) -> dict[str, str]:
    """Range and If-Range where the part file came from the same address and the server named a version of it."""
    known = _known(part)
    if not size(part) or known.get("url") != url or not known.get("validator"):
        return {}
    return {"Range": f"bytes={size(part)}-", "If-Range": known["validator"]}


def continues(response: httpx.Response, part: Path) -> bool:
    """Whether a partial answer begins where the part ends and names the version that the part is of."""
    span = SPAN.fullmatch(response.headers.get("content-range", ""))
    known = _known(part).get("validator", "")
    named = response.headers.get("etag" if known.startswith('"') else "last-modified", known)
    return size(part) > 0 and span is not None and int(span[1]) == size(part) and named == known


def is_whole(response: httpx.Response, part: Path) -> bool:
    """Whether the refused range began exactly at the file's end: the part is complete."""
    return size(part) > 0 and response.headers.get("content-range", "") == f"bytes */{size(part)}"


def total(response: httpx.Response, offset: int) -> int | None:
    """Size of the whole file as the server tells it, bytes; None where it does not."""
    span = SPAN.fullmatch(response.headers.get("content-range", ""))
    if response.status_code == 206 and span is not None and span[3] != "*":
        return int(span[3])
    length = response.headers.get("content-length", "")
    return offset + int(length) if length.isdecimal() else None


def forget(part: Path) -> None:
    """Remove a part file with what is known of it."""
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)


def _tag_file(part: Path) -> Path:
    return part.with_suffix(".tag")


def _known(part: Path) -> dict[str, str]:
    try:
        known = json.loads(_tag_file(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _validator(response: httpx.Response) -> str:
    """What names this version exactly: a strong ETag, else a modification date well before the answer's own.

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
