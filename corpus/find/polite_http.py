"""Polite HTTP: robots.txt (RFC 9309), one request at a time per host, pauses, retries.

All of it sits in one httpx transport, so catalogues and downloads cannot forget it.
"""

import contextlib
import email.utils
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock

import httpx
import tenacity
from protego import Protego

from corpus.find.guard import MAX_WAIT_SECONDS, GuardedTransport, WebConfig, body_of, client_of
from infuser_core.errors import CatalogueError

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
ROBOTS_ATTEMPTS = 3
"""Least number of requests for a robots.txt: without it nothing of its host can be had."""
ROBOTS_BYTES = 500 << 10
"""Largest part of a robots.txt that is read (RFC 9309, section 2.5), bytes."""
PRODUCT = "infuser-corpus"
"""Product token that robots.txt groups may name."""
HOST_DELAYS = {"arxiv.org": 3.0}
"""Domains with a longer pause, seconds, their sub-domains counted as one host: arXiv asks for 3 s across them."""
MAX_CRAWL_DELAY = 60.0
"""Longest Crawl-delay that is obeyed, seconds."""
VERSIONED_AGENT = re.compile(r"^(\s*user-agent\s*:\s*[a-z_-]+)/\S*", re.IGNORECASE | re.MULTILINE)
"""A group that names a version with its product: it is meant for the product."""


class Busy(Exception):
    """A busy server's answer, open until it is asked again, and the seconds that it asked to wait."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response
        self.wait = retry_after(response.headers.get("retry-after", ""), time.time())


def retrying(config: WebConfig) -> tenacity.Retrying:
    """Calls again what met a busy server or lost its connection; the last failure is raised.

    Waits are random up to a bound that doubles (clients that failed together must not come back together), and never
    shorter than the server asked for.
    """
    jitter = tenacity.wait_random_exponential(multiplier=config.backoff_seconds, max=MAX_WAIT_SECONDS)
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Busy, httpx.TransportError)),
        wait=lambda state: max(_asked_wait(state), jitter(state)),
        stop=lambda state: state.attempt_number >= config.attempts or _asked_wait(state) > MAX_WAIT_SECONDS,
        sleep=config.clock.sleep,
        before_sleep=_let_go,
        reraise=True,
    )


def _asked_wait(state: tenacity.RetryCallState) -> float:
    assert state.outcome is not None
    failure = state.outcome.exception()
    return failure.wait if isinstance(failure, Busy) else 0.0


def retry_after(value: str, now: float) -> float:
    """Seconds that a Retry-After header asks for, as a number or as a date; 0 when it says nothing readable."""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0


class Gate:
    """Lets one request at a time through to a host, with a pause after each."""

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._lock = Lock()
        self._busy: dict[str, Lock] = {}
        self._free_at: dict[str, float] = {}
        self.asked_delay: dict[str, float] = {}
        """Crawl-delays of hosts, obeyed where they are longer than our own pause."""

    def enter(self, host: str) -> Callable[[], None]:
        """Wait for the host's turn; the returned function ends it and is harmless to call twice."""
        # Hosts of one site share a turn.
        key = next((name for name in HOST_DELAYS if f".{host}".endswith(f".{name}")), host)
        with self._lock:
            turn = self._busy.setdefault(key, Lock())
        turn.acquire()
        pause = self._free_at.get(key, 0.0) - self._config.clock.now()
        if pause > 0:
            self._config.clock.sleep(pause)
        stack = contextlib.ExitStack()
        stack.callback(self._leave, host, key, turn)
        return stack.close

    def _leave(self, host: str, key: str, turn: Lock) -> None:
        config = self._config
        delay = max(config.delay_seconds, self.asked_delay.get(host, 0.0), HOST_DELAYS.get(key, 0.0))
        self._free_at[key] = config.clock.now() + (0.0 if host in config.allowed_hosts else delay)
        turn.release()


