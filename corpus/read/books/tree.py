"""Read access to a book's files in a folder, an archive or a single file. Paths never lead out of this tree."""

import codecs
import re
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from infuser_core.errors import DocumentError

MAX_FILES = 50_000
"""Largest number of files of one book."""
MAX_BYTES = 512 << 20
"""Largest size of one book in an archive, unpacked, bytes."""
MAX_FILE_BYTES = 128 << 20
"""Largest size of one file of a book, bytes."""
HIDDEN = frozenset({"node_modules", "__pycache__", "__MACOSX"})
MAX_PART_BYTES = 32 << 20
"""Largest size of a text file in a folder that can be a part of a book, bytes."""
NO_PARTS = frozenset({".svg", ".pdf", ".csv", ".tsv", ".css", ".js", ".eps", ".lock"})
EPOCH = (1980, 1, 1, 0, 0, 0)
DECLARED = re.compile(
    rb"(?:coding|charset|\\usepackage\[(?=[^\]\n]*\]\{inputenc))(?:\s*[:=]\s*[\"']?)?([A-Za-z][\w.-]+)"
)
"""Declaration of a file's encoding in XML, HTML, LaTeX, AsciiDoc, or a comment for an editor."""
DECLARED_WITHIN = 20_000
"""Number of bytes at the beginning of a file that may declare its encoding."""
SUPERSETS = {
    "iso8859-1": "cp1252", "shift_jis": "cp932", "gb2312": "gb18030", "ansinew": "cp1252", "applemac": "mac_roman",
}  # fmt: skip
"""Encodings that files have in place of the declared ones, and Python's names for those of LaTeX."""
FEW = 0.005
"""Largest share of bytes outside ASCII in a text without a declaration: names and signs, whose language is English."""
UNKNOWN = re.compile("[\udc80-\udcff]")
"""A byte of a text whose encoding is unknown."""


def decode_text(content: bytes, *, strict: bool = False, usual: str = "") -> str:
    """Decode bytes as UTF-8, as UTF-16 with a byte order mark, or by the encoding that they declare, else `usual`.

    Without a declaration, a text of which more is UTF-8 than is not gets a replacement character for each byte that is
    not, and a text with few letters outside ASCII is Western European; in any other text those bytes become surrogates
    (`UNKNOWN`). With `strict`, raises UnicodeDecodeError for text that is neither UTF-8 nor UTF-16.
    """
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        if strict:
            raise
        text = _decode_other(content, declared_encoding(content) or usual)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def declared_encoding(content: bytes) -> str:
    """Encoding that a file declares, other than UTF-8; empty without a declaration or for an unknown encoding."""
    for name in DECLARED.findall(content[:DECLARED_WITHIN]):
        label = name.decode().lower()
        try:
            codec = codecs.lookup(SUPERSETS.get(label, label)).name
        except LookupError:
            continue
        if not codec.startswith("utf"):
            return SUPERSETS.get(codec, codec)
    return ""


def _decode_other(content: bytes, encoding: str) -> str:
    marked = content.decode("utf-8", "surrogateescape")
    letters, unknown = sum(not char.isascii() for char in marked), len(UNKNOWN.findall(marked))
    if not encoding and letters > 2 * unknown:
        return UNKNOWN.sub("\ufffd", marked)
    if not encoding and sum(byte > 0x7F for byte in content) <= FEW * len(content):
        encoding = "cp1252"
    try:
        return content.decode(encoding or "utf-8")
    except (UnicodeDecodeError, LookupError):
        return marked


