"""Polite HTTP: robots.txt (RFC 9309), one request at a time per host, pauses, retries.

The standard library's parser takes the first match and knows no wildcard, so it would miss `Disallow: /*/wp-json/`.
"""

import contextlib
import email.utils
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from urllib.parse import quote, unquote

import httpx

from corpus.find.guard import GuardConfig, GuardedTransport, client_of
from infuser_core.errors import CatalogueError

MAX_BYTES = 500 << 10
"""What is read of a robots.txt (RFC 9309, section 2.5), bytes."""
MAX_DELAY = 60.0
"""Longest Crawl-delay that is obeyed, seconds."""
_LINE = re.compile(r"^\s*([A-Za-z-]+)\s*:\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    """Whether the line allows."""
    pattern: str
    """Path pattern, percent-encoding normalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Robots:
    """What one host asks of this program."""

    rules: tuple[Rule, ...]
    """Rules of the groups that apply."""
    delay: float
    """Crawl-delay, seconds; 0 when none is asked for."""

    def allows(self, target: str) -> bool:
        """Whether `target` (path and query) may be fetched: the longest matching pattern decides, Allow on a tie."""
        if target == "/robots.txt":
            return True
        path = _normal(target or "/")
        matching = [(len(rule.pattern), rule.allow) for rule in self.rules if _matches(rule.pattern, path)]
        return max(matching)[1] if matching else True


EVERYTHING = Robots(rules=(), delay=0.0)
NOTHING = Robots(rules=(Rule(allow=False, pattern="/"),), delay=0.0)


def parse(text: str, product: str) -> Robots:
    """The rules for `product` (compared without case), or those for `*` where no group names it."""
    groups = list(_groups(text.splitlines()))
    own = [group for group in groups if product.lower() in group[0]]
    chosen = own or [group for group in groups if "*" in group[0]]
    rules = tuple(rule for _, found, _ in chosen for rule in found)
    return Robots(rules=rules, delay=max((delay for *_, delay in chosen), default=0.0))


def _groups(lines: Iterable[str]) -> Iterable[tuple[set[str], list[Rule], float]]:
    names: set[str] = set()
    rules: list[Rule] = []
    delay, begun = 0.0, False
    for line in lines:
        found = _LINE.match(line.partition("#")[0].removeprefix("\ufeff"))
        if not found:
            continue
        key, value = found[1].lower(), found[2]
        if key == "user-agent":
            if begun:
                yield names, rules, delay
                names, rules, delay, begun = set(), [], 0.0, False
            names.add(_token(value))
        elif key in ("allow", "disallow") and names:
            begun = True
            # An empty Disallow forbids nothing.
            rules += [Rule(allow=key == "allow", pattern=_normal(value))] if value else []
        elif key == "crawl-delay" and names:
            begun = True
            delay = min(MAX_DELAY, float(value)) if re.fullmatch(r"\d+(\.\d+)?", value) else delay
    if names:
        yield names, rules, delay


def _token(value: str) -> str:
    return "*" if value == "*" else re.match(r"[A-Za-z_-]*", value)[0].lower()  # type: ignore[index]


def _normal(path: str) -> str:
    """One spelling of percent-encoded characters."""
    return quote(unquote(path), safe="/*$?=&:@!'()+,;~-._")


def _matches(pattern: str, path: str) -> bool:
    """Glob match piece by piece: no backtracking, so no pattern can make it slow."""
    anchored = pattern.endswith("$")
    pieces = pattern.removesuffix("$").split("*")
    if not path.startswith(pieces[0]):
        return False
    place = len(pieces[0])
    for piece in pieces[1:-1] if anchored else pieces[1:]:
        found = path.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    if not anchored:
        return True
    if len(pieces) == 1:
        return place == len(path)
    return len(path) - len(pieces[-1]) >= place and path.endswith(pieces[-1])


BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
ROBOTS_ATTEMPTS = 3
"""Least number of requests for a robots.txt: without it nothing of its host can be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and waiting; a test passes its own."""

    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    sleep: Callable[[float], None] = time.sleep
    """Waits that many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
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
    attempts: int = 3
    """Requests made before a busy server or a broken connection is given up."""
    backoff_seconds: float = 2.0
    """Upper end of the first random wait; doubles with every attempt, seconds."""
    max_wait_seconds: float = 120.0
    """Longest wait; a server whose Retry-After asks for more is given up, seconds."""


class Gate:
    """Lets one request at a time through to a host, with a pause after each."""

    def __init__(self, manners: Manners, clock: Clock) -> None:
        self._manners, self._clock = manners, clock
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
        return _Once(lambda: self._leave(host, key, turn))

    def slow_down(self, host: str, delay: float) -> None:
        """Obey a Crawl-delay that is longer than our own pause."""
        self._asked_delay[host] = delay

    def _leave(self, host: str, key: str, turn: Lock) -> None:
        self._free_at[key] = self._clock.now() + self._delay(host)
        turn.release()

    def _key(self, host: str) -> str:
        return next((name for name, _ in self._manners.host_delays if _within(host, name)), host)

    def _delay(self, host: str) -> float:
        if host in self._manners.without_delay:
            return 0.0
        longer = [delay for name, delay in self._manners.host_delays if _within(host, name)]
        return max([self._manners.delay_seconds, self._asked_delay.get(host, 0.0), *longer])


def _within(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


class _Once:
    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action:
            action()


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
    """httpx transport that keeps its manners and leaves the sending to another one."""

    def __init__(self, inner: httpx.BaseTransport, manners: Manners, clock: Clock | None = None) -> None:
        self._inner, self._manners, self._clock = inner, manners, clock or Clock()
        self._gate = Gate(manners, self._clock)
        self._robots: dict[str, Robots] = {}
        self._lock = Lock()
        self._reading: dict[str, Lock] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request in its turn. Raises CatalogueError when robots.txt forbids it or cannot be read."""
        if not str(request.url).startswith(tuple(self._manners.robots_exempt) or ("\0",)):
            self._obey(request)
        return self._patiently(request, self._manners.attempts)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()

    def _patiently(self, request: httpx.Request, attempts: int) -> httpx.Response:
        manners = self._manners
        for attempt in range(1, attempts + 1):
            last = attempt == attempts
            wait = 0.0
            try:
                response = self._send(request)
            except httpx.TransportError:
                if last:
                    raise
            else:
                wait = retry_after(response.headers.get("retry-after", ""), time.time())
                if response.status_code not in BUSY or last or wait > manners.max_wait_seconds:
                    return response
                response.close()
            self._clock.sleep(max(wait, backoff(attempt, manners.backoff_seconds, manners.max_wait_seconds)))
        raise AssertionError("manners.attempts is at least 1")

    def _send(self, request: httpx.Request) -> httpx.Response:
        """The answer, whose closing ends the host's turn."""
        leave = self._gate.enter(request.url.host)
        with contextlib.ExitStack() as stack:
            # A refused address or an interrupt must not leave the turn taken.
            stack.callback(leave)
            response = self._inner.handle_request(request)
            stack.pop_all()
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(response, leave),
            extensions=response.extensions,
        )

    def _obey(self, request: httpx.Request) -> None:
        origin = str(request.url.copy_with(raw_path=b"/"))
        with self._lock:
            reading = self._reading.setdefault(origin, Lock())
        with reading:
            if origin not in self._robots:
                self._robots[origin] = self._read_robots(request, origin)
        rules = self._robots[origin]
        self._gate.slow_down(request.url.host, rules.delay)
        target = request.url.raw_path.decode("ascii")
        if not rules.allows(target):
            raise CatalogueError(
                f"robots.txt of {request.url.host} forbids {target}",
                hint="drop the catalogue, or name the address in corpus.catalogue.robots_exempt if its owner allows it",
            )

    def _read_robots(self, request: httpx.Request, origin: str) -> Robots:
        """RFC 9309, section 2.3.1: none means everything is allowed, an unreachable one that nothing is."""
        address = httpx.URL(origin).copy_with(raw_path=b"/robots.txt")
        asked = httpx.Request("GET", address, headers=request.headers, extensions=request.extensions)
        asked.headers.pop("range", None)
        asked.headers.pop("if-range", None)
        try:
            response = self._patiently(asked, max(self._manners.attempts, ROBOTS_ATTEMPTS))
        except httpx.TransportError as error:
            raise CatalogueError(
                f"robots.txt of {request.url.host} cannot be read: {error}", hint="try again when the host answers"
            ) from error
        try:
            if response.status_code >= 500:
                return NOTHING
            if response.status_code != 200:
                return EVERYTHING
            return parse(_head_of(response).decode("utf-8", errors="replace"), self._manners.product)
        finally:
            response.close()


def _head_of(response: httpx.Response) -> bytes:
    head = b""
    for block in response.iter_raw():
        head += block
        if len(head) >= MAX_BYTES:
            break
    return head[:MAX_BYTES]


def backoff(attempt: int, base: float, longest: float) -> float:
    """Full jitter, seconds: clients that failed together must not come back together."""
    return min(longest, random.uniform(0, base * 2 ** (attempt - 1)))


def retry_after(value: str, now: float) -> float:
    """Seconds that a Retry-After header asks for, as a number or as a date; 0 when it says nothing readable."""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0


def polite_client(guard: GuardConfig, manners: Manners, clock: Clock | None = None) -> httpx.Client:
    """A client whose sockets are guarded and whose requests keep their manners."""
    return client_of(PoliteTransport(GuardedTransport(guard), manners, clock), guard)
