"""Write and read `log.txt` and `metrics.jsonl` of a run: whole lines, secrets redacted, errors never stop the run."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from infuser_core.results.trackers.parts.points import Point
from infuser_core.terminal import printable

LOG = "log.txt"
_LINE = 4000
_SECRET_NAME = r"(?:api_?key|access_?key|auth|auth_?string|credentials?|passphrase|passwo?r?d|secret|token)"
_NAMED = re.compile(rf"(?i)\b((?:\w*[_-])?{_SECRET_NAME}[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;}}]+)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_USERINFO = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_VARIABLE = re.compile(rf"(?i)(?:.*_)?{_SECRET_NAME}(?:_.*)?")
_SHORTEST = 6


def is_secret(name: str) -> bool:
    """Whether a setting or variable of this name is likely to hold a secret."""
    return bool(_VARIABLE.fullmatch(name.replace("-", "_")))


def redacted(text: str) -> str:
    """Replace secrets in a text: values of variables and settings by their names, credentials in addresses, tokens."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and is_secret(name):
            text = text.replace(value, "***")
    text = _USERINFO.sub("***", _NAMED.sub(r"\1***", text))
    return _BEARER.sub(r"\1 ***", text)


class Lines:
    """Appends whole lines to a file. The first write error is reported; lines that fail are dropped."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._path, self._tell = path, tell
        self._told = self._looked = False

    def add(self, line: str) -> None:
        """Add a line of bounded length, with control characters escaped."""
        text = printable(line.replace("\n", " "))
        text = text if len(text) <= _LINE else text[: _LINE - 3] + "..."
        try:
            self._write(text.encode(errors="backslashreplace") + b"\n")
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(f"cannot write {self._path}: {error.strerror or error}; the run continues without it")

    def _write(self, data: bytes) -> None:
        # Opened for each line, so that the file can be moved away. O_NONBLOCK: a pipe in its place must not block.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(self._path, flags, 0o644)
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(0, "not a regular file")
            # The last line may be incomplete after a kill or a full disk: start a new one.
            if not self._looked and facts.st_size and os.pread(handle, 1, facts.st_size - 1) != b"\n":
                data = b"\n" + data
            self._looked = os.write(handle, data) == len(data)
        finally:
            os.close(handle)


def points_in(path: Path) -> Iterator[Point]:
    """Read the points of a `metrics.jsonl`; incomplete and damaged lines are skipped."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                point = point_of(line)
                if point is not None:
                    yield point
    except OSError:
        return


def point_of(line: bytes) -> Point | None:
    """Parse a line as a point; None for a damaged line."""
    try:
        return Point(**json.loads(line))
    except (ValueError, TypeError):
        return None
