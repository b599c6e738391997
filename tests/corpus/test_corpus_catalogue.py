"""The local catalogue is read page by page; what it sends wrong is named with its address."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from corpus.find import guard
from corpus.find.catalogue import connect
from infuser_core.errors import CatalogueError, ConfigError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
GUARD = guard.GuardConfig(allowed_hosts=frozenset({"127.0.0.1"}))


def entry(number: int, **changes: object) -> dict[str, object]:
    row = {
        "id": f"b{number}",
        "title": f"Book {number}",
        "author": "A. Author",
        "description": "",
        "subjects": [{"domain": "Physics", "subdomain": "Optics"}],
        "license": {"spdx": "CC-BY-4.0", "url": "https://creativecommons.org/licenses/by/4.0/"},
        "category": "textbook",
        "pdf": f"/books/b{number}.pdf",
    }
    return row | changes


@pytest.fixture
def shelf():
    """A server whose answers the test sets: page number to body."""
    answers: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)
            body = answers.get(query["page"][0], b"") if query["q"] == ["Optics"] else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def search(base: str):
    with guard.client(GUARD) as client:
        return connect("local", base=base, client=client).search(TOPIC)


def test_pages_are_followed_and_no_port_is_stored(shelf):
    base, answers = shelf
    answers["1"] = json.dumps({"data": [entry(1)], "links": {"next": "/catalogue.json?page=2"}}).encode()
    answers["2"] = json.dumps({"data": [entry(2, pdf="books/b2.pdf", license=None)], "links": {"next": None}}).encode()
    first, second = search(base)
    assert (first.download_url, second.download_url) == ("local:/books/b1.pdf", "local:/books/b2.pdf")
    assert (first.licence, second.licence) == ("CC-BY-4.0", "")
    assert "license.spdx=CC-BY-4.0" in first.licence_evidence and second.licence_evidence == "license=None"
    assert base.rpartition(":")[2] not in repr([first, second])
    with guard.client(GUARD) as client:
        assert connect("local", base=base, client=client).address(second.download_url) == f"{base}/books/b2.pdf"


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data": [1], "links": {}}', b'{"data": []}', b'{"data": [{"id": "x"}], "links": {}}']
)
def test_malformed_answers_are_named_with_the_address(shelf, body):
    base, answers = shelf
    answers["1"] = body
    with pytest.raises(CatalogueError, match=base):
        search(base)


def test_an_unreachable_catalogue_is_named_with_a_remedy():
    with pytest.raises(CatalogueError, match="start the catalogue"):
        search("http://127.0.0.1:1")


def test_an_unknown_catalogue_lists_the_shipped_ones():
    with guard.client(GUARD) as client, pytest.raises(ConfigError, match="local"):
        connect("nowhere", base="http://x", client=client)
