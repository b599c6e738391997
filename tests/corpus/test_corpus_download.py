"""Downloads end as a whole PDF named by its digest, or as a rejected row with the reason."""

import hashlib
import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.find.download import DownloadConfig, DownloadResult, download
from corpus.find.fetch import FetchConfig
from corpus.find.guard import GuardConfig
from corpus.find.holdings import Holdings
from corpus.find.polite_http import Clock, Patience
from corpus.read.file_kinds import file_of
from infuser_core.schemas import Source


def pdf_bytes(text: str) -> bytes:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, invariant=1)
    for line in range(40):
        canvas.drawString(72, 800 - 12 * line, f"{text} {line} " + "words " * 8)
    canvas.save()
    return buffer.getvalue()


PDF = pdf_bytes("A book")
FAST = DownloadConfig(
    guard=GuardConfig(allowed_hosts=frozenset({"127.0.0.1"}), stall_seconds=5),
    transfer=FetchConfig(patience=Patience(backoff_seconds=0.01), max_bytes=1 << 20),
    clock=Clock(sleep=lambda seconds: None),
)


def source(name: str, **changes: object) -> Source:
    fields = dict.fromkeys(("title", "author", "discipline", "category", "licence_evidence", "description"), "")
    fields |= {"licence": "CC-BY-4.0", "source_url": "", "filename": "", "sha256": "", "reason": ""}
    fields |= {"source_id": name, "download_url": f"local:/{name}", "num_bytes": 0, "status": "admitted"}
    return Source(**(fields | changes))