def file_fault(path: Path) -> str:
    """Return that a path is missing, a pipe, a socket or a device, without opening it; empty for a file or folder."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"missing: {error.strerror}"
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "")
    return f"no_file: {kind}; only regular files are read" if kind else ""


def is_text_file(path: Path) -> bool:
    """Whether a file can be a part of a book in text form: neither binary nor too large, nor data or a drawing."""
    if path.stat().st_size > MAX_PART_BYTES or path.suffix.lower() in NO_PARTS:
        return False
    with path.open("rb") as file:
        return b"\0" not in file.read(1024)


class _Files(ABC):
    """Texts of a tree's files. A file that declares no encoding has the one that another file of the book declares."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Paths of all files."""

    @abstractmethod
    def content(self, name: str) -> bytes:
        """A file's bytes; empty if there is no such file, or it is too large."""

    def text(self, name: str) -> str:
        """A file's text; empty if `content` is."""
        text = decode_text(content := self.content(name))
        return decode_text(content, usual=self._encoding) if UNKNOWN.search(text) else text

    @cached_property
    def _encoding(self) -> str:
        return next((name for file in self.names() if (name := declared_encoding(self.content(file)))), "")


class Folder(_Files):
    """Tree of the regular files below a folder, without hidden files and links that lead out of the folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refused: dict[str, str] = {}
        """Paths that are not read, with the reason: links out of the folder, pipes, devices. Complete after `names`."""

    def _files(self) -> Iterator[str]:
        top = self._path.resolve()
        for path in sorted(self._path.rglob("*")):
            name = path.relative_to(self._path)
            if any(part.startswith(".") or part in HIDDEN for part in name.parts):
                continue
            if not path.resolve().is_relative_to(top):
                self.refused[str(path)] = f"link: it leads out of {self._path}"
            elif path.is_file():
                yield name.as_posix()
            elif not path.is_dir():
                self.refused[str(path)] = file_fault(path)

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._files())

    def names(self) -> Sequence[str]:
        """Paths below the folder. Raises DocumentError if there are too many."""
        if len(self._names) > MAX_FILES:
            raise DocumentError(
                f"too_long: {len(self._names)} files, at most {MAX_FILES} make a book", hint="name a part"
            )
        return self._names

    def content(self, name: str) -> bytes:
        """A file's bytes; empty if there is no such file, or it is larger than MAX_FILE_BYTES."""
        path = self._path / name
        if name not in self._name_set or path.stat().st_size > MAX_FILE_BYTES:
            return b""
        return path.read_bytes()

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self._names)


class Archive(_Files):
    """Tree of the files in a ZIP archive, which are never written to disk."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise DocumentError(f"no ZIP archive: {error}", hint="the file is damaged") from error
        self._sizes = {}
        for entry in self._zip.infolist():
            parts = PurePosixPath(entry.filename).parts
            is_inside = bool(parts) and not entry.filename.startswith("/") and ".." not in parts
            if not entry.is_dir() and is_inside and not set(parts) & HIDDEN:
                self._sizes[entry.filename] = entry.file_size
        if len(self._sizes) > MAX_FILES or sum(self._sizes.values()) > MAX_BYTES:
            raise DocumentError(
                f"too_long: {len(self._sizes)} files of {sum(self._sizes.values())} bytes, "
                f"at most {MAX_FILES} of {MAX_BYTES} are read",
                hint="name a part of it",
            )

    def names(self) -> Sequence[str]:
        """Paths in the archive."""
        return sorted(self._sizes)

    def content(self, name: str) -> bytes:
        """A file's bytes, at most as many as its entry declares; empty for a missing, too large or damaged file."""
        if self._sizes.get(name, MAX_FILE_BYTES + 1) > MAX_FILE_BYTES:
            return b""
        try:
            with self._zip.open(name) as file:
                return file.read(self._sizes[name])
        except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, NotImplementedError):
            return b""

    @property
    def root(self) -> str:
        """The archive's comment: for one written by `pack_files`, the file that names the book's parts."""
        return self._zip.comment.decode("utf-8", "replace") if len(self._zip.comment) < 4096 else ""


class Single(_Files):
    """Tree of a single file."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def names(self) -> Sequence[str]:
        """The name of the only file."""
        return [self._name]

    def content(self, name: str) -> bytes:
        """The bytes of the only file; empty for any other name."""
        return self._path.read_bytes() if name == self._name else b""


def pack_files(folder: Path, names: Sequence[str], root: str, target: Path) -> None:
    """Write files of a folder to a ZIP archive with the comment `root`; its bytes do not depend on the files' dates."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = root.encode()
        for name in sorted(names):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), (folder / name).read_bytes())
