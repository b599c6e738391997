"""A mirror's files. A file is there complete or not at all, and nothing is ever deleted.

Layout: `artifacts/<phase>/<key>/...` as in the store, the commit record last; `records/<run>/<sha256>` holds the files
of a run's record, none of which is ever overwritten, and `records/<run>/record.json` names the newest ones.
"""

import hashlib
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from infuser_core.durable import fsync
from infuser_core.errors import StoreError, UsageError
from infuser_core.mirror import address

# A file appears there when its last byte has arrived; elsewhere a draft is renamed.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "memory"}
# What the libraries behind fsspec raise beside OSError and ValueError, looked up only where they are loaded.
_FOREIGN = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
    ("paramiko.ssh_exception", "SSHException"),
    ("fsspec.exceptions", "FSTimeoutError"),
)
_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a file holds."""

    sha256: str
    """Digest, hex."""
    bytes: int
    """Size."""


class Remote:
    """The files below a mirror's address. Paths are relative, with slashes. Several threads may use it at once."""

    def __init__(self, url: str) -> None:
        self._url = address.check(url)
        self.shown = address.redact(self._url)
        with self._speaking("open"):
            self._fs, self._base = _open(self._url)
        self._appears_whole = bool(_WHOLE & set(_protocols(self._fs)))

    def sizes(self, folder: str) -> dict[str, int]:
        """Every file below a folder, with its size in bytes; empty where there is no such folder."""
        start = self._path(folder)
        with self._speaking("list"):
            try:
                found = self._fs.find(start, detail=True)
            except FileNotFoundError:
                return {}
        depth = len(start) - len(folder)
        return {name[depth:]: int(facts["size"] or 0) for name, facts in found.items()}

    def read(self, path: str) -> bytes | None:
        """A small file's content; None where there is none."""
        with self._speaking(f"read {path} of"):
            try:
                return bytes(self._fs.cat_file(self._path(path)))
            except FileNotFoundError:
                return None

    def content(self, path: str) -> Content:
        """Digest and size of what is really there, read from beginning to end."""
        digest, size = hashlib.sha256(), 0
        with self._speaking(f"read {path} of"), self._fs.open(self._path(path), "rb", block_size=_CHUNK) as handle:
            while piece := handle.read(_CHUNK):
                digest.update(piece)
                size += len(piece)
        return Content(sha256=digest.hexdigest(), bytes=size)

    def put(self, source: Path, path: str) -> None:
        """Copy a file there, over what may lie there."""
        with self._speaking(f"write {path} to"):
            target = self._path(path)
            self._make_parent(target)
            if self._appears_whole:
                self._fs.put_file(str(source), target)
                return
            draft = self._draft(target)
            self._fs.put_file(str(source), draft)
            self._finish(draft, target)

    def write(self, path: str, content: bytes) -> None:
        """The same for a small file."""
        with self._speaking(f"write {path} to"):
            target = self._path(path)
            self._make_parent(target)
            if self._appears_whole:
                self._fs.pipe_file(target, content)
                return
            draft = self._draft(target)
            self._fs.pipe_file(draft, content)
            self._finish(draft, target)

    def get(self, path: str, target: Path) -> None:
        """Copy a file from there. Raises StoreError where it is not there; what arrives is to be verified."""
        with self._speaking(f"read {path} of"):
            self._fs.get_file(self._path(path), str(target))

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}"

    def _make_parent(self, target: str) -> None:
        # In an object store this would ask for the bucket's rights, and folders do not exist there.
        if not self._appears_whole:
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)

    def _draft(self, target: str) -> str:
        folder, _, name = target.rpartition("/")
        # The name of a draft in a store: `infuser gc` knows it where somebody uses the mirror as one.
        return f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"

    def _finish(self, draft: str, target: str) -> None:
        if self._is_local:
            fsync(Path(draft))
            Path(draft).replace(target)
            fsync(Path(target).parent)
        else:
            self._fs.mv(draft, target)

    @property
    def _is_local(self) -> bool:
        return bool({"file", "local"} & set(_protocols(self._fs)))

    @contextmanager
    def _speaking(self, doing: str) -> Iterator[None]:
        """Errors of other libraries become ours, without the secrets that they may quote."""
        try:
            yield
        except (StoreError, UsageError):
            raise
        except ImportError as error:
            raise UsageError(
                f"cannot {doing} the mirror {self.shown}: {error.name or 'a package'} is not installed",
                hint="pip install 'infuser[mirror]' for s3://; other addresses name their package in fsspec's list",
            ) from None
        except _foreign() as error:
            why = address.scrub(str(error), self._url) or "no reason given"
            raise StoreError(
                f"cannot {doing} the mirror {self.shown}: {type(error).__name__}: {why}",
                hint="check address, network and the keys in the environment; then the same command goes on",
            ) from None  # its text and its frames may hold a password


def _open(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    fs, base = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    return fs, str(base).rstrip("/")


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _foreign() -> tuple[type[Exception], ...]:
    loaded = [(module, name) for module, name in _FOREIGN if module in sys.modules]
    return (OSError, ValueError, *(getattr(import_module(module), name) for module, name in loaded))
