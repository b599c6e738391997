"""Private addresses are refused where the socket is opened."""

import httpx
import pytest

from corpus import guard
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
]


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_that_are_not_public(address):
    assert not guard.is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses(address):
    assert guard.is_public(address)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/"],
)
def test_the_client_refuses_every_spelling(url):
    with guard.client(guard.GuardConfig()) as client, pytest.raises(CatalogueError, match="not public"):
        client.get(url)


def test_other_ports_are_refused():
    with guard.client(guard.GuardConfig()) as client, pytest.raises(CatalogueError, match="ports 80 and 443"):
        client.get("http://93.184.216.34:8080/")


def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    allowed = guard.GuardConfig(allowed_hosts=frozenset({"127.0.0.1"}))
    with guard.client(allowed) as client, pytest.raises(httpx.TransportError):
        client.get("http://127.0.0.1:1/")
    with guard.client(guard.GuardConfig()) as client, pytest.raises(CatalogueError):
        client.get("http://10.0.0.1/")
