"""Polite HTTP: robots.txt (RFC 9309), one request at a time per host, pauses, retries.

All of it sits in one httpx transport, so catalogues and downloads cannot forget it.
"""

import contextlib
import email.utils
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock

import httpx
import tenacity
from protego import Protego

from corpus.find.guard import GuardConfig, GuardedTransport, client_of
from infuser_core.errors import CatalogueError

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
ROBOTS_ATTEMPTS = 3
"""Least number of requests for a robots.txt: without it nothing of its host can be had."""
ROBOTS_BYTES = 500 << 10
"""Largest part of a robots.txt that is read (RFC 9309, section 2.5), bytes."""
MAX_CRAWL_DELAY = 60.0
"""Longest Crawl-delay that is obeyed, seconds."""
VERSIONED_AGENT = re.compile(r"^(\s*user-agent\s*:\s*[a-z_-]+)/\S*", re.IGNORECASE | re.MULTILINE)
"""A group that names a version with its product: it is meant for the product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and waiting; a test passes its own."""

    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    sleep: Callable[[float], None] = time.sleep
    """Waits that many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a busy server or a broken connection is tried again, and how long is waited in between."""

    attempts: int = 3
    """Requests made before the server is given up."""
    backoff_seconds: float = 2.0
    """Upper end of the first random wait; doubles with every attempt, seconds."""
    max_wait_seconds: float = 120.0
    """Longest wait; a server whose Retry-After asks for more is given up at once, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """Pauses and patience towards one host."""

    product: str = "infuser-corpus"
    """Product token that robots.txt groups may name."""
    delay_seconds: float = 1.0
    """Least time between the end of a request and the next one to the same host, seconds."""
    host_delays: tuple[tuple[str, float], ...] = (("arxiv.org", 3.0),)
    """Domains with a longer pause, their sub-domains counted as one host: arXiv asks for 3 s across its interfaces."""
    without_delay: frozenset[str] = frozenset()
    """Hosts that are asked without pause: a catalogue of one's own."""
    robots_exempt: tuple[str, ...] = ()
    """Address prefixes that are asked whatever robots.txt says, because their owner allowed it elsewhere."""
    patience: Patience = field(default_factory=Patience)
    """How often a busy host is asked again."""


class Again(Exception):
    """A failure that another attempt may cure: the HTTP status, and the seconds that the server asked to wait."""

    def __init__(self, reason: str, *, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.status, self.wait = status, wait


def retrying(patience: Patience, clock: Clock) -> tenacity.Retrying:
    """Calls again what raised Again or lost its connection; the last failure is raised.

    Waits are random up to a bound that doubles (clients that failed together must not come back together), and never
    shorter than the server asked for.
    """
    jitter = tenacity.wait_random_exponential(multiplier=patience.backoff_seconds, max=patience.max_wait_seconds)
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Again, httpx.TransportError)),
        wait=lambda state: max(_asked_wait(state), jitter(state)),
        stop=lambda state: state.attempt_number >= patience.attempts or _asked_wait(state) > patience.max_wait_seconds,
        sleep=clock.sleep,
        reraise=True,
    )


def _asked_wait(state: tenacity.RetryCallState) -> float:
    assert state.outcome is not None
    failure = state.outcome.exception()
    return failure.wait if isinstance(failure, Again) else 0.0


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

    def __init__(self, politeness: Politeness, clock: Clock) -> None:
        self._politeness, self._clock = politeness, clock
        self._lock = Lock()
        self._busy: dict[str, Lock] = {}
        self._free_at: dict[str, float] = {}
        self._asked_delay: dict[str, float] = {}

    def enter(self, host: str) -> Callable[[], None]:
        """Wait for the host's turn; the returned function ends it and is harmless to call twice."""
        key = self._key(host)
        with self._lock:
            turn = self._busy.setdefault(key, Lock())
        turn.acquire()
        pause = self._free_at.get(key, 0.0) - self._clock.now()
        if pause > 0:
            self._clock.sleep(pause)
        stack = contextlib.ExitStack()
        stack.callback(self._leave, host, key, turn)
        return stack.close

    def slow_down(self, host: str, delay: float) -> None:
        """Obey a Crawl-delay that is longer than our own pause."""
        self._asked_delay[host] = delay

    def _leave(self, host: str, key: str, turn: Lock) -> None:
        self._free_at[key] = self._clock.now() + self._delay(host)
        turn.release()

    def _key(self, host: str) -> str:
        return next((name for name, _ in self._politeness.host_delays if _within(host, name)), host)

    def _delay(self, host: str) -> float:
        if host in self._politeness.without_delay:
            return 0.0
        longer = [delay for name, delay in self._politeness.host_delays if _within(host, name)]
        return max([self._politeness.delay_seconds, self._asked_delay.get(host, 0.0), *longer])


