"""Faults of a file that should be a PDF, found before a parser sees it."""

from pathlib import Path

HEAD_BYTES = 1024
TAIL_BYTES = 4096


def fault_of(path: Path) -> str:
    """One line on why a file cannot be a whole PDF; empty when nothing speaks against it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if not size:
        return "empty: the file has no bytes"
    if b"%PDF-" not in head:
        start = head.lstrip().lower()
        kind = "a web page" if start.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")) else repr(head[:8])
        return f"not_pdf: the file begins with {kind}, not with %PDF-"
    if b"%%EOF" not in tail:
        return f"truncated: no %%EOF in the last {TAIL_BYTES} bytes"
    return ""
