"""What was fetched is known to every later run and to every process at the same time; crashes lose one line at most."""

import hashlib
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_sources import source
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.find.holdings import ROWS, Holding, Holdings, holding_of, joined
from infuser_core.errors import StoreError


def row(name: str, sha256: str = "", *names: str, **changes: object) -> Holding:
    made = source(name, sha256=sha256, download_url=f"u/{name}", num_bytes=1, **changes)
    return holding_of(made, names, "2026-01-01T00:00:00+00:00")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def keep(holdings: Holdings, name: str, content: bytes, *names: str) -> Holding:
    draft = holdings.part(name)
    draft.write_bytes(content)
    return holdings.keep(draft, row(name, digest(content), *names), ".pdf")


def test_a_kept_book_is_found_under_each_of_its_names_by_another_run(tmp_path):
    kept = keep(Holdings(tmp_path), "doi:10.5555/a", b"one", "isbn:9781111111113")
    later = Holdings(tmp_path)
    for name in ("doi:10.5555/a", "isbn:9781111111113", f"sha256:{digest(b'one')}"):
        assert later.find(["url:unknown", name]) == kept
    assert later.find(["url:unknown"]) is None and later.file(kept.sha256).read_bytes() == b"one"


def test_the_same_bytes_at_two_addresses_are_one_book_with_both(tmp_path):
    holdings = Holdings(tmp_path)
    keep(holdings, "a", b"same", "isbn:1")
    both = keep(holdings, "b", b"same", "isbn:2")
    assert both.source_id == "a" and both.urls == ["u/a", "u/b"]
    assert {"a", "b", "isbn:1", "isbn:2"} < {*both.identifiers}
    assert len(Holdings(tmp_path).rows()) == 1 and Holdings(tmp_path).find(["isbn:2"]) == both


def test_a_failed_download_is_noted_and_claims_nothing(tmp_path):
    holdings = Holdings(tmp_path)
    holdings.note(row("a", status="rejected", reason="download: HTTP 404"))
    assert holdings.find(["a"]) is None and holdings.rows()[0].reason == "download: HTTP 404"
    assert keep(holdings, "a", b"now").status == "admitted" and len(holdings.rows()) == 1


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_book_whose_file_is_gone_or_changed_is_not_there(tmp_path, damage):
    holdings = Holdings(tmp_path)
    path = holdings.file(keep(holdings, "a", b"book").sha256)
    path.unlink() if damage == "missing" else path.write_bytes(b"other")
    assert holdings.find(["a"]) is None


def test_a_line_that_a_crash_cut_off_is_dropped_and_written_over(tmp_path):
    holdings = Holdings(tmp_path)
    keep(holdings, "a", b"a")
    whole = (tmp_path / ROWS).read_bytes()
    (tmp_path / ROWS).write_bytes(whole + whole[: len(whole) // 2])
    again = Holdings(tmp_path)
    assert [held.source_id for held in again.rows()] == ["a"]
    keep(again, "b", b"b")
    assert [held.source_id for held in Holdings(tmp_path).rows()] == ["a", "b"]
    assert all(json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines())


def test_a_damaged_line_is_named_with_the_remedy(tmp_path):
    Holdings(tmp_path)
    (tmp_path / ROWS).write_text("nonsense\n")
    with pytest.raises(StoreError, match="nonsense") as caught:
        Holdings(tmp_path).rows()
    assert "remove the line" in caught.value.hint


def test_rows_of_other_writers_are_seen(tmp_path):
    mine, theirs = Holdings(tmp_path), Holdings(tmp_path)
    assert mine.rows() == []
    keep(theirs, "a", b"a")
    assert mine.find(["a"]) is not None
    keep(mine, "b", b"b")
    assert len(theirs.rows()) == 2


def write_many(folder: Path, worker: int) -> None:
    holdings = Holdings(folder)
    for number in range(25):
        keep(holdings, f"{worker}-{number}", f"{worker}-{number}".encode())


def test_processes_write_at_one_time_and_no_row_is_lost(tmp_path):
    workers = [multiprocessing.Process(target=write_many, args=(tmp_path, n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(Holdings(tmp_path).rows()) == 100
    assert all(Holdings(tmp_path).find([f"{n}-24"]) for n in range(4))


def write_for_ever(folder: Path) -> None:
    holdings = Holdings(folder)
    for number in range(100_000):
        keep(holdings, f"{os.getpid()}-{number}", str(number).encode() * 50)


def test_a_killed_writer_leaves_whole_rows_alone_and_the_lock_free(tmp_path):
    for _ in range(3):
        writer = multiprocessing.Process(target=write_for_ever, args=(tmp_path,))
        writer.start()
        while not (tmp_path / ROWS).is_file() or (tmp_path / ROWS).stat().st_size < 5_000:
            time.sleep(0.005)
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        rows = Holdings(tmp_path).rows()
        assert rows and all(Holdings(tmp_path).file(held.sha256).is_file() for held in rows)
        keep(Holdings(tmp_path), "after", b"after")
        assert Holdings(tmp_path).find(["after"])
        (tmp_path / ROWS).unlink()


def test_who_wants_a_book_that_is_being_fetched_waits_for_it(tmp_path):
    order: list[str] = []
    first_in, may_end = threading.Event(), threading.Event()

    def fetch(name: str, names: list[str]) -> None:
        holdings = Holdings(tmp_path)
        with holdings.claim(names):
            if holdings.find(names):
                order.append(f"{name} found")
                return
            first_in.set()
            may_end.wait(5)
            keep(holdings, name, b"book", *names)
            order.append(f"{name} fetched")

    first = threading.Thread(target=fetch, args=("a", ["isbn:1", "doi:1"]))
    second = threading.Thread(target=fetch, args=("b", ["url:2", "isbn:1"]))
    first.start()
    first_in.wait(5)
    second.start()
    other = Holdings(tmp_path)
    with other.claim(["isbn:7"]):
        order.append("another book passes")
    may_end.set()
    first.join()
    second.join()
    assert order == ["another book passes", "a fetched", "b found"]


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3)


@settings(max_examples=25)
@given(st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=6))
def test_every_kept_name_leads_to_the_bytes_it_was_kept_with(books):
    """Against a plain dictionary: bytes to the names under which they were kept."""
    with tempfile.TemporaryDirectory() as folder:
        holdings, reference = Holdings(Path(folder)), {}
        for names, content in books:
            if holdings.find(names) is None:
                keep(holdings, names[0], bytes([content]), *names)
                reference.setdefault(content, set()).update(names)
        for content, names in reference.items():
            for name in names:
                found = Holdings(Path(folder)).find([name])
                assert found is not None and found.sha256 == digest(bytes([content]))


def test_joining_keeps_the_first_and_both_sides_names():
    one, two = row("a", "1" * 64, "isbn:1"), row("b", "1" * 64, "isbn:2")
    assert joined(one, two).source_id == "a"
    assert joined(one, replace(one)) == one
