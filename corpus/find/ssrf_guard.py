"""HTTP client protected against SSRF: it connects only to public IP addresses and to explicitly trusted hosts.

Addresses are checked when the socket is opened. Checking the URL is not enough: a redirect, or a name server that gives
another answer later, would get through.
"""

import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from corpus.find.identifiers import absolute, scheme_of
from corpus.find.web_config import LEAST_RATE, SLOW_SECONDS, WebConfig
from infuser_core.errors import CatalogueError
from infuser_core.system import child

MAX_REDIRECTS = 5
MAX_CONNECTIONS = 16
"""Largest number of open connections, all hosts together."""
MAX_SECONDS = 900.0
"""Longest wait for one answer, its body included, seconds."""
WEB_PORTS = frozenset({80, 443})
# The only IPv6 block of public host addresses; NAT64 and IPv4-compatible addresses are outside it.
UNICAST = ipaddress.ip_network("2000::/3")
# Ranges of UNICAST that can lead to private hosts although `is_global` is true: 6to4, Teredo, documentation.
TUNNELS = tuple(ipaddress.ip_network(net) for net in ("2002::/16", "2001::/32", "3fff::/20"))
# 6to4 relays forward packets to any address that the packet names.
RELAYS = ipaddress.ip_network("192.88.99.0/24")
Lookup = Callable[[str, int], list[str]]
"""Resolves a host and a port to IP addresses."""


def is_public(address: str) -> bool:
    """Whether an IP address is a public unicast address."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip not in RELAYS
    return ip in UNICAST and not any(ip in net for net in TUNNELS)


def look_up(host: str, port: int) -> list[str]:
    """Resolve a host with the system's resolver: IP addresses in its order, without duplicates."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def resolve(host: str, port: int, lookup: Lookup = look_up) -> list[str]:
    """Resolve a host to the IP addresses to try, in order.

    Raises CatalogueError unless all of them are public, and httpcore.ConnectError if there is none.
    """
    try:
        addresses = lookup(host, port)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host}: {error}") from error
    for address in addresses:
        if not is_public(address):
            raise CatalogueError(
                f"refused address: {host} is {address}, which is not public",
                hint="a private address is fetched if it is the only one that a command names",
            )
    if not addresses:
        raise httpcore.ConnectError(f"{host}: no address")
    return addresses


class PacedStream(httpcore.NetworkStream):
    """Network stream that aborts a slow answer: a server that sends a byte now and then never causes a time-out."""

    def __init__(self, inner: httpcore.NetworkStream, slow_seconds: float) -> None:
        self._inner, self._slow_seconds = inner, slow_seconds
        self._seconds, self._bytes, self._waited = 0.0, 0, 0.0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes. Raises CatalogueError if the answer arrives too slowly or takes too long in total."""
        # Time in which this process was suspended does not count.
        watch, block = child.Watch(), None
        while block is None:
            try:
                block = self._inner.read(max_bytes, min(child.LOOK_SECONDS, timeout or child.LOOK_SECONDS))
            except httpcore.ReadTimeout:
                if timeout is not None and watch.look() >= timeout:
                    raise
        self._seconds += watch.look()
        self._waited += watch.seconds
        self._bytes += len(block)
        if self._waited > MAX_SECONDS:
            raise CatalogueError(
                f"too slow: not complete in {MAX_SECONDS:g} s, which is the limit for one answer",
                hint="fetch the file by hand and name it",
            )
        if self._seconds > self._slow_seconds and block:
            if self._bytes < LEAST_RATE * self._seconds:
                raise CatalogueError(
                    f"too slow: {self._bytes} bytes in {self._seconds:.0f} s, "
                    f"at least {LEAST_RATE:g} a second are required",
                    hint="fetch the file by hand and name it",
                )
            self._seconds, self._bytes = 0.0, 0
        return block

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a request, and reset the measurement for its answer."""
        self._inner.write(buffer, timeout)
        self._seconds, self._bytes, self._waited = 0.0, 0, 0.0

    def close(self) -> None:
        """Close the inner stream."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Start TLS; the encrypted stream also aborts slow answers."""
        inner = self._inner.start_tls(ssl_context, server_hostname, timeout)
        return PacedStream(inner, self._slow_seconds)

    def get_extra_info(self, info: str) -> Any:
        """Information about the connection, from the inner stream."""
        return self._inner.get_extra_info(info)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedBackend(httpcore.NetworkBackend):
    """httpcore backend that opens sockets only to public addresses and trusted hosts; TLS still verifies host names."""

    allowed_hosts: frozenset[str]
    """Host names or addresses that need no check."""
    sockets: httpcore.NetworkBackend = field(default_factory=httpcore.SyncBackend)
    """Opens the connections that pass the check."""
    lookup: Lookup = look_up
    """Resolver, called once per connection."""
    slow_seconds: float = SLOW_SECONDS
    """See WebConfig."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to an allowed host, or resolve the host, check its addresses and connect to one of the checked ones.

        The host is not resolved a second time: the answer could be another address.
        """
        options = timeout, local_address, socket_options
        if host in self.allowed_hosts:
            return self._paced(host, port, *options)
        if port not in WEB_PORTS:
            raise CatalogueError(f"refused port: {host}:{port}", hint="only ports 80 and 443 are reached")
        addresses = resolve(host, port, self.lookup)
        for address in addresses[:-1]:
            # Try the next address: this machine may have no IPv6.
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return self._paced(address, port, *options)
        return self._paced(addresses[-1], port, *options)

    def _paced(self, host: str, port: int, *options: Any) -> PacedStream:
        return PacedStream(self.sockets.connect_tcp(host, port, *options), self.slow_seconds)


