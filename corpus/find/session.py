"""Recorded HTTP sessions with catalogues: every answer is kept, so that a search can be replayed without a network.

The recorder is an httpx transport: whatever a catalogue asks goes through it.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

import httpx

from corpus.find.guard import GuardConfig, GuardedTransport, client_of
from corpus.find.polite_http import Clock, Politeness, PoliteTransport
from corpus.find.web_search import CommandSearch, SearchTransport
from infuser_core import durable
from infuser_core.errors import CatalogueError

MAX_BYTES = 64 << 20
"""Largest answer of a catalogue that is read, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, as it came."""

    url: str
    """Address that was asked, query included."""
    status_code: int
    """HTTP status."""
    headers: list[str]
    """The headers that a catalogue reads, each `name: value`."""
    body: str
    """The body: as text where it is UTF-8, else in base64."""
    encoding: str
    """utf-8 or base64."""
    sha256: str
    """Digest of the body's bytes."""
    asked_on: str
    """Moment of the answer, ISO 8601, UTC."""

    def content(self) -> bytes:
        """The body's bytes."""
        return self.body.encode() if self.encoding == "utf-8" else base64.b64decode(self.body)


KEPT_HEADERS = ("content-type", "location", "x-wp-total", "x-wp-totalpages")


class AnswerFolder:
    """Answers on disk, one JSON file per address, written whole or not at all; processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, url: str) -> Answer | None:
        """The answer that is kept for an address; None for none and for a damaged file."""
        try:
            values = json.loads(self._path(url).read_text(encoding="utf-8"))
            answer = Answer(**values)
        except (OSError, ValueError, TypeError):
            return None
        return answer if hashlib.sha256(answer.content()).hexdigest() == answer.sha256 else None

    def put(self, answer: Answer) -> None:
        """Keep an answer instead of an earlier one from the same address."""
        durable.write(self._path(answer.url), json.dumps(asdict(answer)))

    def _path(self, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


class Recorder(httpx.BaseTransport):
    """Sends requests through `inner` and keeps each answer; `answers` lists those of this recorder, in order.

    With a folder, an answer up to `max_age` old is taken from there: a catalogue that can only be read as a whole is
    then read once and not for every topic. Busy and failed answers are listed, but not kept for later.
    """

    def __init__(self, inner: httpx.BaseTransport, folder: Path | None, max_age: timedelta) -> None:
        self.answers: list[Answer] = []
        self._inner, self._max_age = inner, max_age
        self._folder = AnswerFolder(folder) if folder else None
        self._lock = Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, read whole. Raises CatalogueError when it is larger than MAX_BYTES."""
        url = str(request.url)
        kept = self._folder.get(url) if self._folder else None
        if kept is not None and _age(kept) <= self._max_age:
            return self._listed(kept, request)
        answer = self._asked(request)
        if self._folder and answer.status_code < 400:
            self._folder.put(answer)
        return self._listed(answer, request)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()

    def _asked(self, request: httpx.Request) -> Answer:
        """The answer, read to its end; a body that breaks off is asked for once more."""
        for last in (False, True):
            response = self._inner.handle_request(request)
            try:
                return _answer(str(request.url), response)
            except httpx.TransportError:
                if last:
                    raise
            finally:
                response.close()
        raise AssertionError("the second time returns or raises")

    def _listed(self, answer: Answer, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.answers.append(answer)
        return _response(answer, request)


class NoNetwork(httpx.BaseTransport):
    """Refuses every request: whatever is not on record is not to be had."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises CatalogueError for an address that was not asked when the record was made."""
        raise CatalogueError(
            f"replay: no recorded answer for {request.url}",
            hint="record the search again: topics, queries or catalogues have changed",
        )


def _age(answer: Answer) -> timedelta:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(answer.asked_on)
    except ValueError:
        return timedelta.max


def _answer(url: str, response: httpx.Response) -> Answer:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        # Never asked for; unpacked, it could be any size.
        raise CatalogueError(f"catalogue {url}: answers in encoding {response.headers['content-encoding']}")
    body = bytearray()
    for block in response.iter_raw():
        body += block
        if len(body) > MAX_BYTES:
            raise CatalogueError(f"catalogue {url}: the answer is larger than {MAX_BYTES} bytes")
    content = bytes(body)
    try:
        text, encoding = content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(content).decode(), "base64"
    return Answer(
        url=url,
        status_code=response.status_code,
        headers=[f"{name}: {response.headers[name]}" for name in KEPT_HEADERS if name in response.headers],
        body=text,
        encoding=encoding,
        sha256=hashlib.sha256(content).hexdigest(),
        asked_on=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _response(answer: Answer, request: httpx.Request) -> httpx.Response:
    headers = [tuple(line.split(": ", 1)) for line in answer.headers]
    return httpx.Response(answer.status_code, headers=headers, content=answer.content(), request=request)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How catalogues are asked."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    """Addresses that may be reached."""
    politeness: Politeness = field(default_factory=Politeness)
    """Pauses and patience towards one host."""
    folder: Path | None = None
    """Where answers are kept for later sessions; None keeps them for this one alone."""
    max_age_days: float = 7.0
    """Age up to which a kept answer is taken instead of asking again, days."""
    search: CommandSearch | None = None
    """Search command behind the catalogue `web`."""
    clock: Clock = field(default_factory=Clock)
    """Time and waiting."""


class Session:
    """A client and what it was answered."""

    def __init__(self, recorder: Recorder, guard: GuardConfig) -> None:
        self._recorder = recorder
        self.client: httpx.Client = client_of(recorder, guard)

    @property
    def answers(self) -> list[Answer]:
        """Every answer of this session, in order, one per address."""
        return list({answer.url: answer for answer in self._recorder.answers}.values())


@contextmanager
def live(config: SessionConfig) -> Iterator[Session]:
    """A session that asks the network. Hosts that are allowed by name are one's own and asked without pause."""
    own = config.politeness.without_delay | config.guard.allowed_hosts
    polite = PoliteTransport(
        GuardedTransport(config.guard), replace(config.politeness, without_delay=own), config.clock
    )
    search = SearchTransport(polite, config.search)
    session = Session(Recorder(search, config.folder, timedelta(days=config.max_age_days)), config.guard)
    with session.client:
        yield session


@contextmanager
def replayed(folder: Path) -> Iterator[Session]:
    """A session that lives on the answers that earlier ones kept in a folder, of any age, and never asks."""
    session = Session(Recorder(NoNetwork(), folder, timedelta.max), GuardConfig())
    with session.client:
        yield session
