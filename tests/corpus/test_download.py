"""A download ends as a whole book named by its digest, or as a rejected row with the reason, on slow servers too."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_sources import PDF, pdf_bytes, source
from loopback import GUARD, Loopback, Say, SteppedClock, serving
from places import ROOT, SUPPORT

from corpus.build import with_setting
from corpus.find.download import DownloadLog, Holdings, download_sources
from corpus.find.named_sources import SourceItem, gather_sources
from corpus.find.web_config import Clock, WebConfig
from corpus.read.file_kinds import file_of
from infuser_core.schemas import Source

FAST = replace(
    GUARD,
    allowed_hosts=frozenset({"127.0.0.1", "localhost"}),
    attempts=3,
    max_bytes=1 << 20,
    clock=SteppedClock().clock(),
)
DIGEST = hashlib.sha256(PDF).hexdigest()
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"


def get(server: Loopback, folder: Path, name: str, *names: str, config: WebConfig = FAST) -> tuple[Source, DownloadLog]:
    """One book into `folder`, with the holdings beside it."""
    rows, shelf = [source(name)], Holdings(folder.parent / "held")
    got, logs = download_sources(
        rows, lambda url: f"{server.base}/{name}", folder, shelf, config, names={name: [*names]}
    )
    return got[0], logs[0]


def test_a_pdf_lies_under_its_digest(server, tmp_path):
    server.routes["/a"] = Say(body=PDF)
    rows = [source("a"), source("b", status="rejected", reason="no licence")]
    got, logs = download_sources(
        rows, lambda url: server.base + url[6:], tmp_path / "run", Holdings(tmp_path / "held"), FAST
    )
    row = got[0]
    assert (row.sha256, row.num_bytes) == (DIGEST, len(PDF))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [f"{DIGEST}.pdf"]
    assert file_of(tmp_path / "run", DIGEST).read_bytes() == PDF
    assert got[1].reason == "no licence" and len(logs) == 1
    assert str(server.server.server_port) not in repr(got)
    assert server.seen[-1].headers["Accept-Encoding"] == "identity"


def test_a_book_is_fetched_once_whatever_name_it_is_asked_for_under(server, tmp_path):
    server.routes["/a.pdf"] = Say(body=PDF)
    first, _ = get(server, tmp_path / "run1", "a.pdf", "isbn:9781111111113")
    again, log = get(server, tmp_path / "run2", "b.pdf", "isbn:9781111111113")
    assert server.paths() == ["/a.pdf"]
    assert (again.sha256, again.num_bytes) == (first.sha256, first.num_bytes) and log.attempts == 0
    assert file_of(tmp_path / "run2", again.sha256).read_bytes() == PDF
    for name in ("b.pdf", f"sha256:{DIGEST}"):
        assert get(server, tmp_path / "run3", "c.pdf", name)[1].attempts == 0
    file_of(tmp_path / "run1", DIGEST).write_bytes(b"damaged")
    assert get(server, tmp_path / "run4", "a.pdf")[0].sha256 == DIGEST and server.paths() == ["/a.pdf"] * 2


def test_who_wants_a_book_that_is_being_fetched_waits_for_it(server, tmp_path):
    begun = threading.Event()

    def slowly(seen, number: int) -> Say:
        begun.set()
        return Say(body=PDF, wait=release)

    release = threading.Event()
    server.routes["/a.pdf"] = slowly
    found: list[int] = []
    both = [
        threading.Thread(target=lambda n=n: found.append(get(server, tmp_path / f"run{n}", "a.pdf")[1].attempts))
        for n in range(2)
    ]
    both[0].start()
    assert begun.wait(5)
    both[1].start()
    release.set()
    for thread in both:
        thread.join()
    assert sorted(found) == [0, 1] and server.paths() == ["/a.pdf"]


def test_everything_about_a_transfer_is_recorded(server, tmp_path):
    server.routes |= {"/a": Say(status=302, headers={"Location": "/b"})}
    server.routes["/b"] = Say(body=PDF, headers={"Content-Type": "application/pdf; charset=x"})
    _, log = get(server, tmp_path / "run", "a")
    assert (log.status_code, log.attempts, log.num_bytes, log.content_type) == (200, 1, len(PDF), "application/pdf")
    assert (log.url, log.final_url) == (f"{server.base}/a", f"{server.base}/b")
    assert (log.sha256, log.status, log.reason) == (DIGEST, "admitted", "")
    missing, log = get(server, tmp_path / "run", "none")
    assert log.reason == missing.reason == "download: HTTP 404" and log.attempts == 1


def test_a_text_is_kept_as_markdown(server, tmp_path):
    server.routes["/a.md"] = Say(body=b"# Light\n\nIt travels.\n", headers={"Content-Type": "text/markdown"})
    row, _ = get(server, tmp_path / "run", "a.md")
    assert file_of(tmp_path / "run", row.sha256) == tmp_path / "run" / f"{row.sha256}.md"


def typed(body: bytes, kind: str = "application/pdf", **more: object) -> Say:
    return Say(body=body, headers={"Content-Type": kind}, **more)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (typed(HTML), "an HTML page"),
        (typed(HTML, "text/html"), "content type text/html, no document"),
        (typed(b"PK\x03\x04zip", "application/octet-stream"), "no PDF but a ZIP archive"),
        (typed(b"\x89BIN\x00\x01", "application/octet-stream"), "no PDF and no text"),
        (typed(b"caf\xe9 is Latin-1\n", "text/plain"), "no UTF-8 text at byte 3"),
        (typed(b"ends within a char \xe2\x82", "text/markdown"), "ends within a character"),
        (typed(b"# Light\n", "text/markdown", length=-1), "whose end cannot be checked"),
        (typed(b""), "an empty file"),
        (typed(b"\xef\xbb\xbf\n<!DOCTYPE html>", "application/octet-stream"), "an HTML page"),
        (typed(PDF[: len(PDF) // 2]), "truncated"),
        (typed(PDF[:-200], length=-1), "truncated"),
        (typed(b"%PDF-1.7\nnoise\n%%EOF\n"), "the PDF does not open: "),
        (typed(PDF + b"\n" * (1 << 20)), "at most 1048576 are fetched"),
        (typed(PDF + b"\n" * (1 << 20), length=-1), "at most 1048576 are fetched"),
        (Say(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}), "content encoding"),
        (Say(status=302, headers={"Location": "http://169.254.169.254/latest"}), "refused address: 169.254.169.254"),
        (Say(status=302, headers={"Location": "/x"}), "more than 5 redirects"),
        (Say(status=302, headers={"Location": "file:///etc/passwd"}), "refused redirect from http to file"),
        (Say(status=503), "download: HTTP 503"),
        (Say(status=503, headers={"Retry-After": "86400"}), "HTTP 503, to be asked again in 86400 s"),
    ],
)
def test_what_is_no_whole_book_is_rejected(server, tmp_path, said, reason):
    server.routes["/x"] = said
    row, _ = get(server, tmp_path / "run", "x")
    assert row.status == "rejected" and reason in row.reason
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    "address", ["", "local:/x", "ftp://x.example/a", "http://[bad/", "http://x:y/", "http://" + "a" * 300 + "/"]
)
def test_an_address_that_is_none_is_a_reason(tmp_path, address):
    (row,), _ = download_sources(
        [source("a")], lambda url: address, tmp_path / "run", Holdings(tmp_path / "held"), FAST
    )
    assert row.status == "rejected" and row.reason.startswith("download: ")


def test_a_busy_server_is_asked_again_when_it_said(server, tmp_path):
    server.routes["/x"] = lambda seen, n: Say(body=PDF) if n > 1 else Say(status=429, headers={"Retry-After": "77"})
    slept: list[float] = []
    config = replace(FAST, clock=Clock(sleep=slept.append))
    assert get(server, tmp_path / "run", "x", config=config)[0].sha256 == DIGEST and slept == [77.0]


def test_a_body_that_breaks_off_is_asked_for_again(server, tmp_path):
    server.routes["/x"] = lambda seen, n: Say(body=PDF[:1000] if n == 1 else PDF, length=len(PDF))
    row, log = get(server, tmp_path / "run", "x")
    assert row.sha256 == DIGEST and log.attempts == 2
    server.routes["/y"] = Say(body=PDF[:1000], length=len(PDF))
    row, log = get(server, tmp_path / "run", "y")
    assert "transfer broke off" in row.reason and log.attempts == 3


def test_a_page_in_the_place_of_a_file_leads_to_the_one_it_names(server, tmp_path):
    page = b"<html><head><meta name='citation_pdf_url' content='/file.pdf'></head></html>"
    server.routes |= {"/page": typed(page, "text/html"), "/file.pdf": Say(body=PDF)}
    row, log = get(server, tmp_path / "run", "page")
    assert row.status == "admitted" and log.final_url == f"{server.base}/file.pdf"


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        (b"<a href='/1.pdf'>1</a><a href='/2.pdf'>2</a>", "content type text/html"),
        (b"<a href='/page'>again</a><link rel=license href=x>", "content type text/html"),
        (b"<a href='http://10.0.0.9/x.pdf'>inside</a>", "refused address: 10.0.0.9"),
    ],
)
def test_a_page_that_names_no_single_file_is_refused(server, tmp_path, html, reason):
    server.routes["/page"] = typed(html, "text/html; charset=utf-8")
    assert reason in get(server, tmp_path / "run", "page")[0].reason


def test_hosts_are_downloaded_from_side_by_side_and_each_in_turn(server, tmp_path):
    books = {f"/{n}.pdf": pdf_bytes(f"Book {n}") for n in range(6)}
    together = threading.Barrier(2)

    running: list[str] = []
    at_once: list[int] = []

    def route(seen, number: int) -> Say:
        running.append(seen.path)
        at_once.append(len(running))
        if seen.path in ("/0.pdf", "/1.pdf"):
            together.wait(5)  # passed only when both hosts are asked at one time
        running.remove(seen.path)
        return Say(body=books[seen.path])

    server.routes |= dict.fromkeys(books, route)
    hosts = ("127.0.0.1", "localhost")
    rows = [source(f"{n}", download_url=f"http://{hosts[n % 2]}:{server.server.server_port}/{n}.pdf") for n in range(6)]
    told: list[tuple[int, int, int]] = []
    got, logs = download_sources(
        rows,
        lambda url: url,
        tmp_path / "run",
        Holdings(tmp_path / "held"),
        FAST,
        progress=lambda *now: told.append(now),
    )
    assert [row.sha256 for row in got] == [hashlib.sha256(book).hexdigest() for book in books.values()]
    assert [row.source_id for row in logs] == [row.source_id for row in rows]
    assert max(at_once) == 2 and told == [(n, 6, 0) for n in range(1, 7)]


def test_the_same_bytes_at_two_addresses_are_one_source(server, tmp_path):
    server.routes |= {"/a": Say(body=PDF), "/b": Say(body=PDF)}
    rows, shelf = [source("a"), source("b")], Holdings(tmp_path / "held")
    got, _ = download_sources(rows, lambda url: server.base + url[6:], tmp_path / "run", shelf, FAST)
    assert [row.status for row in got] == ["admitted", "rejected"]
    assert got[1].reason.startswith("duplicate of a: same sha256:")
    assert shelf.find(["a"]) == shelf.find(["b"])


QUICK = replace(GUARD, delay_seconds=0.0, slow_seconds=1.0)


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """The address of a server that sends `head` at once and then a byte every tenth of a second."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(client,), daemon=True).start()

    def drip(client: socket.socket) -> None:
        with client:
            asked = client.recv(4096)
            try:
                if b"/robots.txt" in asked:
                    client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                client.sendall(head)
                while not stop.wait(0.1):
                    client.sendall(b"x")
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/a.pdf"
    finally:
        stop.set()
        listener.close()


