"""Guarded HTTP client: only public addresses are reached, checked where the socket is opened.

A check of the URL alone is not enough: a redirect or a second answer of the name server would pass it.
"""

import contextlib
import functools
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from corpus.find.identifiers import absolute, scheme_of
from infuser_core.errors import CatalogueError
from infuser_core.system import child

AGENT = "infuser-corpus/0.1"
MAX_REDIRECTS = 5
MAX_CONNECTIONS = 16
"""Connections open at one time, to all hosts together."""
SLOW_SECONDS, LEAST_RATE = 30.0, 4096.0
"""Seconds of waiting after which an answer must have come at so many bytes a second."""
MAX_SECONDS = 900.0
"""Longest time that is waited for one answer, its body included, seconds."""
MAX_WAIT_SECONDS = 120.0
"""Longest wait; a server whose Retry-After asks for more is given up at once."""
WEB_PORTS = frozenset({80, 443})
# The only IPv6 block from which hosts are numbered; NAT64 and IPv4-compatible addresses lie outside.
UNICAST = ipaddress.ip_network("2000::/3")
# Inside it, ranges that lead to private hosts although `is_global` calls them global: 6to4, Teredo, documentation.
TUNNELS = tuple(ipaddress.ip_network(net) for net in ("2002::/16", "2001::/32", "3fff::/20"))
# 6to4 relays forward to whatever the packet names.
RELAYS = ipaddress.ip_network("192.88.99.0/24")
Lookup = Callable[[str, int], list[str]]
"""The addresses that a name server gives for a host and a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and waiting; a test passes its own."""

    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    sleep: Callable[[float], None] = time.sleep
    """Waits that many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """Limits of HTTP requests: allowed hosts, rate, timeouts and retries."""

    allowed_hosts: frozenset[str] = frozenset()
    """Hosts of one's own, such as a local catalogue: reached without the address check, on any port, without pause."""
    user_agent: str = AGENT
    """User-Agent header; add a contact address before a large run."""
    connect_seconds: float = 10.0
    """Limit for opening a connection, seconds."""
    stall_seconds: float = 30.0
    """Limit for a pause between two reads, seconds."""
    slow_seconds: float = SLOW_SECONDS
    """Time waited for an answer's bytes after which one that drips in is given up, seconds."""
    delay_seconds: float = 1.0
    """Least time between the end of a request and the next one to the same host, seconds."""
    robots_exempt: tuple[str, ...] = ()
    """Address prefixes that are asked whatever robots.txt says, because their owner allowed it elsewhere."""
    attempts: int = 3
    """Requests made to a busy or broken server before it is given up."""
    backoff_seconds: float = 2.0
    """Upper end of the first random wait; doubles with every attempt, seconds."""
    max_bytes: int = 500 << 20
    """Largest file that is downloaded, bytes."""
    clock: Clock = field(default_factory=Clock)
    """Time and waiting."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet and to one host."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip not in RELAYS
    return ip in UNICAST and not any(ip in net for net in TUNNELS)


def look_up(host: str, port: int) -> list[str]:
    """The system's answer, each address once, in its order."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def resolve(host: str, port: int, lookup: Lookup = look_up) -> list[str]:
    """The addresses to connect to, in order. Raises CatalogueError unless every answer is public."""
    try:
        addresses = lookup(host, port)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host}: {error}") from error
    for address in addresses:
        if not is_public(address):
            raise CatalogueError(
                f"refused address: {host} is {address}, which is not public",
                hint="a private address is fetched where it is the only one that a command names",
            )
    if not addresses:
        raise httpcore.ConnectError(f"{host}: no address")
    return addresses


