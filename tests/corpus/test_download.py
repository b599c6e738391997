"""A download ends as a whole book named by its digest, or as a rejected row with the reason."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_sources import PDF, in_parts, pdf_bytes, source
from loopback import Loopback, Say, SteppedClock, serving

from corpus.find.download import Brought, DownloadConfig, bring, download, web_client
from corpus.find.fetch import FetchConfig
from corpus.find.guard import GuardConfig
from corpus.find.holdings import Holdings
from corpus.find.polite_http import Clock, Patience
from corpus.read.file_kinds import file_of

GUARD = GuardConfig(allowed_hosts=frozenset({"127.0.0.1", "localhost"}), stall_seconds=5)
FAST = DownloadConfig(
    guard=GUARD,
    transfer=FetchConfig(patience=Patience(backoff_seconds=0.01), max_bytes=1 << 20),
    clock=SteppedClock().clock(),
)
DIGEST = hashlib.sha256(PDF).hexdigest()
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@pytest.fixture
def server():
    with serving() as loopback:
        yield loopback


def get(server: Loopback, folder: Path, name: str, *names: str, config: DownloadConfig = FAST) -> Brought:
    """One book into `folder`, with the holdings beside it."""
    folder.mkdir(exist_ok=True)
    with web_client(config) as web:
        return bring(
            source(name), f"{server.base}/{name}", folder, Holdings(folder.parent / "held"), web, config, names=names
        )


def part_of(tmp_path: Path, server: Loopback, content: bytes, validator: str) -> None:
    """What an earlier process left of the book /x."""
    part = Holdings(tmp_path / "held").part("x")
    part.write_bytes(content)
    part.with_suffix(".tag").write_text(json.dumps({"url": f"{server.base}/x", "validator": validator}))


def ranges(server: Loopback) -> list[str | None]:
    return [seen.headers.get("Range") for seen in server.seen if seen.path == "/x"]


def test_a_pdf_lies_under_its_digest(server, tmp_path):
    server.routes["/a"] = Say(body=PDF)
    rows = [source("a"), source("b", status="rejected", reason="no licence")]
    result = download(rows, lambda url: server.base + url[6:], tmp_path, FAST)
    row = result.sources[0]
    assert (row.sha256, row.num_bytes) == (DIGEST, len(PDF)) and file_of(tmp_path, DIGEST).read_bytes() == PDF
    assert [path.name for path in tmp_path.iterdir()] == [f"{DIGEST}.pdf"]
    assert result.sources[1].reason == "no licence" and len(result.log) == 1
    assert str(server.server.server_port) not in repr(result.sources)
    assert server.seen[-1].headers["Accept-Encoding"] == "identity"


def test_a_book_is_fetched_once_whatever_name_it_is_asked_for_under(server, tmp_path):
    server.routes["/a.pdf"] = Say(body=PDF)
    first = get(server, tmp_path / "run1", "a.pdf", "isbn:9781111111113")
    again = get(server, tmp_path / "run2", "b.pdf", "isbn:9781111111113")
    assert server.paths() == ["/a.pdf"]
    assert again.source.sha256 == first.source.sha256 and again.log.attempts == 0
    assert file_of(tmp_path / "run2", again.source.sha256).read_bytes() == PDF
    assert again.holding.urls == ["local:/a.pdf", "local:/b.pdf"]
    assert get(server, tmp_path / "run3", "c.pdf", "b.pdf").log.attempts == 0
    file_of(tmp_path / "run1", DIGEST).write_bytes(b"damaged")
    assert get(server, tmp_path / "run4", "a.pdf").source.sha256 == DIGEST and server.paths() == ["/a.pdf"] * 2


def test_everything_about_a_transfer_is_recorded(server, tmp_path):
    server.routes |= {"/a": Say(status=302, headers={"Location": "/b"})}
    server.routes["/b"] = Say(body=PDF, headers={"Content-Type": "application/pdf; charset=x"})
    log = get(server, tmp_path / "run", "a").log
    assert (log.status_code, log.attempts, log.num_bytes, log.content_type) == (200, 1, len(PDF), "application/pdf")
    assert (log.url, log.final_url) == (f"{server.base}/a", f"{server.base}/b")
    assert (log.sha256, log.status, log.reason) == (DIGEST, "admitted", "")
    missing = get(server, tmp_path / "run", "none")
    assert missing.log.reason == missing.source.reason == missing.holding.reason == "download: HTTP 404"
    assert Holdings(tmp_path / "held").rows()[-1].reason == "download: HTTP 404" and missing.log.attempts == 1


def test_a_text_is_kept_as_markdown(server, tmp_path):
    server.routes["/a.md"] = Say(body=b"# Light\n\nIt travels.\n", headers={"Content-Type": "text/markdown"})
    row = get(server, tmp_path / "run", "a.md").source
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
        (typed(PDF + b"\n" * (1 << 20)), "larger than 1048576 bytes"),
        (typed(PDF + b"\n" * (1 << 20), length=-1), "larger than 1048576 bytes"),
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
    row = get(server, tmp_path / "run", "x").source
    assert row.status == "rejected" and reason in row.reason
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    "address", ["", "local:/x", "ftp://x.example/a", "http://[bad/", "http://x:y/", "http://" + "a" * 300 + "/"]
)
def test_an_address_that_is_none_is_a_reason(tmp_path, address):
    (row,) = download([source("a")], lambda url: address, tmp_path / "run", FAST).sources
    assert row.status == "rejected" and row.reason.startswith("download: ")


def test_a_busy_server_is_asked_again_when_it_said(server, tmp_path):
    server.routes["/x"] = lambda seen, n: Say(body=PDF) if n > 1 else Say(status=429, headers={"Retry-After": "77"})
    slept: list[float] = []
    config = replace(FAST, transfer=replace(FAST.transfer, clock=Clock(sleep=slept.append)))
    assert get(server, tmp_path / "run", "x", config=config).log.attempts == 2 and slept == [77.0]


def test_a_page_in_the_place_of_a_file_leads_to_the_one_it_names(server, tmp_path):
    page = b"<html><head><meta name='citation_pdf_url' content='/file.pdf'></head></html>"
    server.routes |= {"/page": typed(page, "text/html"), "/file.pdf": Say(body=PDF)}
    found = get(server, tmp_path / "run", "page")
    assert found.source.status == "admitted" and found.log.final_url == f"{server.base}/file.pdf"
    closed = get(server, tmp_path / "run", "page", config=replace(FAST, follow_pages=False))
    assert closed.log.attempts == 0


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
    assert reason in get(server, tmp_path / "run", "page").source.reason


def test_what_robots_txt_forbids_is_not_fetched(server, tmp_path):
    server.routes |= {"/robots.txt": Say(body=b"User-agent: *\nDisallow: /*.pdf$\n"), "/a.pdf": Say(body=PDF)}
    assert "robots.txt of 127.0.0.1 forbids /a.pdf" in get(server, tmp_path / "run", "a.pdf").source.reason
    assert server.paths() == []


def test_a_later_process_resumes_where_an_earlier_one_was_cut_off(server, tmp_path):
    server.routes["/x"] = lambda seen, n: in_parts(seen, ETag='"v1"')
    once = replace(FAST, transfer=replace(FAST.transfer, patience=Patience(attempts=1)))
    assert "transfer broke off" in get(server, tmp_path / "run", "x", config=once).source.reason
    assert get(server, tmp_path / "run", "x", config=once).source.sha256 == DIGEST
    assert ranges(server) == [None, "bytes=1000-"]
    assert [path.name for path in (tmp_path / "held" / "parts").iterdir()] == []


def fetch_slowly(base: str, folder: Path) -> None:
    with web_client(FAST) as web:
        bring(source("x"), f"{base}/x", folder, Holdings(folder.parent / "held"), web, FAST)


def test_killing_a_download_loses_no_byte_that_arrived(server, tmp_path):
    ended = threading.Event()
    server.routes["/x"] = lambda seen, n: replace(in_parts(seen, ETag='"v1"'), hold=ended if n == 1 else None)
    (tmp_path / "run").mkdir()
    victim = multiprocessing.Process(target=fetch_slowly, args=(server.base, tmp_path / "run"))
    victim.start()
    part = Holdings(tmp_path / "held").part("x")
    while not part.is_file() or part.stat().st_size < 1000:
        assert victim.is_alive()
        time.sleep(0.002)
    assert victim.pid
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    ended.set()
    assert get(server, tmp_path / "run", "x").source.sha256 == DIGEST
    assert ranges(server) == [None, "bytes=1000-"]


@pytest.mark.parametrize(
    ("validator", "resumes"),
    [
        ({"ETag": '"v1"'}, True),
        ({"ETag": 'W/"v1"'}, False),
        ({"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, True),
        ({"Last-Modified": "yesterday"}, False),
        ({}, False),
    ],
)
def test_only_a_version_that_is_named_exactly_is_continued(server, tmp_path, validator, resumes):
    server.routes["/x"] = lambda seen, n: in_parts(seen, len(PDF) if n > 1 else 900, **validator)
    found = get(server, tmp_path / "run", "x")
    assert found.source.sha256 == DIGEST and found.log.status_code == (206 if resumes else 200)
    assert [seen.headers.get("If-Range") for seen in server.seen][1:] == [
        None,
        next(iter(validator.values())) if resumes else None,
    ]


def test_a_range_of_a_changed_file_is_fetched_anew(server, tmp_path):
    newer = pdf_bytes("A newer book")

    def route(seen, number: int) -> Say:
        if number == 1:
            return in_parts(seen, ETag='"v1"')
        return in_parts(seen, len(newer), newer, ETag='"v2"')

    server.routes["/x"] = route
    assert get(server, tmp_path / "run", "x").source.sha256 == hashlib.sha256(newer).hexdigest()


ALL_SENT = Say(status=416, headers={"Content-Range": f"bytes */{len(PDF)}"})


@pytest.mark.parametrize(
    ("had", "validator", "said", "asked"),
    [
        # Of another version; of a range that starts elsewhere; longer than the file; whole, killed before the rename.
        (b"%PDF-old version", '"old"', Say(body=PDF, headers={"ETag": '"new"'}), ["bytes=16-"]),
        (
            PDF[:100],
            '"v"',
            Say(status=206, body=PDF[:50], headers={"Content-Range": f"bytes 0-49/{len(PDF)}"}),
            ["bytes=100-", None],
        ),
        (PDF + b"more", '"v1"', ALL_SENT, [f"bytes={len(PDF) + 4}-", None]),
        (PDF, '"v1"', ALL_SENT, [f"bytes={len(PDF)}-"]),
    ],
)
def test_a_part_of_an_earlier_process_is_taken_as_far_as_it_fits(server, tmp_path, had, validator, said, asked):
    part_of(tmp_path, server, had, validator)
    server.routes["/x"] = lambda seen, n: said if "Range" in seen.headers else Say(body=PDF)
    assert get(server, tmp_path / "run", "x").source.sha256 == DIGEST and ranges(server) == asked


def test_hosts_are_downloaded_from_side_by_side_and_each_in_turn(server, tmp_path):
    books = {f"/{n}.pdf": pdf_bytes(f"Book {n}") for n in range(6)}
    together = threading.Barrier(2)

    def route(seen, number: int) -> Say:
        if seen.path in ("/0.pdf", "/1.pdf"):
            together.wait(5)  # passed only when both hosts are asked at one time
        return Say(body=books[seen.path])

    server.routes |= dict.fromkeys(books, route)
    hosts = ("127.0.0.1", "localhost")
    rows = [source(f"{n}", download_url=f"http://{hosts[n % 2]}:{server.server.server_port}/{n}.pdf") for n in range(6)]
    told: list[tuple[int, int, int]] = []
    result = download(rows, lambda url: url, tmp_path / "run", FAST, progress=lambda *now: told.append(now))
    assert [row.sha256 for row in result.sources] == [hashlib.sha256(book).hexdigest() for book in books.values()]
    assert [row.source_id for row in result.log] == [row.source_id for row in rows]
    assert server.most_at_once == 2 and told == [(n, 6, 0) for n in range(1, 7)]


def test_a_pause_is_made_between_files_of_one_host(tmp_path):
    clock = SteppedClock()
    outside = replace(FAST, guard=replace(GUARD, allowed_hosts=frozenset()), clock=clock.clock())
    result = download([source("a"), source("b")], lambda url: "http://10.0.0.1/" + url[-1], tmp_path / "run", outside)
    assert all("refused address" in row.reason for row in result.sources) and clock.slept == [1.0]


def test_the_same_bytes_at_two_addresses_are_one_source_with_both_recorded(server, tmp_path):
    server.routes |= {"/a": Say(body=PDF), "/b": Say(body=PDF)}
    holdings = Holdings(tmp_path / "held")
    rows = [source("a"), source("b")]
    result = download(rows, lambda url: server.base + url[6:], tmp_path / "run", FAST, holdings=holdings)
    assert [row.status for row in result.sources] == ["admitted", "rejected"]
    assert result.sources[1].reason.startswith("duplicate of a: same sha256:")
    (row,) = holdings.rows()
    assert row.urls == ["local:/a", "local:/b"] and {"a", "b"} < {*row.identifiers}
