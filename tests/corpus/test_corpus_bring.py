"""One source at a time: reused, resumed, taken from a page, taken as text; many in parallel across hosts."""

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
from loopback import Loopback, Say, SteppedClock, serving
from test_corpus_download import PDF, pdf_bytes, source

from corpus.find.download import Brought, DownloadConfig, bring, download, web_client
from corpus.find.fetch import FetchConfig
from corpus.find.guard import GuardConfig
from corpus.find.holdings import Holdings
from corpus.find.polite_http import Patience
from corpus.read.file_kinds import file_of

GUARD = GuardConfig(allowed_hosts=frozenset({"127.0.0.1", "localhost"}), stall_seconds=5)
FAST = DownloadConfig(
    guard=GUARD,
    transfer=FetchConfig(patience=Patience(backoff_seconds=0.01), max_bytes=1 << 20),
    clock=SteppedClock().clock(),
)
MARKDOWN = b"# Light\n\nIt travels.\n"


@pytest.fixture
def server():
    with serving() as loopback:
        yield loopback


def get(server: Loopback, folder: Path, name: str, *names: str, config: DownloadConfig = FAST) -> Brought:
    folder.mkdir(exist_ok=True)
    with web_client(config) as web:
        return bring(
            source(name), f"{server.base}/{name}", folder, Holdings(folder.parent / "held"), web, config, names=names
        )


def test_a_book_is_fetched_once_whatever_name_it_is_asked_for_under(server, tmp_path):
    server.routes["/a.pdf"] = Say(body=PDF)
    first = get(server, tmp_path / "run1", "a.pdf", "isbn:9781111111113")
    again = get(server, tmp_path / "run2", "b.pdf", "isbn:9781111111113")
    assert server.paths() == ["/a.pdf"]
    assert again.source.sha256 == first.source.sha256 and again.log.attempts == 0
    assert file_of(tmp_path / "run2", again.source.sha256).read_bytes() == PDF
    assert again.holding.urls == ["local:/a.pdf", "local:/b.pdf"]
    assert get(server, tmp_path / "run3", "c.pdf", "b.pdf").log.attempts == 0


def test_a_book_whose_copy_was_changed_is_fetched_again(server, tmp_path):
    server.routes["/a.pdf"] = Say(body=PDF)
    first = get(server, tmp_path / "run1", "a.pdf")
    file_of(tmp_path / "run1", first.source.sha256).write_bytes(b"damaged")
    assert get(server, tmp_path / "run2", "a.pdf").source.sha256 == hashlib.sha256(PDF).hexdigest()
    assert server.paths() == ["/a.pdf"] * 2


def test_everything_about_a_transfer_is_recorded(server, tmp_path):
    server.routes |= {"/a.pdf": Say(status=302, headers={"Location": "/b.pdf"})}
    server.routes["/b.pdf"] = Say(body=PDF, headers={"Content-Type": "application/pdf; charset=x"})
    log = get(server, tmp_path / "run", "a.pdf").log
    assert (log.status_code, log.attempts, log.num_bytes, log.content_type) == (200, 1, len(PDF), "application/pdf")
    assert (log.url, log.final_url) == (f"{server.base}/a.pdf", f"{server.base}/b.pdf")
    assert log.sha256 == hashlib.sha256(PDF).hexdigest() and (log.status, log.reason) == ("admitted", "")
    missing = get(server, tmp_path / "run", "none.pdf")
    assert missing.log.reason == missing.source.reason == missing.holding.reason == "download: HTTP 404"
    assert Holdings(tmp_path / "held").rows()[-1].reason == "download: HTTP 404"


def test_a_text_is_kept_as_markdown(server, tmp_path):
    server.routes["/a.md"] = Say(body=MARKDOWN, headers={"Content-Type": "text/markdown"})
    row = get(server, tmp_path / "run", "a.md").source
    assert file_of(tmp_path / "run", row.sha256) == tmp_path / "run" / f"{row.sha256}.md"


def test_a_text_without_a_length_could_be_cut_and_is_refused(server, tmp_path):
    server.routes["/a.md"] = Say(body=MARKDOWN, length=-1)
    assert "whose end cannot be checked" in get(server, tmp_path / "run", "a.md").source.reason


PAGE = b"<html><head><meta name='citation_pdf_url' content='/file.pdf'></head></html>"