class _Body(httpx.SyncByteStream):
    """A body that ends its host's turn when it is closed."""

    def __init__(self, response: httpx.Response, leave: Callable[[], None]) -> None:
        self._response, self._leave = response, leave

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, httpx.SyncByteStream)
        yield from self._response.stream

    def close(self) -> None:
        try:
            self._response.close()
        finally:
            self._leave()


class PoliteTransport(httpx.BaseTransport):
    """httpx transport that obeys robots.txt, pauses and retries, and leaves the sending to another one."""

    def __init__(self, inner: httpx.BaseTransport, config: WebConfig) -> None:
        self._inner, self._config = inner, config
        self._gate = Gate(config)
        self._robots: dict[str, Protego] = {}
        self._lock = Lock()
        self._reading: dict[str, Lock] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request in its turn. Raises CatalogueError when robots.txt forbids it or cannot be read."""
        if not str(request.url).startswith(self._config.robots_exempt or ("\0",)):
            self._obey(request)
        return self._patiently(request, self._config)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()

    def _patiently(self, request: httpx.Request, config: WebConfig) -> httpx.Response:
        """The answer; that of a server which stays busy is its last one."""
        try:
            return retrying(config)(self._send, request)
        except Busy as busy:
            return busy.response

    def _send(self, request: httpx.Request) -> httpx.Response:
        """The answer, whose closing ends the host's turn. Raises Busy with that of a busy server."""
        leave = self._gate.enter(request.url.host)
        with contextlib.ExitStack() as stack:
            # A refused address or an interrupt must not leave the turn taken.
            stack.callback(leave)
            inner = self._inner.handle_request(request)
            stack.pop_all()
        response = httpx.Response(
            inner.status_code, headers=inner.headers, stream=_Body(inner, leave), extensions=inner.extensions
        )
        if response.status_code in BUSY:
            raise Busy(response)
        return response

    def _obey(self, request: httpx.Request) -> None:
        origin = str(request.url.copy_with(raw_path=b"/"))
        with self._lock:
            reading = self._reading.setdefault(origin, Lock())
        with reading:
            if origin not in self._robots:
                self._robots[origin] = self._read_robots(request, origin)
        rules = self._robots[origin]
        self._gate.asked_delay[request.url.host] = min(MAX_CRAWL_DELAY, rules.crawl_delay(PRODUCT) or 0.0)
        if not rules.can_fetch(str(request.url), PRODUCT):
            raise CatalogueError(
                f"robots.txt of {request.url.host} forbids {request.url.raw_path.decode('ascii')}",
                hint="drop the catalogue, or name the address in corpus.catalogue.robots_exempt if its owner allows it",
            )

    def _read_robots(self, request: httpx.Request, origin: str) -> Protego:
        """RFC 9309, section 2.3.1: none means everything is allowed, an unreachable one that nothing is."""
        address = httpx.URL(origin).copy_with(raw_path=b"/robots.txt")
        asked = httpx.Request("GET", address, headers=request.headers, extensions=request.extensions)
        asked.headers.pop("range", None)
        asked.headers.pop("if-range", None)
        config = replace(self._config, attempts=max(self._config.attempts, ROBOTS_ATTEMPTS))
        try:
            response = self._patiently(asked, config)
        except httpx.TransportError as error:
            raise CatalogueError(
                f"robots.txt of {request.url.host} cannot be read: {error}", hint="try again when the host answers"
            ) from error
        with contextlib.closing(response):
            if response.status_code >= 500:
                return Protego.parse("User-agent: *\nDisallow: /")
            return robots_of(body_of(response, ROBOTS_BYTES)[:ROBOTS_BYTES] if response.status_code == 200 else b"")


def robots_of(content: bytes) -> Protego:
    """The rules of a robots.txt."""
    return Protego.parse(VERSIONED_AGENT.sub(r"\1", content.decode("utf-8-sig", errors="replace")))


def _let_go(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None
    busy = state.outcome.exception()
    if isinstance(busy, Busy):
        busy.response.close()


def polite_client(config: WebConfig) -> httpx.Client:
    """A client whose sockets are guarded and whose requests are polite."""
    return client_of(PoliteTransport(GuardedTransport(config), config), config)
