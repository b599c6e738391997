"""Sealed JSON records and lines: a digest over the content, written with it and checked by whoever reads it.

The seal of a line is taken over the line and the seal of the line before, so that lines form a chain.
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
    # Of what will be read: keys that are no strings sort otherwise.
    plain = json.loads(json.dumps(record))
    return json.dumps({**plain, _SEAL: digest_of(plain)}, indent=1, sort_keys=True) + "\n"


def loads(text: str | bytes) -> dict[str, Any]:
    """The record in a text, without its seal; one of an older version has none. Raises ValueError for anything else."""
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

    `expected` are facts by which a record is told from a whole one that belongs elsewhere; older versions lack some.
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
    """The record as a line that follows the one with the seal `before`; returns its own seal, too."""
    body = json.dumps(record).encode().removesuffix(b"}")
    seal = checksum(before.encode() + body)
    return body + _MARK + seal.encode() + _END + b"\n", seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Lines of a file, as far as they follow from each other."""

    lines: Sequence[bytes]
    """Lines before the first damaged one."""
    beyond: Sequence[bytes]
    """The damaged line and all behind it."""
    seals: Mapping[int, str]
    """Seal by the bytes up to the end of its line; lines of older versions, which have none, have one together."""
    end: int
    """Bytes of the sound lines."""
    torn: int
    """Number, from 1, of a last line without an end; 0 for none."""
    sealed: bool
    """Whether some line has a seal of its own."""


def chain(data: bytes) -> Chain:
    """Follow the seals from line to line."""
    *lines, fragment = data.split(b"\n")
    seals, end, seal, sealed, sound = {0: ""}, 0, "", False, 0
    for text in lines:
        body, mark, given = text.rpartition(_MARK)
        if mark and not sealed and end:
            seal = seals[end] = checksum(data[:end])
        if mark or sealed:
            seal = checksum(seal.encode() + body)
            if given != seal.encode() + _END:
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