class PacedStream(httpcore.NetworkStream):
    """A stream that gives an answer up whose bytes drip in: each comes before any time-out, the whole never ends."""

    def __init__(self, inner: httpcore.NetworkStream, slow_seconds: float) -> None:
        self._inner, self._slow_seconds = inner, slow_seconds
        self._seconds, self._bytes, self._waited = 0.0, 0, 0.0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes. Raises CatalogueError when the last ones came too slowly, or the whole answer does."""
        # The time in which this process was stopped itself says nothing about the server.
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
                    f"at least {LEAST_RATE:g} a second are waited for",
                    hint="fetch the file by hand and name it",
                )
            self._seconds, self._bytes = 0.0, 0
        return block

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send; what comes from here on is another answer."""
        self._inner.write(buffer, timeout)
        self._seconds, self._bytes, self._waited = 0.0, 0, 0.0

    def close(self) -> None:
        """Close the stream below."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """The encrypted stream, paced as well."""
        inner = self._inner.start_tls(ssl_context, server_hostname, timeout)
        return PacedStream(inner, self._slow_seconds)

    def get_extra_info(self, info: str) -> Any:
        """Facts about the connection."""
        return self._inner.get_extra_info(info)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedBackend(httpcore.NetworkBackend):
    """Opens sockets to public addresses only; TLS above it still verifies the host's name."""

    allowed_hosts: frozenset[str]
    """Host names or addresses that need no check."""
    sockets: httpcore.NetworkBackend = field(default_factory=httpcore.SyncBackend)
    """The backend that opens what passed the check."""
    lookup: Lookup = look_up
    """The name server, asked once per connection."""
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
        """A paced stream to the address that was checked, so that no second look-up can change it."""
        options = timeout, local_address, socket_options
        if host in self.allowed_hosts:
            return self._paced(host, port, *options)
        if port not in WEB_PORTS:
            raise CatalogueError(f"refused port: {host}:{port}", hint="only ports 80 and 443 are reached")
        addresses = resolve(host, port, self.lookup)
        for address in addresses[:-1]:
            # A host with IPv6 addresses is not lost to a machine without IPv6.
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return self._paced(address, port, *options)
        return self._paced(addresses[-1], port, *options)

    def _paced(self, host: str, port: int, *options: Any) -> PacedStream:
        return PacedStream(self.sockets.connect_tcp(host, port, *options), self.slow_seconds)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates, read once: it takes longer than a request on loopback."""
    return httpx.create_ssl_context(trust_env=False)


class GuardedTransport(httpx.HTTPTransport):
    """httpx's own transport over a connection pool whose sockets are guarded."""

    def __init__(self, config: WebConfig) -> None:
        super().__init__(verify=_tls(), trust_env=False)
        # httpx has no parameter for what opens its sockets.
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls(),
            max_connections=MAX_CONNECTIONS,
            network_backend=GuardedBackend(allowed_hosts=config.allowed_hosts, slow_seconds=config.slow_seconds),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. The body of a redirect is not read: only its target is wanted.

        Raises CatalogueError for addresses that must not be reached and for schemes other than http and https.
        """
        if request.url.scheme not in ("http", "https") or not request.url.host:
            raise CatalogueError(f"refused address: {request.url}", hint="only http and https addresses are reached")
        response = super().handle_request(request)
        if not response.has_redirect_location:
            return response
        response.close()
        return httpx.Response(response.status_code, headers={"location": response.headers["location"]})


def _check_redirect(response: httpx.Response) -> None:
    """Raises CatalogueError for a redirect that leads off the web, or from https to http."""
    if not response.has_redirect_location:
        return
    here, location = str(response.request.url), response.headers["location"]
    target = absolute(here, location)
    if not target or (here.startswith("https:") and target.startswith("http:")):
        raise CatalogueError(
            f"refused redirect from {here.partition(':')[0]} to {scheme_of(here, location) or 'nowhere'}",
            hint="ask for the address that it should lead to",
        )


def body_of(response: httpx.Response, most: int) -> bytes:
    """The body as it comes, read until it is longer than `most` bytes."""
    body = bytearray()
    for block in response.iter_raw():
        body += block
        if len(body) > most:
            break
    return bytes(body)


def client_of(transport: httpx.BaseTransport, config: WebConfig) -> httpx.Client:
    """A client that follows few redirects, uses no proxy of the environment and asks for raw bytes."""
    return httpx.Client(
        transport=transport,
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        event_hooks={"response": [_check_redirect]},
        trust_env=False,
        timeout=httpx.Timeout(config.stall_seconds, connect=config.connect_seconds),
        # A compressed transfer can hide a thousandfold larger body from a cap on received bytes.
        headers={"User-Agent": config.user_agent, "Accept-Encoding": "identity"},
    )
