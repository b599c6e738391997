"""Checks of downloaded files by their content: whether a file is a complete PDF that opens, or UTF-8 text."""

import codecs
from pathlib import Path

from infuser_core.errors import DocumentError
from infuser_core.system import child

HEAD_BYTES = 1024
TAIL_BYTES = 4096
BLOCK_BYTES = 1 << 20
PDF, MARKDOWN = ".pdf", ".md"
SUFFIXES = frozenset({MARKDOWN, ".markdown", ".mdown", ".txt", ".text"})
"""Suffixes of Markdown and plain text."""
COUNTER = "corpus.read.file_kinds:count_pages"
"""Function for `child.call` that counts the pages of a PDF."""
ARCHIVES = {
    b"PK\x03\x04": "a ZIP archive (EPUB, DOCX, ...)",
    b"\x1f\x8b": "a gzip file",
    b"Rar!": "a RAR archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"AT&TFORM": "a DjVu file",
    b"%!PS": "a PostScript file",
    b"\xd0\xcf\x11\xe0": "an old Office file",
    b"{\\rtf": "an RTF file",
}
HYPERTEXT = (b"<html", b"<!doctype", b"<head", b"<script", b"<?xml")
# Bytes that do not occur in text; a file with one of them is a binary format that happens to be valid UTF-8.
BINARY = bytes([*range(0, 8), *range(14, 27), *range(28, 32), 127])


def file_of(folder: Path, sha256: str) -> Path:
    """Path of the downloaded file with this digest in a folder: a PDF if it exists, else a file of another format."""
    pdf = folder / f"{sha256}{PDF}"
    if pdf.is_file() or not sha256:
        return pdf
    return next((path for path in sorted(folder.glob(f"{sha256}.*")) if path.is_file()), pdf)


def is_text(path: Path) -> bool:
    """Whether a file has a suffix of Markdown or plain text and does not begin as a PDF."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    with path.open("rb") as file:
        return not file.read(1024).startswith(b"%PDF-")


def pdf_fault(path: Path) -> str:
    """Return why a file cannot be a complete PDF, without parsing it; empty if it may be one.

    The end mark is checked because a download that breaks off looks complete if the server sent no length.
    """
    try:
        head = _head(path)
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            tail = file.read()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if not head:
        return "empty: the file has no bytes"
    if b"%PDF-" not in head:
        kind = "a web page" if _is_hypertext(head) else repr(head[:8])
        return f"not_pdf: the file begins with {kind}, not with %PDF-"
    return "" if b"%%EOF" in tail else f"truncated: no %%EOF in the last {TAIL_BYTES} bytes"


def check(path: Path, limits: child.Limits, *, measured: bool = True) -> str:
    """Check a downloaded file, and return the suffix under which to store it: .pdf or .md.

    `measured` says whether the server named a length, so that a missing end would have been noticed: a PDF has an end
    mark, a text has none. Raises DocumentError with the reason for any other or incomplete file.
    """
    head = _head(path)
    if not head:
        raise DocumentError("an empty file")
    if b"%PDF-" in head:
        _check_pdf(path, limits)
        return PDF
    if _is_hypertext(head):
        raise DocumentError("an HTML page, no PDF")
    archive = next((name for mark, name in ARCHIVES.items() if head.startswith(mark)), "")
    if archive:
        raise DocumentError(f"no PDF but {archive}")
    _check_text(path)
    if not measured:
        raise DocumentError("a text whose end cannot be checked: the server named no length")
    return MARKDOWN


def _check_pdf(path: Path, limits: child.Limits) -> None:
    """Raise DocumentError unless the file is a complete PDF that opens."""
    if fault := pdf_fault(path):
        raise DocumentError(fault)
    try:
        pages = child.call(COUNTER, {"path": str(path)}, limits)
    except DocumentError as error:
        if "password" in error.message.lower():
            raise DocumentError("encrypted: the PDF needs a password") from error
        raise DocumentError(f"the PDF does not open: {error.message}") from error
    if not isinstance(pages, int) or pages < 1:
        raise DocumentError(f"the PDF has {pages!r} pages")


def count_pages(path: str) -> int:
    """Number of pages of a PDF; parses the first as a check. Runs in resource-limited processes only, by COUNTER."""
    # Imported here, so that only the resource-limited process loads PDFium.
    import pypdfium2 as pdfium

    with pdfium.PdfDocument(path) as document:
        if len(document):
            document[0].get_textpage()
        return len(document)


def _check_text(path: Path) -> None:
    """Raise DocumentError unless the whole file is UTF-8 text. Reads in blocks: a text may be one line of 100 MB."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            if block.translate(None, delete=BINARY) != block:
                raise DocumentError(f"no PDF and no text: starts with {_head(path)[:8]!r}")
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                raise DocumentError(f"no PDF, and no UTF-8 text at byte {offset + error.start}") from error
            offset += len(block)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise DocumentError("no PDF, and a UTF-8 text that ends within a character") from error


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _is_hypertext(head: bytes) -> bool:
    return head.lower().lstrip(b"\xef\xbb\xbf \t\r\n").startswith(HYPERTEXT)