def test_a_page_in_the_place_of_a_file_leads_to_the_one_it_names(server, tmp_path):
    server.routes |= {"/page": Say(body=PAGE, headers={"Content-Type": "text/html"}), "/file.pdf": Say(body=PDF)}
    found = get(server, tmp_path / "run", "page")
    assert found.source.status == "admitted" and found.log.final_url == f"{server.base}/file.pdf"
    closed = get(server, tmp_path / "run", "page", config=replace(FAST, follow_pages=False))
    assert closed.log.attempts == 0


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        (b"<html><form>Please log in</form></html>", "content type text/html, no document"),
        (b"<a href='/1.pdf'>1</a><a href='/2.pdf'>2</a>", "content type text/html"),
        (b"<a href='/page'>again</a><link rel=license href=x>", "content type text/html"),
        (b"<a href='http://10.0.0.9/x.pdf'>inside</a>", "refused address: 10.0.0.9"),
    ],
)
def test_a_page_that_names_no_single_file_is_refused(server, tmp_path, html, reason):
    server.routes["/page"] = Say(body=html, headers={"Content-Type": "text/html; charset=utf-8"})
    assert reason in get(server, tmp_path / "run", "page").source.reason


def test_what_robots_txt_forbids_is_not_fetched(server, tmp_path):
    server.routes |= {"/robots.txt": Say(body=b"User-agent: *\nDisallow: /*.pdf$\n"), "/a.pdf": Say(body=PDF)}
    assert "robots.txt of 127.0.0.1 forbids /a.pdf" in get(server, tmp_path / "run", "a.pdf").source.reason
    assert server.paths() == []


def cut(seen, number: int) -> Say:
    """The whole file, once; then ranges of it."""
    tags = {"ETag": '"v1"', "Content-Type": "application/pdf"}
    asked = seen.headers.get("Range")
    if not asked:
        return Say(body=PDF[:1000], length=len(PDF), headers=tags)
    start = int(asked.removeprefix("bytes=").rstrip("-"))
    return Say(
        status=206, body=PDF[start:], headers={**tags, "Content-Range": f"bytes {start}-{len(PDF) - 1}/{len(PDF)}"}
    )


def test_a_later_process_goes_on_where_an_earlier_one_was_cut_off(server, tmp_path):
    server.routes["/a.pdf"] = cut
    once = replace(FAST, transfer=replace(FAST.transfer, patience=Patience(attempts=1)))
    assert "transfer broke off" in get(server, tmp_path / "run", "a.pdf", config=once).source.reason
    assert get(server, tmp_path / "run", "a.pdf", config=once).source.sha256 == hashlib.sha256(PDF).hexdigest()
    assert [seen.headers.get("Range") for seen in server.seen if seen.path == "/a.pdf"] == [None, "bytes=1000-"]
    assert [path.name for path in (tmp_path / "held" / "parts").iterdir()] == []


def fetch_slowly(base: str, folder: Path) -> None:
    with web_client(FAST) as web:
        bring(source("a.pdf"), f"{base}/a.pdf", folder, Holdings(folder.parent / "held"), web, FAST)


def test_killing_a_download_loses_no_byte_that_arrived(server, tmp_path):
    ended = threading.Event()
    server.routes["/a.pdf"] = lambda seen, n: replace(cut(seen, n), hold=ended if n == 1 else None)
    (tmp_path / "run").mkdir()
    victim = multiprocessing.Process(target=fetch_slowly, args=(server.base, tmp_path / "run"))
    victim.start()
    part = Holdings(tmp_path / "held").part("a.pdf")
    while not part.is_file() or part.stat().st_size < 1000:
        assert victim.is_alive()
        time.sleep(0.002)
    assert victim.pid
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    ended.set()
    assert get(server, tmp_path / "run", "a.pdf").source.sha256 == hashlib.sha256(PDF).hexdigest()
    assert [seen.headers.get("Range") for seen in server.seen if seen.path == "/a.pdf"] == [None, "bytes=1000-"]


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
    def route(seen, number: int) -> Say:
        asked = seen.headers.get("Range")
        if not asked:
            return Say(body=PDF if number > 1 else PDF[:900], length=len(PDF), headers=validator)
        assert seen.headers["If-Range"] == next(iter(validator.values()))
        span = f"bytes 900-{len(PDF) - 1}/{len(PDF)}"
        return Say(status=206, body=PDF[900:], headers={**validator, "Content-Range": span})

    server.routes["/a.pdf"] = route
    found = get(server, tmp_path / "run", "a.pdf")
    assert found.source.sha256 == hashlib.sha256(PDF).hexdigest()
    assert found.log.status_code == (206 if resumes else 200)


