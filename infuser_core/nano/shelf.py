"""Serve a textbook catalogue on the loopback address: paged search and PDFs, by the standard library's HTTP server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

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
    handler = type("ShelfHandler", (_Handler,), {"entries": entries})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="nano shelf", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def search_entries(entries: list[dict[str, Any]], query: str, page: int) -> dict[str, Any]:
    """Search the catalogue: one page of the entries whose title, subjects or description contain all query words."""
    words = query.casefold().split()
    matches = []
    for entry in entries:
        subjects = " ".join(f"{s['domain']} {s['subdomain']}" for s in entry["subjects"])
        text = f"{entry['title']} {entry['description']} {subjects}".casefold()
        if all(word in text for word in words):
            matches.append(entry)
    is_last = page * PAGE_SIZE >= len(matches)
    next_page = None if is_last else f"/catalogue.json?{urlencode({'q': query, 'page': page + 1})}"
    return {"data": matches[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], "links": {"next": next_page}}


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    entries: list[dict[str, Any]]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the client has its own log."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/catalogue.json":
            self._send_results(parse_qs(url.query))
        elif url.path.endswith(".pdf"):
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send_results(self, query: dict[str, list[str]]) -> None:
        page = query.get("page", ["1"])[0]
        if not page.isdecimal() or page == "0":
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        body = json.dumps(search_entries(self.entries, query.get("q", [""])[0], int(page))).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
