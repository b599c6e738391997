"""A textbook catalogue on the loopback address: paged search and PDFs with ranges, served by the standard library."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from infuser_core.errors import CatalogueError

PAGE_SIZE = 3
"""Entries per answer: small, so that a search of the nano shelf takes more than one page."""


@contextmanager
def serve_shelf(folder: Path) -> Iterator[str]:
    """Serve a folder that `build_shelf` wrote; yields the base address and stops the server at the end."""
    if not (folder / "catalogue.json").is_file():
        raise CatalogueError(
            f"nano shelf: no catalogue.json in {folder}", hint="write one with build_shelf(folder, seed)"
        )
    entries = json.loads((folder / "catalogue.json").read_text(encoding="utf-8"))
    handler = type("ShelfHandler", (_Handler,), {"folder": folder.resolve(), "entries": entries})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="nano shelf", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def search(entries: list[dict[str, Any]], query: str, page: int) -> dict[str, Any]:
    """One page of the entries in whose title, subjects or description every word of the query occurs."""
    words = query.casefold().split()
    found = [entry for entry in entries if all(word in _searchable(entry) for word in words)]
    last = page * PAGE_SIZE >= len(found)
    more = None if last else f"/catalogue.json?{urlencode({'q': query, 'page': page + 1})}"
    return {"data": found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], "links": {"next": more}}


def _searchable(entry: dict[str, Any]) -> str:
    subjects = " ".join(f"{s['domain']} {s['subdomain']}" for s in entry["subjects"])
    return f"{entry['title']} {entry['description']} {subjects}".casefold()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    entries: list[dict[str, Any]]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the client keeps its own log."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        url = urlsplit(self.path)
        if url.path == "/catalogue.json":
            query = parse_qs(url.query)
            page = query.get("page", ["1"])[0]
            if not page.isdecimal() or page == "0":
                self._send(HTTPStatus.BAD_REQUEST, b"", {})
                return
            found = search(self.entries, query.get("q", [""])[0], int(page))
            self._send(HTTPStatus.OK, json.dumps(found).encode(), {"Content-Type": "application/json"}, with_body)
            return
        path = (self.folder / unquote(url.path).lstrip("/")).resolve()
        # Only PDFs below the folder: a `..` in the address must lead nowhere.
        if not path.is_relative_to(self.folder) or path.suffix != ".pdf" or not path.is_file():
            self._send(HTTPStatus.NOT_FOUND, b"", {})
            return
        self._send_file(path.read_bytes(), with_body)

    def _send_file(self, content: bytes, with_body: bool) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"Content-Type": "application/pdf", "ETag": etag, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked or self.headers.get("If-Range", etag) != etag:
            self._send(HTTPStatus.OK, content, headers, with_body)
            return
        start = int(asked[1])
        end = min(int(asked[2] or len(content) - 1), len(content) - 1)
        if start > end:
            headers["Content-Range"] = f"bytes */{len(content)}"
            self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", headers, with_body)
            return
        headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        self._send(HTTPStatus.PARTIAL_CONTENT, content[start : end + 1], headers, with_body)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str], with_body: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
