"""Hosts are asked in turn, with pauses, never against their robots.txt, and again when they were busy."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from loopback import GUARD, Loopback, Say, SteppedClock

from corpus.find.polite_http import Gate, PoliteTransport, parse_robots, polite_client, retry_after
from corpus.find.ssrf_guard import client_of
from corpus.find.web_config import WebConfig
from infuser_core.errors import CatalogueError

STRANGE = WebConfig(backoff_seconds=0.5)


def ask(server: Loopback, *paths: str, config: WebConfig = STRANGE) -> tuple[list[httpx.Response], list[float]]:
    """The answers of a host that is not one's own, and the pauses that were made."""
    clock = SteppedClock()
    config = replace(config, clock=clock.clock())
    with client_of(PoliteTransport(httpx.HTTPTransport(), config), config) as client:
        return [client.get(server.base + path) for path in paths], clock.slept


def test_two_requests_to_one_host_have_a_pause_between_them(server):
    server.routes |= {"/a": Say(), "/b": Say()}
    assert ask(server, "/a", "/b")[1] == [1.0, 1.0]  # after robots.txt, and after the first request


def test_a_host_of_ones_own_is_asked_without_pause(server):
    server.routes |= {"/a": Say(), "/b": Say()}
    assert ask(server, "/a", "/b", config=GUARD)[1] == []


def test_the_longer_pause_that_robots_txt_asks_for_is_made(server):
    server.routes |= {"/robots.txt": Say(body=b"User-agent: *\nCrawl-delay: 7\n"), "/a": Say(), "/b": Say()}
    assert ask(server, "/a", "/b")[1] == [1.0, 7.0]


def test_what_robots_txt_forbids_is_not_asked(server):
    server.routes |= {"/robots.txt": Say(body=b"User-agent: infuser-corpus\nDisallow: /rest/\n"), "/a": Say()}
    with pytest.raises(CatalogueError, match=r"robots\.txt of 127\.0\.0\.1 forbids /rest/x\?q=1"):
        ask(server, "/a", "/rest/x?q=1")
    assert server.paths() == ["/a"]


def test_an_address_that_was_exempted_is_asked_all_the_same(server):
    server.routes |= {"/robots.txt": Say(body=b"User-agent: *\nDisallow: /\n"), "/api/x": Say(body=b"yes")}
    exempt = WebConfig(robots_exempt=(f"{server.base}/api/",), delay_seconds=0)
    assert ask(server, "/api/x", config=exempt)[0][0].content == b"yes"
    with pytest.raises(CatalogueError, match="forbids"):
        ask(server, "/other", config=exempt)


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (403, True), (500, False), (503, False)])
def test_a_robots_txt_that_is_missing_allows_and_a_broken_one_forbids(server, status, allowed):
    server.routes |= {"/robots.txt": Say(status=status), "/a": Say()}
    if allowed:
        assert ask(server, "/a")[0][0].status_code == 200
    else:
        with pytest.raises(CatalogueError, match="forbids"):
            ask(server, "/a")


def test_robots_txt_is_read_once_per_host(server):
    server.routes |= {"/a": Say(), "/b": Say()}
    ask(server, "/a", "/b", "/a")
    assert [seen.path for seen in server.seen].count("/robots.txt") == 1


def test_a_busy_server_is_asked_again_when_it_said(server):
    server.routes["/a"] = lambda seen, n: Say(body=b"ok") if n == 3 else Say(status=429, headers={"Retry-After": "40"})
    answers, slept = ask(server, "/a")
    assert answers[0].content == b"ok" and slept.count(40.0) == 2


def test_a_server_that_stays_busy_is_given_up(server):
    server.routes["/a"] = Say(status=503)
    assert ask(server, "/a")[0][0].status_code == 503 and server.paths() == ["/a"] * 3


def test_a_server_that_asks_for_too_long_a_wait_is_given_up_at_once(server):
    server.routes["/a"] = Say(status=503, headers={"Retry-After": "999"})
    assert ask(server, "/a")[0][0].status_code == 503 and server.paths() == ["/a"]


def test_a_connection_that_was_dropped_is_tried_again(server):
    server.routes["/a"] = lambda seen, n: Say(body=b"ok", drop=n < 3)
    assert ask(server, "/a")[0][0].content == b"ok"
    server.routes["/b"] = Say(drop=True)
    with pytest.raises(httpx.TransportError):
        ask(server, "/b")
    assert server.paths() == ["/a"] * 3 + ["/b"] * 3


def test_one_host_serves_one_request_at_a_time(server):
    gone = threading.Event()
    server.routes |= {f"/{n}": Say(body=b"x" * 1000, wait=gone) for n in range(6)}
    with polite_client(GUARD) as client, ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(client.get, f"{server.base}/{n}") for n in range(6)]
        gone.set()
        assert [future.result().status_code for future in futures] == [200] * 6
    assert server.most_at_once == 1


def test_sub_domains_with_a_pause_of_their_own_share_it():
    clock = SteppedClock()
    gate = Gate(WebConfig(clock=clock.clock()))
    for host in ("export.arxiv.org", "oaipmh.arxiv.org", "arxiv.org.example", "arxiv.org"):
        leave = gate.enter(host)
        leave()
        leave()  # a body closed twice ends one turn
    assert clock.slept == [3.0, 3.0]


def test_retry_after_as_a_date():
    assert retry_after("Thu, 01 Jan 1970 00:02:00 GMT", 60.0) == 60.0
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT", 60.0) == 0.0
    assert retry_after("soon", 0.0) == retry_after("", 0.0) == 0.0


PRESS = "User-agent: *\nDisallow: /*/wp-json/\nCrawl-delay: 2.5\n"


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        (PRESS, "/algebra/wp-json/pressbooks/v2/metadata", False),
        (PRESS, "/wp-json/pressbooks/v2/books?page=2", True),
        ("User-agent: *\nDisallow: /\nAllow: /pdf/", "/pdf/a.pdf", True),
        ("User-agent: *\nAllow: /pdf\nDisallow: /pdf", "/pdf", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf?x=1", True),
        ("User-agent: *\nDisallow: /a%3cd.html", "/a%3Cd.html", False),
        ("User-agent: *\nDisallow:", "/x", True),
        ("User-agent: *\nDisallow: /\n\nUser-agent: infuser-corpus\nDisallow: /private", "/x", True),
        ("User-agent: Infuser-Corpus/0.1\nDisallow: /x", "/x", False),
        ("User-agent: a\nUser-agent: infuser-corpus\nDisallow: /x", "/x", False),
        ("\ufeffUser-agent: * # all\nDisallow: /x # no", "/x/y", False),
        ("<html>a login page</html>", "/x", True),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
    ],
)
def test_robots_txt_is_read_as_rfc_9309_has_it(text, path, allowed):
    assert parse_robots(text.encode()).can_fetch(f"https://x.example{path}", "infuser-corpus") == allowed