def fetch(urls: list[str], tmp_path: Path, config: WebConfig = QUICK) -> list[SourceItem]:
    return gather_sources(urls, tmp_path / "out", tmp_path / "fetched", config)


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nContent-Length: 999999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "],
    ids=["body", "headers"],
)
def test_a_server_that_drips_is_given_up_and_delays_nobody(tmp_path, head):
    with dripping(head) as slow, serving() as server:
        server.routes["/good.pdf"] = Say(body=PDF)
        begin = time.monotonic()
        bad, good = fetch([slow, f"{server.base}/good.pdf"], tmp_path)
        assert time.monotonic() - begin < 20
    assert bad.source.reason.startswith("download: too slow: ") and "4096 a second" in bad.source.reason
    assert good.source.reason == "" and good.path is not None


STOPPED = """
import sys
from dataclasses import replace
from pathlib import Path
from loopback import GUARD
from corpus.find.named_sources import gather_sources
quick = replace(GUARD, delay_seconds=0.0, slow_seconds=1.0, stall_seconds=2.0)
(item,) = gather_sources([sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]), quick)
print(item.source.reason or item.source.sha256)
"""


def test_the_time_in_which_a_process_is_stopped_itself_is_not_the_servers(tmp_path):
    go = threading.Event()
    with serving() as server:
        server.routes["/a.pdf"] = Say(body=PDF, wait=go)
        words = [f"{server.base}/a.pdf", str(tmp_path / "out"), str(tmp_path / "fetched")]
        environment = os.environ | {"PYTHONPATH": f"{SUPPORT}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-c", STOPPED, *words]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        while not server.paths():
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        go.set()
        time.sleep(0.2)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
    assert said.strip() == hashlib.sha256(PDF).hexdigest()


