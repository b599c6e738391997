"""Sealed JSON records and lines: written with a digest of their content (the seal), which readers check for damage.

The seal of a line is a checksum of the line and of the previous line's seal, so that the lines form a chain.
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
    """Serialize as JSON with sorted keys and no blanks, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: Any) -> str:
    """sha256 of a value's canonical JSON, hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """sha256 of a file's content, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def dumps(record: Mapping[str, Any]) -> str:
    """Serialize a record as JSON text with its seal."""
    # Compute the digest after a round trip through JSON: keys that are not strings would sort differently.
    plain = json.loads(json.dumps(record))
    return json.dumps({**plain, _SEAL: digest_of(plain)}, indent=1, sort_keys=True) + "\n"


def loads(text: str | bytes) -> dict[str, Any]:
    """Parse a record and check its seal, which records of older versions lack. Raises ValueError if it is damaged."""
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    if record.pop(_SEAL, None) not in (None, digest_of(record)):
        raise ValueError("its content changed since it was written")
    return record


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a sealed record to a file atomically."""
    durable.write(path, dumps(record))


def read(path: Path, **expected: Any) -> dict[str, Any]:
    """Read a sealed record from a file. Raises ValueError if it is damaged, OSError if the file cannot be read.

    `expected` are values that identify the record. Raises ValueError if one differs, which means that the file belongs
    elsewhere; values that the record lacks are not checked, because older versions did not write all of them.
    """
    record = loads(path.read_bytes())
    for name, value in expected.items():
        if record.get(name, value) != value:
            raise ValueError(f"it is the record of {record[name]}")
    return record


def checksum(data: bytes) -> str:
    """The first 16 hex digits of the sha256 of some bytes."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """Serialize a record as the line after the line with the seal `before`; returns the line and its seal."""
    body = json.dumps(record).encode().removesuffix(b"}")
    seal = checksum(before.encode() + body)
    return body + _MARK + seal.encode() + _END + b"\n", seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Result of checking a file's chain of sealed lines: undamaged lines, and those from the first damaged line on."""

    lines: Sequence[bytes]
    """Undamaged lines, up to the first damaged one."""
    beyond: Sequence[bytes]
    """The first damaged line and all lines after it."""
    seals: Mapping[int, str]
    """Seal by the offset of its line's end. Unsealed lines of older versions share one seal, at the end of the last."""
    end: int
    """Total size of the undamaged lines, bytes."""
    torn: int
    """Line number, from 1, of an incomplete last line; 0 if there is none."""
    sealed: bool
    """Whether any line has a seal."""


def chain(data: bytes) -> Chain:
    """Check the seals of a file's content line by line."""
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
