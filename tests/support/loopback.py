"""A web server on loopback whose answers a test writes down, path by path."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import places

from corpus.find.ssrf_guard import GuardedTransport, client_of
from corpus.find.web_config import Clock, WebConfig

GUARD = WebConfig(
    allowed_hosts=frozenset({"127.0.0.1"}), stall_seconds=5, connect_seconds=5, attempts=1, backoff_seconds=0.01
)
DATA = places.DATA / "catalogues"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """What the server answers."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Content-Length to claim; the body's own when None, none at all when negative."""
    drop: bool = False
    """Whether the connection is closed without a word."""
    wait: threading.Event | None = None
    """Set by the test when the answer may go out."""
    hold: threading.Event | None = None
    """Set by the test when the connection may close after the body."""


def recorded(name: str, **headers: str) -> Say:
    """The answer in a file of tests/data/catalogues."""
    return Say(
        body=(DATA / name).read_bytes(), headers={key.replace("_", "-"): value for key, value in headers.items()}
    )


class Loopback:
    """The server. `routes` maps a path to an answer or to what makes one from the request and its number."""

    def __init__(self) -> None:
        self.routes: dict[str, Say | Callable[[Seen, int], Say]] = {}
        self.seen: list[Seen] = []
        self.ahead = self.most_at_once = 0
        self._lock = threading.Lock()
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                loopback._answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A client that refuses a body closes the connection: no traceback of the server for that.
        self.server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def paths(self) -> list[str]:
        """What was asked for, robots.txt left out."""
        return [seen.path for seen in self.seen if seen.path != "/robots.txt"]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        seen = Seen(path=unquote(parts.path), query=dict(parse_qsl(parts.query)), headers=dict(handler.headers))
        with self._lock:
            self.seen.append(seen)
            self.ahead += 1
            self.most_at_once = max(self.most_at_once, self.ahead)
            number = sum(other.path == seen.path for other in self.seen)
        over = False
        try:
            route = self.routes.get(seen.path, Say(status=404))
            say = route if isinstance(route, Say) else route(seen, number)
            if say.wait:
                say.wait.wait(5)
            if say.drop:
                handler.close_connection = True
                return
            handler.send_response(say.status)
            length = len(say.body) if say.length is None else say.length
            for name, value in say.headers.items():
                handler.send_header(name, value)
            if length >= 0:
                handler.send_header("Content-Length", str(length))
            # With the last byte, of the head where there is no body, the client asks again before this thread goes on.
            over = not (say.body or say.hold) and self._leave()
            handler.end_headers()
            handler.wfile.write(say.body[:-1])
            over = over or (not say.hold and self._leave())
            handler.wfile.write(say.body[-1:])
            if say.hold:
                say.hold.wait(10)
        finally:
            over = over or self._leave()

    def _leave(self) -> bool:
        with self._lock:
            self.ahead -= 1
        return True


@contextmanager
def serving() -> Iterator[Loopback]:
    """A server for the length of a test."""
    loopback = Loopback()
    try:
        yield loopback
    finally:
        loopback.server.shutdown()
        loopback.server.server_close()


def guarded(config: WebConfig = GUARD) -> httpx.Client:
    """A client with guarded sockets alone: no robots.txt, no pauses."""
    return client_of(GuardedTransport(config), config)


class SteppedClock:
    """Time that passes by sleeping alone; remembers every sleep."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def clock(self) -> Clock:
        """The clock to hand over."""
        return Clock(now=lambda: self.time, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
