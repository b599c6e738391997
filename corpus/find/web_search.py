"""Web search by an external command that reads a query and writes JSON.

Requests to `search://web/?q=TEXT` go to it, so that its answers are recorded and replayed like those of a catalogue.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from infuser_core.child import killed, run
from infuser_core.errors import CatalogueError

SCHEME = "search"
ADDRESS = f"{SCHEME}://web/"
MAX_BYTES = 4 << 20
EXPECTED = 'the command writes a JSON list of {"title", "url", "snippet"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResult:
    """One result of a web search."""

    title: str
    """Title of the page."""
    url: str
    """Address of the page or file."""
    snippet: str
    """Lines that the search engine shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSearch:
    """Web search by an external command: the query on standard input, JSON on standard output.

    It sees the query alone, which was phrased from a (domain, subdomain) pair.
    """

    command: Sequence[str]
    """Program and arguments; no shell is involved."""
    wall_seconds: float = 60.0
    """Time until the command's process group is killed, seconds."""

    def search(self, query: str) -> list[WebResult]:
        """Results of the search command. Raises CatalogueError when it fails, is too slow or writes something else."""
        name = self.command[0]
        try:
            ended = run(self.command, wall_seconds=self.wall_seconds, given=query.encode(), answer_bytes=MAX_BYTES)
        except OSError as error:
            raise CatalogueError(
                f"web search: cannot start {name!r}: {error.strerror}", hint="correct the command"
            ) from error
        if ended.fault:
            raise CatalogueError(f"web search: {name!r} {ended.fault}", hint="raise the limit")
        if ended.killed:
            raise killed(name, ended.status)
        if ended.status:
            said = f"{name!r} failed with status {ended.status}: {ended.tail}"
            raise CatalogueError(f"web search: {said}", hint=EXPECTED)
        try:
            return results_of(json.loads(ended.out))
        except (ValueError, RecursionError) as error:
            raise CatalogueError(
                f"web search: no JSON: {error}; it begins {ended.out[:60]!r}", hint=EXPECTED
            ) from error


def results_of(rows: Any) -> list[WebResult]:
    """Results in a command's JSON; a row without an address is an error, missing titles and snippets are empty."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("url"), str) for row in rows):
        raise CatalogueError(f"web search: no list of results: {str(rows)[:60]!r}", hint=EXPECTED)
    return [
        WebResult(title=str(row.get("title") or ""), url=row["url"], snippet=str(row.get("snippet") or ""))
        for row in rows
    ]


class SearchTransport(httpx.BaseTransport):
    """Answers `search://` addresses by a web search and leaves all others to `inner`."""

    def __init__(self, inner: httpx.BaseTransport, search: CommandSearch | None) -> None:
        self._inner, self._search = inner, search

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The results as JSON. Raises CatalogueError where no search is configured."""
        if request.url.scheme != SCHEME:
            return self._inner.handle_request(request)
        if self._search is None:
            raise CatalogueError(
                "web search: no command", hint="set INFUSER_WEB_SEARCH to a command, or drop the catalogue web"
            )
        rows = [asdict(result) for result in self._search.search(request.url.params.get("q", ""))]
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(rows).encode()), request=request)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()