def test_a_file_that_is_too_large_names_its_size_and_the_limit(tmp_path):
    with serving() as server:
        server.routes["/a.pdf"] = Say(body=PDF, length=2000)
        (item,) = fetch([f"{server.base}/a.pdf"], tmp_path, replace(QUICK, max_bytes=1000))
    assert item.source.reason == "download: too large: 2000 bytes or more, at most 1000 are fetched"


def test_private_addresses_of_a_list_are_refused(tmp_path):
    guarded = replace(QUICK, allowed_hosts=frozenset())
    with serving() as server:
        server.routes |= {"/a.pdf": Say(body=PDF), "/b.pdf": Say(body=PDF)}
        rows = fetch([f"{server.base}/{name}.pdf" for name in "ab"], tmp_path, guarded)
        assert [item.path for item in rows] == [None, None] and server.seen == []
        assert all("refused" in item.source.reason for item in rows)
        (alone,) = fetch([f"{server.base}/a.pdf"], tmp_path, guarded)
    assert alone.source.reason == "" and alone.path is not None


def test_a_limit_of_time_names_its_setting():
    assert with_setting("unreadable: still running after 600 s").endswith("(corpus.convert.seconds)")
    assert with_setting("unreadable: no ZIP archive") == "unreadable: no ZIP archive"