def _within(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


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


class _Busy(Again):
    """A busy server's answer, open until it is asked again."""

    def __init__(self, response: httpx.Response) -> None:
        asked = response.headers.get("retry-after", "")
        super().__init__(f"HTTP {response.status_code}", wait=retry_after(asked, time.time()))
        self.response = response


class PoliteTransport(httpx.BaseTransport):
    """httpx transport that obeys robots.txt, pauses and retries, and leaves the sending to another one."""

    def __init__(self, inner: httpx.BaseTransport, politeness: Politeness, clock: Clock | None = None) -> None:
        self._inner, self._politeness, self._clock = inner, politeness, clock or Clock()
        self._gate = Gate(politeness, self._clock)
        self._robots: dict[str, Protego] = {}
        self._lock = Lock()
        self._reading: dict[str, Lock] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request in its turn. Raises CatalogueError when robots.txt forbids it or cannot be read."""
        if not str(request.url).startswith(tuple(self._politeness.robots_exempt) or ("\0",)):
            self._obey(request)
        return self._patiently(request, self._politeness.patience)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()

    def _patiently(self, request: httpx.Request, patience: Patience) -> httpx.Response:
        """The answer; that of a server which stays busy is its last one."""
        try:
            return retrying(patience, self._clock).copy(before_sleep=_let_go)(self._send, request)
        except _Busy as busy:
            return busy.response

    def _send(self, request: httpx.Request) -> httpx.Response:
        """The answer, whose closing ends the host's turn. Raises _Busy with that of a busy server."""
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
            raise _Busy(response)
        return response

    def _obey(self, request: httpx.Request) -> None:
        origin = str(request.url.copy_with(raw_path=b"/"))
        with self._lock:
            reading = self._reading.setdefault(origin, Lock())
        with reading:
            if origin not in self._robots:
                self._robots[origin] = self._read_robots(request, origin)
        rules, product = self._robots[origin], self._politeness.product
        self._gate.slow_down(request.url.host, min(MAX_CRAWL_DELAY, rules.crawl_delay(product) or 0.0))
        if not rules.can_fetch(str(request.url), product):
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
        patience = self._politeness.patience
        try:
            response = self._patiently(asked, replace(patience, attempts=max(patience.attempts, ROBOTS_ATTEMPTS)))
        except httpx.TransportError as error:
            raise CatalogueError(
                f"robots.txt of {request.url.host} cannot be read: {error}", hint="try again when the host answers"
            ) from error
        with contextlib.closing(response):
            if response.status_code >= 500:
                return Protego.parse("User-agent: *\nDisallow: /")
            return robots_of(_head_of(response) if response.status_code == 200 else b"")


def robots_of(content: bytes) -> Protego:
    """The rules of a robots.txt."""
    return Protego.parse(VERSIONED_AGENT.sub(r"\1", content.decode("utf-8-sig", errors="replace")))


def _let_go(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None
    busy = state.outcome.exception()
    if isinstance(busy, _Busy):
        busy.response.close()


def _head_of(response: httpx.Response) -> bytes:
    head = b""
    for block in response.iter_raw():
        head += block
        if len(head) >= ROBOTS_BYTES:
            break
    return head[:ROBOTS_BYTES]


def polite_client(guard: GuardConfig, politeness: Politeness, clock: Clock | None = None) -> httpx.Client:
    """A client whose sockets are guarded and whose requests are polite."""
    return client_of(PoliteTransport(GuardedTransport(guard), politeness, clock), guard)