def test_a_range_of_a_changed_file_is_fetched_anew(server, tmp_path):
    newer = pdf_bytes("A newer book")

    def route(seen, number: int) -> Say:
        if number == 1:
            return Say(body=PDF[:900], length=len(PDF), headers={"ETag": '"v1"'})
        if seen.headers.get("Range"):
            span = f"bytes 900-{len(newer) - 1}/{len(newer)}"
            return Say(status=206, body=newer[900:], headers={"ETag": '"v2"', "Content-Range": span})
        return Say(body=newer, headers={"ETag": '"v2"'})

    server.routes["/a.pdf"] = route
    assert get(server, tmp_path / "run", "a.pdf").source.sha256 == hashlib.sha256(newer).hexdigest()


def test_a_part_that_is_the_whole_file_is_taken(server, tmp_path):
    """Killed between the last byte and the rename: the server has nothing more to send."""
    part = Holdings(tmp_path / "held").part("a.pdf")
    part.write_bytes(PDF)
    part.with_suffix(".tag").write_text(json.dumps({"url": f"{server.base}/a.pdf", "validator": '"v1"'}))
    server.routes["/a.pdf"] = Say(status=416, headers={"Content-Range": f"bytes */{len(PDF)}"})
    assert get(server, tmp_path / "run", "a.pdf").source.sha256 == hashlib.sha256(PDF).hexdigest()


def test_a_part_that_is_longer_than_the_file_is_forgotten(server, tmp_path):
    part = Holdings(tmp_path / "held").part("a.pdf")
    part.write_bytes(PDF + b"more")
    part.with_suffix(".tag").write_text(json.dumps({"url": f"{server.base}/a.pdf", "validator": '"v1"'}))
    server.routes["/a.pdf"] = lambda seen, n: (
        Say(status=416, headers={"Content-Range": f"bytes */{len(PDF)}"}) if "Range" in seen.headers else Say(body=PDF)
    )
    assert get(server, tmp_path / "run", "a.pdf").source.sha256 == hashlib.sha256(PDF).hexdigest()


def test_hosts_are_downloaded_from_side_by_side_and_each_in_turn(server, tmp_path):
    books = {f"/{n}.pdf": pdf_bytes(f"Book {n}") for n in range(6)}
    together = threading.Barrier(2)

    def route(seen, number: int) -> Say:
        if seen.path in ("/0.pdf", "/1.pdf"):
            together.wait(5)  # passed only when both hosts are asked at one time
        return Say(body=books[seen.path])

    server.routes |= dict.fromkeys(books, route)
    rows = [
        source(
            f"{n}.pdf", download_url=f"http://{('127.0.0.1', 'localhost')[n % 2]}:{server.server.server_port}/{n}.pdf"
        )
        for n in range(6)
    ]
    told: list[tuple[int, int, int]] = []
    result = download(rows, lambda url: url, tmp_path / "run", FAST, progress=lambda *now: told.append(now))
    assert [row.sha256 for row in result.sources] == [hashlib.sha256(book).hexdigest() for book in books.values()]
    assert [row.source_id for row in result.log] == [row.source_id for row in rows]
    assert server.most_at_once == 2 and told == [(n, 6, 0) for n in range(1, 7)]
    assert len([path for path in (tmp_path / "run").iterdir()]) == 6


def test_a_pause_is_made_between_files_of_one_host(server, tmp_path):
    clock = SteppedClock()
    outside = replace(FAST, guard=replace(GUARD, allowed_hosts=frozenset()), clock=clock.clock())
    result = download([source("a"), source("b")], lambda url: "http://10.0.0.1/" + url[-1], tmp_path / "run", outside)
    assert all("refused address" in row.reason for row in result.sources)
    assert clock.slept == [1.0]


def test_the_same_bytes_at_two_addresses_are_one_source_with_both_recorded(server, tmp_path):
    server.routes |= {"/a": Say(body=PDF), "/b": Say(body=PDF)}
    holdings = Holdings(tmp_path / "held")
    result = download(
        [source("a"), source("b")], lambda url: server.base + url[6:], tmp_path / "run", FAST, holdings=holdings
    )
    assert [row.status for row in result.sources] == ["admitted", "rejected"]
    assert result.sources[1].reason.startswith("duplicate of a: same sha256:")
    (row,) = holdings.rows()
    assert row.urls == ["local:/a", "local:/b"] and {"a", "b"} < {*row.identifiers}


@pytest.mark.parametrize(
    "address", ["", "local:/x", "ftp://x.example/a", "http://[bad/", "http://x:y/", "http://" + "a" * 300 + "/"]
)
def test_an_address_that_is_none_is_a_reason(tmp_path, address):
    (row,) = download([source("a")], lambda url: address, tmp_path / "run", FAST).sources
    assert row.status == "rejected" and row.reason.startswith("download: ")
