"""A server that drips its answer, or names more than is fetched, costs its own source alone and has a reason; private
addresses are fetched where a command names no other."""

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
from corpus_sources import PDF
from loopback import GUARD, Say, serving
from places import ROOT, SUPPORT

from corpus.build import with_setting
from corpus.find.named_sources import SourceItem, gather_sources
from corpus.find.web_config import WebConfig

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
