"""The client that reaches the outside: addresses are checked where the socket is opened.

A check of the URL alone is not enough: a redirect or a second answer of the name server would pass it.
"""

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import httpcore
import httpx

from infuser_core.errors import CatalogueError

WEB_PORTS = frozenset({80, 443})
# Ranges that lead to private hosts although `is_global` calls them global: NAT64, 6to4, Teredo.
TUNNELS = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """Who may be reached, and how patiently."""

    allowed_hosts: frozenset[str] = frozenset()
    """Host names or addresses reached without the address check and on any port: a local catalogue, a test."""
    user_agent: str = "infuser-corpus/0.1"
    """User-Agent header; add a contact address before a large run."""
    connect_seconds: float = 10.0
    """Limit for opening a connection, seconds."""
    stall_seconds: float = 30.0
    """Limit for a pause between two reads, seconds."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet and to one host."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    tunnelled = any(ip.version == net.version and ip in net for net in TUNNELS)
    return ip.is_global and not ip.is_multicast and not tunnelled


def resolve(host: str, port: int) -> str:
    """The address to connect to. Raises CatalogueError unless every answer of the name server is public."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(f"{host}: {error}") from error
    addresses = [str(answer[4][0]) for answer in answers]
    for address in addresses:
        if not is_public(address):
            raise CatalogueError(
                f"refused address: {host} is {address}, which is not public",
                hint="name the host in allowed_hosts if it is meant to be reached",
            )
    return addresses[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedBackend(httpcore.NetworkBackend):
    """Opens sockets to public addresses only; TLS above it still verifies the host's name."""

    allowed_hosts: frozenset[str]
    """See GuardConfig."""
    sockets: httpcore.NetworkBackend = field(default_factory=httpcore.SyncBackend)
    """The backend that opens what passed the check."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A stream to the address that was checked, so that no second look-up can change it."""
        address = host
        if host not in self.allowed_hosts:
            if port not in WEB_PORTS:
                raise CatalogueError(f"refused port: {host}:{port}", hint="only ports 80 and 443 are reached")
            address = resolve(host, port)
        return self.sockets.connect_tcp(address, port, timeout, local_address, socket_options)


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self.response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self.response.iter_stream()
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise httpx.TransportError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self.response.close()


class GuardedTransport(httpx.BaseTransport):
    """httpx over a connection pool whose sockets are guarded."""

    def __init__(self, config: GuardConfig) -> None:
        self.pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=4,
            network_backend=GuardedBackend(allowed_hosts=config.allowed_hosts),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; failures of the network become httpx.TransportError."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        outgoing = httpcore.Request(
            method=request.method,
            url=url,
            headers=request.headers.raw,
            content=request.read(),
            extensions=request.extensions,
        )
        try:
            answer = self.pool.handle_request(outgoing)
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise httpx.TransportError(f"{type(error).__name__}: {error}", request=request) from error
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        """Close every connection."""
        self.pool.close()


def client(config: GuardConfig) -> httpx.Client:
    """A client that follows no redirect by itself, uses no proxy of the environment and asks for raw bytes."""
    return httpx.Client(
        transport=GuardedTransport(config),
        follow_redirects=False,
        trust_env=False,
        timeout=httpx.Timeout(config.stall_seconds, connect=config.connect_seconds),
        # A compressed transfer can hide a thousandfold larger body from a cap on received bytes.
        headers={"User-Agent": config.user_agent, "Accept-Encoding": "identity"},
    )
