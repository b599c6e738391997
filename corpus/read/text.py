"""Text converter: sources that are Markdown or plain text already."""

from pathlib import Path

from corpus.read.page import page_of
from infuser_core.schemas import Page

CONVERTER = "text-1"
SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".txt", ".text"})
MAX_BYTES = 1 << 30


def is_text(path: Path) -> bool:
    """Whether the file's name says that it is text and its first bytes do not contradict."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    with path.open("rb") as file:
        return not file.read(1024).startswith(b"%PDF-")


def convert_text(path: Path, source_id: str, *, max_bytes: int = MAX_BYTES) -> Page:
    """The file as it is, save for a byte order mark and with line feeds as line ends: readers of text files change the
    others, and offsets would no longer fit. What is no UTF-8 text is a rejected page that names the byte."""
    size = path.stat().st_size
    if size > max_bytes:
        reason = f"too_long: {size} bytes, at most {max_bytes} are read"
        return page_of(source_id, converter=CONVERTER, reason=reason)
    raw = path.read_bytes()
    try:
        text = _decoded(raw)
    except UnicodeDecodeError as error:
        reason = (
            f"not_utf8: byte 0x{raw[error.start]:02x} at offset {error.start} ({error.reason}); convert it with iconv"
        )
        return page_of(source_id, converter=CONVERTER, reason=reason)
    reason = "" if text.strip() else "empty: the file has no text"
    if "\x00" in text:
        reason = f"not_text: a zero byte at character {text.index(chr(0))}"
    return page_of(
        source_id,
        "" if reason else text,
        num_pages=1,
        converter=CONVERTER,
        reason=reason,
        page_starts=[] if reason else [0],
        chosen="text: the file is Markdown already",
    )


def _decoded(raw: bytes) -> str:
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    return raw.decode("utf-16" if wide else "utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