@functools.cache
def _tls() -> ssl.SSLContext:
    """TLS context with the default certificates, read once: reading takes longer than a request on loopback."""
    return httpx.create_ssl_context(trust_env=False)


class GuardedTransport(httpx.HTTPTransport):
    """httpx transport that connects only to public addresses and to trusted hosts."""

    def __init__(self, config: WebConfig) -> None:
        super().__init__(verify=_tls(), trust_env=False)
        # httpx has no parameter for the backend that opens its sockets.
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls(),
            max_connections=MAX_CONNECTIONS,
            network_backend=GuardedBackend(allowed_hosts=config.allowed_hosts, slow_seconds=config.slow_seconds),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. The body of a redirect is not read: only its target is needed.

        Raises CatalogueError for forbidden addresses and for schemes other than http and https.
        """
        if request.url.scheme not in ("http", "https") or not request.url.host:
            raise CatalogueError(f"refused address: {request.url}", hint="only http and https addresses are reached")
        response = super().handle_request(request)
        if not response.has_redirect_location:
            return response
        response.close()
        return httpx.Response(response.status_code, headers={"location": response.headers["location"]})


def _check_redirect(response: httpx.Response) -> None:
    """Raises CatalogueError for a redirect to something other than a web address, or from https to http."""
    if not response.has_redirect_location:
        return
    here, location = str(response.request.url), response.headers["location"]
    target = absolute(here, location)
    if not target or (here.startswith("https:") and target.startswith("http:")):
        raise CatalogueError(
            f"refused redirect from {here.partition(':')[0]} to {scheme_of(here, location) or 'nowhere'}",
            hint="name the address that it should lead to",
        )


def body_of(response: httpx.Response, most: int) -> bytes:
    """Read the raw body of a response; stops after the block that exceeds `most` bytes."""
    body = bytearray()
    for block in response.iter_raw():
        body += block
        if len(body) > most:
            break
    return bytes(body)


def client_of(transport: httpx.BaseTransport, config: WebConfig) -> httpx.Client:
    """HTTP client that follows few redirects, ignores proxies of the environment and requests uncompressed bodies."""
    return httpx.Client(
        transport=transport,
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        event_hooks={"response": [_check_redirect]},
        trust_env=False,
        timeout=httpx.Timeout(config.stall_seconds, connect=config.connect_seconds),
        # A compressed body could be a thousand times larger than the received bytes, which are limited.
        headers={"User-Agent": config.user_agent, "Accept-Encoding": "identity"},
    )
