"""Sealed JSON records and lines: a digest of the content is written with it and checked by readers.

The seal of a line is the checksum of the line and the seal of the line before, so lines form a chain.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.system import durable

_SEAL = "seal"
_MARK = b', "seal": "'
_END = b'"}'
_DIGITS = 16


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: Any) -> str:
    """sha256 of the canonical JSON, hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """sha256 of a file's content, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def dumps(record: Mapping[str, Any]) -> str:
    """The record as JSON text with its seal."""
    # The digest of what readers will parse: keys that are not strings would sort differently.
    plain = json.loads(json.dumps(record))
    return json.dumps({**plain, _SEAL: digest_of(plain)}, indent=1, sort_keys=True) + "\n"


def loads(text: str | bytes) -> dict[str, Any]:
    """Parse a record and check its seal, which older versions did not write. Raises ValueError for a damaged one."""
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    if record.pop(_SEAL, None) not in (None, digest_of(record)):
        raise ValueError("its content changed since it was written")
    return record


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a sealed record whole or not at all."""
    durable.write(path, dumps(record))


def read(path: Path, **expected: Any) -> dict[str, Any]:
    """The record in a file. Raises ValueError for a damaged one, OSError for one that cannot be read.

    `expected` are values that identify the record, so that one from elsewhere is refused; older versions lack some.
    """
    record = loads(path.read_bytes())
    for name, value in expected.items():
        if record.get(name, value) != value:
            raise ValueError(f"it is the record of {record[name]}")
    return record


def checksum(data: bytes) -> str:
    """The first 16 hex digits of the sha256."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """The record as a line that follows the line with the seal `before`; and its seal."""
    body = json.dumps(record).encode().removesuffix(b"}")
    seal = checksum(before.encode() + body)
    return body + _MARK + seal.encode() + _END + b"\n", seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The lines of a file, up to the first one that does not continue the chain of seals."""

    lines: Sequence[bytes]
    """Lines before the first damaged one."""
    beyond: Sequence[bytes]
    """The damaged line and all lines after it."""
    seals: Mapping[int, str]
    """Seal by the offset of its line's end; the lines of older versions, which have no seals, have one together."""
    end: int
    """Bytes of the sound lines."""
    torn: int
    """Number, from 1, of an incomplete last line; 0 for none."""
    sealed: bool
    """Whether any line has a seal."""


def chain(data: bytes) -> Chain:
    """Follow the seals from line to line."""
    *lines, fragment = data.split(b"\n")
    seals, end, seal, sealed, sound = {0: ""}, 0, "", False, 0
    for text in lines:
        body, mark, line_end = text.rpartition(_MARK)
        if mark and not sealed and end:
            seal = seals[end] = checksum(data[:end])
        if mark or sealed:
            seal = checksum(seal.encode() + body)
            if line_end != seal.encode() + _END:
                break
            sealed = True
            seals[end + len(text) + 1] = seal
        end += len(text) + 1
        sound += 1
    if end not in seals:
        seals[end] = checksum(data[:end])
    return Chain(
        lines=lines[:sound],
        beyond=lines[sound:],
        seals=seals,
        end=end,
        torn=len(lines) + 1 if fragment else 0,
        sealed=sealed,
    )
