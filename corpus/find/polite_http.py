"""Polite HTTP: obey robots.txt (RFC 9309), send one request at a time to a host, pause between requests, and retry.

One httpx transport does all of this, so that catalogues and downloads cannot bypass it.
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

from corpus.find.ssrf_guard import GuardedTransport, body_of, client_of
from corpus.find.web_config import MAX_WAIT_SECONDS, WebConfig
from infuser_core.errors import CatalogueError

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
ROBOTS_ATTEMPTS = 3
"""Least number of attempts to read a robots.txt: while it is unreachable, nothing is fetched from the host."""
ROBOTS_BYTES = 500 << 10
"""Largest part of a robots.txt that is read (RFC 9309, section 2.5), bytes."""
PRODUCT = "infuser-corpus"
"""Product token that robots.txt groups may name."""
HOST_DELAYS = {"arxiv.org": 3.0}
"""Pauses by domain, seconds. All sub-domains of such a domain count as one host: arXiv requires 3 s across them."""
MAX_CRAWL_DELAY = 60.0
"""Longest Crawl-delay that is obeyed, seconds."""
VERSIONED_AGENT = re.compile(r"^(\s*user-agent\s*:\s*[a-z_-]+)/\S*", re.IGNORECASE | re.MULTILINE)
"""User-agent line of a robots.txt that names a product with a version; the version is ignored."""


class Busy(Exception):
    """A busy server answered: the response, which stays open until the retry, and the seconds of its Retry-After."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response
        self.wait = retry_after(response.headers.get("retry-after", ""), time.time())


def retrying(config: WebConfig) -> tenacity.Retrying:
    """Retry policy for busy servers and lost connections; the last failure is raised.

    Each wait is random, up to a bound that doubles, so that clients that failed together do not retry together; it is
    at least the server's Retry-After.
    """
    jitter = tenacity.wait_random_exponential(multiplier=config.backoff_seconds, max=MAX_WAIT_SECONDS)
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Busy, httpx.TransportError)),
        wait=lambda state: max(_required_wait(state), jitter(state)),
        stop=lambda state: state.attempt_number >= config.attempts or _required_wait(state) > MAX_WAIT_SECONDS,
        sleep=config.clock.sleep,
        before_sleep=_close_response,
        reraise=True,
    )


def _required_wait(state: tenacity.RetryCallState) -> float:
    assert state.outcome is not None
    failure = state.outcome.exception()
    return failure.wait if isinstance(failure, Busy) else 0.0


def retry_after(value: str, now: float) -> float:
    """Seconds to wait according to a Retry-After header (a number or a date); 0 if it cannot be read."""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0


class Gate:
    """Sends the requests to each host one at a time, with a pause after each."""

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._lock = Lock()
        self._busy: dict[str, Lock] = {}
        self._free_at: dict[str, float] = {}
        self.crawl_delay: dict[str, float] = {}
        """Crawl-delays of hosts, seconds, obeyed if they are longer than our pause."""

    def enter(self, host: str) -> Callable[[], None]:
        """Wait until a request to the host may start. The returned function ends its turn; calling it again is safe."""
        # All hosts of a domain in HOST_DELAYS take turns together.
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
        delay = max(config.delay_seconds, self.crawl_delay.get(host, 0.0), HOST_DELAYS.get(key, 0.0))
        self._free_at[key] = config.clock.now() + (0.0 if host in config.allowed_hosts else delay)
        turn.release()


class _Body(httpx.SyncByteStream):
    """A response body; closing it lets the next request to the host start."""

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
    """httpx transport that obeys robots.txt, pauses between requests and retries; `inner` sends the requests."""

    def __init__(self, inner: httpx.BaseTransport, config: WebConfig) -> None:
        self._inner, self._config = inner, config
        self._gate = Gate(config)
        self._robots: dict[str, Protego] = {}
        self._lock = Lock()
        self._reading: dict[str, Lock] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request when its host is free. Raises CatalogueError if robots.txt forbids it or cannot be read."""
        if not str(request.url).startswith(self._config.robots_exempt or ("\0",)):
            self._obey(request)
        return self._send_with_retries(request, self._config)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def _send_with_retries(self, request: httpx.Request, config: WebConfig) -> httpx.Response:
        """Send, and retry a busy server; if it stays busy, return its last answer."""
        try:
            return retrying(config)(self._send, request)
        except Busy as busy:
            return busy.response

    def _send(self, request: httpx.Request) -> httpx.Response:
        """Send once; closing the answer lets the next request start. Raises Busy with the answer of a busy server."""
        leave = self._gate.enter(request.url.host)
        with contextlib.ExitStack() as stack:
            # After an error or an interrupt the next request must be able to start.
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
        self._gate.crawl_delay[request.url.host] = min(MAX_CRAWL_DELAY, rules.crawl_delay(PRODUCT) or 0.0)
        if not rules.can_fetch(str(request.url), PRODUCT):
            raise CatalogueError(
                f"robots.txt of {request.url.host} forbids {request.url.raw_path.decode('ascii')}",
                hint="drop the catalogue, or name the address in corpus.catalogue.robots_exempt if its owner allows it",
            )

    def _read_robots(self, request: httpx.Request, origin: str) -> Protego:
        """Read the robots.txt of a host.

        Without one everything is allowed; if it is unreachable, nothing is (RFC 9309, section 2.3.1).
        """
        address = httpx.URL(origin).copy_with(raw_path=b"/robots.txt")
        robots = httpx.Request("GET", address, headers=request.headers, extensions=request.extensions)
        robots.headers.pop("range", None)
        robots.headers.pop("if-range", None)
        config = replace(self._config, attempts=max(self._config.attempts, ROBOTS_ATTEMPTS))
        try:
            response = self._send_with_retries(robots, config)
        except httpx.TransportError as error:
            raise CatalogueError(
                f"robots.txt of {request.url.host} cannot be read: {error}", hint="try again when the host answers"
            ) from error
        with contextlib.closing(response):
            if response.status_code >= 500:
                return Protego.parse("User-agent: *\nDisallow: /")
            return parse_robots(body_of(response, ROBOTS_BYTES)[:ROBOTS_BYTES] if response.status_code == 200 else b"")


def parse_robots(content: bytes) -> Protego:
    """Parse the content of a robots.txt; versions of products in it are ignored."""
    return Protego.parse(VERSIONED_AGENT.sub(r"\1", content.decode("utf-8-sig", errors="replace")))


def _close_response(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None
    busy = state.outcome.exception()
    if isinstance(busy, Busy):
        busy.response.close()


def polite_client(config: WebConfig) -> httpx.Client:
    """HTTP client that obeys robots.txt, pauses between requests and refuses private addresses (see ssrf_guard)."""
    return client_of(PoliteTransport(GuardedTransport(config), config), config)
