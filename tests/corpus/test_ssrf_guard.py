"""Private addresses are refused where the socket is opened."""

import httpcore
import httpx
import pytest
from loopback import guarded

from corpus.find import ssrf_guard
from corpus.find.web_config import WebConfig
from infuser_core.errors import CatalogueError

REFUSED = [
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "::1",
    "fe80::1",
    "fd00::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:1::1",
    "::7f00:1",
    "::ffff:0:7f00:1",
    "64:ff9b:1::a00:1",
    "2001:db8::1",
    "3fff::1",
    "fec0::1",
    "192.88.99.1",
    "198.18.0.1",
    "240.0.0.1",
    "255.255.255.255",
]


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_that_are_not_public(address):
    assert not ssrf_guard.is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses(address):
    assert ssrf_guard.is_public(address)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/"],
)
def test_the_client_refuses_every_spelling(url):
    with guarded(WebConfig()) as client, pytest.raises(CatalogueError, match="not public"):
        client.get(url)


def test_other_ports_are_refused():
    with guarded(WebConfig()) as client, pytest.raises(CatalogueError, match="ports 80 and 443"):
        client.get("http://93.184.216.34:8080/")


def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    allowed = WebConfig(allowed_hosts=frozenset({"127.0.0.1"}))
    with guarded(allowed) as client, pytest.raises(httpx.TransportError):
        client.get("http://127.0.0.1:1/")
    with guarded(WebConfig()) as client, pytest.raises(CatalogueError):
        client.get("http://10.0.0.1/")


class Sockets(httpcore.NetworkBackend):
    """Remembers whom it was to connect to; the first addresses may be down."""

    def __init__(self, down: int = 0) -> None:
        self.asked: list[str] = []
        self.down = down

    def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        self.asked.append(host)
        if len(self.asked) <= self.down:
            raise httpcore.ConnectError("no route")
        return httpcore.NetworkStream()


def backend(sockets: Sockets, *answers: list[str]) -> ssrf_guard.GuardedBackend:
    turns = iter(answers)
    return ssrf_guard.GuardedBackend(allowed_hosts=frozenset(), sockets=sockets, lookup=lambda host, port: next(turns))


def test_the_address_that_was_checked_is_the_one_that_is_reached():
    """A second look-up, which a hostile name server would answer with a private address, never happens."""
    sockets = Sockets()
    backend(sockets, ["93.184.216.34"], ["127.0.0.1"]).connect_tcp("rebind.example", 443)
    assert sockets.asked == ["93.184.216.34"]


def test_one_private_answer_among_public_ones_is_enough_to_refuse():
    sockets = Sockets()
    with pytest.raises(CatalogueError, match="not public"):
        backend(sockets, ["93.184.216.34", "10.0.0.1"]).connect_tcp("mixed.example", 80)
    assert sockets.asked == []


def test_a_host_whose_first_address_is_down_is_reached_at_its_next():
    sockets = Sockets(down=1)
    backend(sockets, ["2606:2800:220:1::1", "93.184.216.34"]).connect_tcp("both.example", 443)
    assert sockets.asked == ["2606:2800:220:1::1", "93.184.216.34"]


def test_a_name_without_addresses_cannot_be_reached():
    with pytest.raises(httpcore.ConnectError, match="no address"):
        backend(Sockets(), []).connect_tcp("none.example", 443)
