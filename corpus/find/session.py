"""Session of a run with its catalogues: every answer is recorded, so that a search can be replayed without a network.

The recorder is an httpx transport, so every request of a catalogue passes through it.
"""

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from corpus.find.catalogue import Site, connect, require_addresses
from corpus.find.identifiers import parts_of
from corpus.find.polite_http import PoliteTransport
from corpus.find.ssrf_guard import GuardedTransport, body_of, client_of
from corpus.find.web_config import AGENT, WebConfig
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.errors import CatalogueError
from infuser_core.system import durable
from infuser_core.system.child import killed_error, run

MAX_BYTES = 64 << 20
"""Largest answer of a catalogue that is read, bytes."""
LOOPBACK = frozenset({"127.0.0.1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A recorded answer of a catalogue."""

    url: str
    """Address of the request, query included."""
    status_code: int
    headers: list[str]
    """The headers that catalogues read (RECORDED_HEADERS), each `name: value`."""
    body: str
    """The body: as text if it is UTF-8, else in base64."""
    encoding: str
    """utf-8 or base64."""
    sha256: str
    """Digest of the body's bytes."""
    asked_on: str
    """Time of the answer, ISO 8601, UTC."""

    def content(self) -> bytes:
        """The body as bytes."""
        return self.body.encode() if self.encoding == "utf-8" else base64.b64decode(self.body)


RECORDED_HEADERS = ("content-type", "location", "x-wp-total", "x-wp-totalpages")


class ResponseRecorder(httpx.BaseTransport):
    """httpx transport that records each answer, stores it in a folder, and replays stored answers.

    `client` sends its requests through the recorder, which sends them through `inner`; without `inner` it sends nothing
    and only stored answers are available. Answers in `folder` up to `max_age` old are reused, so that a catalogue that
    can only be read as a whole is read once, not for every topic. Answers with an error status are listed in `answers`
    but not stored. `search` is the command that answers a web search.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None,
        config: WebConfig,
        *,
        folder: Path | None = None,
        max_age: timedelta = timedelta.max,
        search: Sequence[str] = (),
    ) -> None:
        self._answers: dict[str, Answer] = {}
        self._inner, self._folder, self._max_age, self._search = inner, folder, max_age, search
        self.client = client_of(self, config)

    @property
    def answers(self) -> list[Answer]:
        """All answers so far, in the order of the requests, one per address."""
        return list(self._answers.values())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request from the folder or by sending it. Raises CatalogueError if the answer exceeds MAX_BYTES."""
        url = str(request.url)
        path = self._folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json" if self._folder else None
        answer = _read_answer(path) if path else None
        if answer is None or _age(answer) > self._max_age:
            answer = self._send(request)
            if path and answer.status_code < 400:
                durable.write(path, json.dumps(asdict(answer)))
        self._answers[url] = answer
        headers: Any = [line.split(": ", 1) for line in answer.headers]
        return httpx.Response(answer.status_code, headers=headers, content=answer.content(), request=request)

    def close(self) -> None:
        """Close the inner transport."""
        if self._inner:
            self._inner.close()

    def _send(self, request: httpx.Request) -> Answer:
        """Send a request and read the whole answer; if the body breaks off, send once more."""
        if self._inner is None:
            raise CatalogueError(
                f"replay: no recorded answer for {request.url}",
                hint="record the search again: topics, queries or catalogues have changed",
            )
        if request.url.scheme == "search":
            return _record(str(request.url), run_web_search(self._search, request.url.params.get("q", "")))
        for last in (False, True):
            response = self._inner.handle_request(request)
            try:
                return _record(str(request.url), response)
            except httpx.TransportError:
                if last:
                    raise
            finally:
                response.close()
        raise AssertionError("the second attempt returns or raises")


def _read_answer(path: Path) -> Answer | None:
    """Read a stored answer; None if the file is missing or damaged."""
    try:
        answer = Answer(**json.loads(path.read_text(encoding="utf-8")))
        return answer if hashlib.sha256(answer.content()).hexdigest() == answer.sha256 else None
    except (OSError, ValueError, TypeError):
        return None


def _age(answer: Answer) -> timedelta:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(answer.asked_on)
    except ValueError:
        return timedelta.max


def _record(url: str, response: httpx.Response) -> Answer:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        # A compressed body was not requested, and its decoded size has no limit.
        raise CatalogueError(f"catalogue {url}: answers in encoding {response.headers['content-encoding']}")
    content = body_of(response, MAX_BYTES)
    if len(content) > MAX_BYTES:
        raise CatalogueError(f"catalogue {url}: the answer is larger than {MAX_BYTES} bytes")
    try:
        text, encoding = content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(content).decode(), "base64"
    return Answer(
        url=url,
        status_code=response.status_code,
        headers=[f"{name}: {response.headers[name]}" for name in RECORDED_HEADERS if name in response.headers],
        body=text,
        encoding=encoding,
        sha256=hashlib.sha256(content).hexdigest(),
        asked_on=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def run_web_search(command: Sequence[str], query: str, *, wall_seconds: float = 60.0) -> httpx.Response:
    """Search the web with an external command, which reads the query on standard input and writes JSON.

    Its output is the answer to `search://web/?q=TEXT`, recorded and replayed like that of a catalogue. The command sees
    only the query, which was phrased from a (domain, subdomain) pair. Raises CatalogueError if there is no command, or
    if it fails or is too slow.
    """
    if not command:
        raise CatalogueError(
            "web search: no command", hint="set INFUSER_WEB_SEARCH to a command, or drop the catalogue web"
        )
    name = command[0]
    try:
        ended = run(command, wall_seconds=wall_seconds, stdin=query.encode(), answer_bytes=MAX_BYTES)
    except OSError as error:
        raise CatalogueError(
            f"web search: cannot start {name!r}: {error.strerror}", hint="correct the command"
        ) from error
    if ended.was_killed:
        raise killed_error(name, ended.status)
    if ended.fault or ended.status:
        problem = ended.fault or f"failed with status {ended.status}: {ended.tail}"
        raise CatalogueError(f"web search: {name!r} {problem}", hint="try the command by hand")
    return httpx.Response(200, stream=httpx.ByteStream(ended.out))


def live_recorder(
    config: WebConfig, folder: Path | None = None, *, max_age_days: float = 7.0, search: Sequence[str] = ()
) -> ResponseRecorder:
    """Make a recorder that sends requests and stores the answers in `folder`; without a folder, in memory only.

    A stored answer up to `max_age_days` old replaces a request. `search` is the command of a web search.
    """
    transport = PoliteTransport(GuardedTransport(config), config)
    return ResponseRecorder(transport, config, folder=folder, max_age=timedelta(days=max_age_days), search=search)


def replaying_recorder(folder: Path) -> ResponseRecorder:
    """Make a recorder that replays the answers in a folder, of any age, and sends no request."""
    return ResponseRecorder(None, WebConfig(), folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSession:
    """The configured catalogues, the recorder of their answers, and the limits for downloading their books."""

    catalogues: Sequence[Site]
    """Catalogues in the order of the settings."""
    recorder: ResponseRecorder
    download: WebConfig

    def address(self, download_url: str) -> str:
        """The address to fetch for a source; adds the host if the catalogue stores addresses without it."""
        for site in self.catalogues:
            if site.resolve is not None:
                return site.resolve(site, download_url)
        return download_url


@contextmanager
def open_catalogues(
    settings: CatalogueSettings, *, shelf: str = "", folder: Path | None = None, search: str = "", contact: str = ""
) -> Iterator[CatalogueSession]:
    """Open a session with the configured catalogues.

    `shelf` is the address of the micro-world's catalogue; `folder` stores answers for later runs, which the setting
    `answers: recorded` replays; `search` is the command of the catalogue `web`; `contact` is an address that is added
    to the User-Agent.
    """
    entries = [(entry.name, entry.base) for entry in settings.catalogues]
    require_addresses(settings)
    if settings.type != "catalogues":
        entries = [("local", shelf if settings.type == "nano" else settings.url)]
    # Hosts in the settings are the only ones that may have private addresses.
    hosts = {host for _, base in entries if (host := parts_of(base).hostname)}
    loopback = LOOPBACK if settings.type != "catalogues" else frozenset()
    config = WebConfig(
        allowed_hosts=loopback | hosts,
        user_agent=f"{AGENT} (+{contact})" if contact else AGENT,
        delay_seconds=settings.host_delay_seconds,
        robots_exempt=tuple(settings.robots_exempt),
    )
    # Answers of a loopback server are not stored: its content depends on the run, and its port may be reused.
    record_folder = folder if settings.type == "catalogues" else None
    if settings.type == "catalogues" and settings.answers == "recorded":
        recorder = replaying_recorder(folder or Path())
    else:
        recorder = live_recorder(config, record_folder, max_age_days=settings.answer_days, search=shlex.split(search))
    with recorder.client as client:
        catalogues = [connect(name, base=base, client=client) for name, base in entries]
        resolvable = {host for site in catalogues if site.resolve and (host := parts_of(site.base).hostname)}
        download = replace(config, allowed_hosts=loopback | resolvable)
        yield CatalogueSession(catalogues=catalogues, recorder=recorder, download=download)