class Shelf:
    """A loopback server; the test gives each path a function (request, number of the request) -> nothing."""

    def __init__(self) -> None:
        self.routes: dict[str, Callable[[BaseHTTPRequestHandler, int], None]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        shelf = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/robots.txt" and self.path not in shelf.routes:
                    self.send_error(404)
                    return
                shelf.seen.append((self.path, dict(self.headers)))
                shelf.routes[self.path](self, sum(path == self.path for path, _ in shelf.seen))

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that refuses a body closes the connection: no traceback of the server for that.
        self.server.handle_error = lambda request, address: None
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def get(
        self, folder: Path, *sources: Source, config: DownloadConfig = FAST, holdings: Holdings | None = None
    ) -> DownloadResult:
        def address(url: str) -> str:
            return self.base + url.removeprefix("local:")

        return download(sources, address, folder, config, holdings=holdings)


@pytest.fixture
def shelf():
    server = Shelf()
    yield server
    server.server.shutdown()
    server.server.server_close()


def reply(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    request.send_response(status)
    named = {"Content-Type": "application/pdf", "Content-Length": str(len(body))}
    named |= {key.replace("_", "-"): value for key, value in headers.items()}
    for key, value in named.items():
        if value:
            request.send_header(key, value)
    request.end_headers()
    request.wfile.write(body)


def test_a_pdf_lies_under_its_digest(shelf, tmp_path):
    shelf.routes["/a.pdf"] = lambda request, n: reply(request, PDF)
    result = shelf.get(tmp_path, source("a.pdf"), source("b.pdf", status="rejected", reason="no licence"))
    row = result.sources[0]
    assert row.sha256 == hashlib.sha256(PDF).hexdigest() and row.num_bytes == len(PDF)
    assert file_of(tmp_path, row.sha256).read_bytes() == PDF
    assert [path.name for path in tmp_path.iterdir()] == [f"{row.sha256}.pdf"]
    assert result.sources[1].reason == "no licence" and len(result.log) == 1
    assert (result.log[0].status_code, result.log[0].attempts) == (200, 1)
    assert str(shelf.server.server_port) not in repr(result.sources)
    assert shelf.seen[0][1]["Accept-Encoding"] == "identity"


def test_the_same_bytes_twice_are_one_resource(shelf, tmp_path):
    shelf.routes["/a"] = shelf.routes["/b"] = lambda request, n: reply(request, PDF)
    rows = shelf.get(tmp_path, source("a"), source("b")).sources
    assert [row.status for row in rows] == ["admitted", "rejected"]
    assert rows[1].reason.startswith("duplicate of a: same sha256:")


HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (HTML, "application/pdf", "an HTML page"),
        (HTML, "text/html", "content type text/html"),
        (b"PK\x03\x04zip", "application/octet-stream", "no PDF but a ZIP archive"),
        (b"\x89BIN\x00\x01", "application/octet-stream", "no PDF and no text"),
        (b"caf\xe9 is Latin-1\n", "text/plain", "no UTF-8 text at byte 3"),
        (b"ends within a char \xe2\x82", "text/markdown", "ends within a character"),
        (b"", "application/pdf", "an empty file"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html>", "application/octet-stream", "an HTML page"),
        (PDF[: len(PDF) // 2], "application/pdf", "truncated"),
        (b"%PDF-1.7\nnoise\n%%EOF\n", "application/pdf", "the PDF does not open: "),
    ],
)
def test_what_is_no_whole_pdf_is_rejected(shelf, tmp_path, body, kind, reason):
    shelf.routes["/x"] = lambda request, n: reply(request, body, Content_Type=kind)
    row = shelf.get(tmp_path, source("x")).sources[0]
    assert row.status == "rejected" and reason in row.reason
    assert not list(tmp_path.glob("*.pdf"))


def test_a_body_that_ends_early_without_a_length_is_rejected(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, PDF[:-200], Content_Length="")
    assert "truncated" in shelf.get(tmp_path, source("x")).sources[0].reason


def test_a_broken_transfer_is_resumed(shelf, tmp_path):
    def route(request: BaseHTTPRequestHandler, number: int) -> None:
        if number == 1:
            request.send_response(200)
            request.send_header("Content-Length", str(len(PDF)))
            request.send_header("ETag", '"v1"')
            request.end_headers()
            request.wfile.write(PDF[:1000])
            return
        assert request.headers["If-Range"] == '"v1"'
        start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
        span = f"bytes {start}-{len(PDF) - 1}/{len(PDF)}"
        reply(request, PDF[start:], 206, Content_Range=span, ETag='"v1"')

    shelf.routes["/x"] = route
    result = shelf.get(tmp_path, source("x"))
    assert result.sources[0].sha256 == hashlib.sha256(PDF).hexdigest()
    assert (result.log[0].status_code, result.log[0].attempts) == (206, 2)


def test_a_part_of_another_version_is_fetched_anew(shelf, tmp_path):
    holdings = Holdings(tmp_path / "h")
    part = holdings.part("x")
    part.write_bytes(b"%PDF-old version")
    part.with_suffix(".tag").write_text(json.dumps({"url": f"{shelf.base}/x", "validator": '"old"'}))
    shelf.routes["/x"] = lambda request, n: reply(request, PDF, ETag='"new"')
    assert shelf.get(tmp_path, source("x"), holdings=holdings).sources[0].sha256 == hashlib.sha256(PDF).hexdigest()
    assert shelf.seen[0][1]["If-Range"] == '"old"'


def test_a_range_that_starts_elsewhere_is_fetched_anew(shelf, tmp_path):
    holdings = Holdings(tmp_path / "h")
    part = holdings.part("x")
    part.write_bytes(PDF[:100])
    part.with_suffix(".tag").write_text(json.dumps({"url": f"{shelf.base}/x", "validator": '"v"'}))

    def route(request: BaseHTTPRequestHandler, number: int) -> None:
        if number == 1:
            reply(request, PDF[:50], 206, Content_Range=f"bytes 0-49/{len(PDF)}")
        else:
            assert "Range" not in request.headers
            reply(request, PDF)

    shelf.routes["/x"] = route
    assert shelf.get(tmp_path, source("x"), holdings=holdings).sources[0].status == "admitted"


def test_retry_after_is_obeyed(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, PDF) if n > 1 else reply(request, b"", 429, Retry_After="77")
    slept: list[float] = []
    config = replace(FAST, transfer=replace(FAST.transfer, clock=Clock(sleep=slept.append)))
    log = shelf.get(tmp_path, source("x"), config=config).log[0]
    assert log.attempts == 2 and slept == [77.0]


def test_a_server_that_wants_to_be_left_alone_for_long_is_given_up(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 503, Retry_After="86400")
    result = shelf.get(tmp_path, source("x"))
    assert "HTTP 503, to be asked again in 86400 s" in result.sources[0].reason and len(shelf.seen) == 1


def test_a_server_that_stays_busy_is_given_up(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 503)
    result = shelf.get(tmp_path, source("x"))
    assert result.sources[0].reason == "download: HTTP 503" and result.log[0].attempts == 3


def test_a_missing_file_is_not_asked_for_again(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 404)
    result = shelf.get(tmp_path, source("x"))
    assert result.sources[0].reason == "download: HTTP 404" and len(shelf.seen) == 1


def test_a_redirect_to_a_metadata_service_is_refused(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 302, Location="http://169.254.169.254/latest")
    row = shelf.get(tmp_path, source("x")).sources[0]
    assert row.status == "rejected" and "refused address: 169.254.169.254" in row.reason


def test_a_redirect_on_the_same_host_is_followed(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 302, Location="/y")
    shelf.routes["/y"] = lambda request, n: reply(request, PDF)
    assert shelf.get(tmp_path, source("x")).sources[0].status == "admitted"


@pytest.mark.parametrize(("target", "reason"), [("/x", "more than 5 redirects"), ("file:///etc/passwd", "to file")])
def test_redirects_that_lead_nowhere(shelf, tmp_path, target, reason):
    shelf.routes["/x"] = lambda request, n: reply(request, b"", 302, Location=target)
    assert reason in shelf.get(tmp_path, source("x")).sources[0].reason


@pytest.mark.parametrize("length", ["", "set"])
def test_a_file_over_the_cap_is_rejected(shelf, tmp_path, length):
    body = PDF + b"\n" * (1 << 20)
    shelf.routes["/x"] = lambda request, n: reply(request, body, Content_Length=length and str(len(body)))
    assert "larger than 1048576 bytes" in shelf.get(tmp_path, source("x")).sources[0].reason


def test_a_compressed_answer_is_refused(shelf, tmp_path):
    shelf.routes["/x"] = lambda request, n: reply(request, b"\x1f\x8b", Content_Encoding="gzip")
    assert "content encoding" in shelf.get(tmp_path, source("x")).sources[0].reason
