"""The open web, through a search command of the user's own. A page's own statements decide on licence and file."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from corpus.find import landing, licences
from corpus.find.catalogue import Offer, ask_json, ask_text
from corpus.find.identifiers import path_of
from corpus.find.web_search import ADDRESS, EXPECTED, WebResult, results_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

MAX_RESULTS = 20
"""Pages read for one query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Client of a WebSearch, and of the pages it finds."""

    client: httpx.Client
    """The client that asks; its transport knows the search (see corpus.find.web_search)."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "web"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """One entry per result. A result that is a PDF itself states no licence, so its page has to be found."""
        wanted = query or f"{topic.subdomain} {topic.domain} open textbook pdf"
        reply = ask_json(self.client, ADDRESS, {"q": wanted}, expected=EXPECTED)
        return [self._offer(result, topic) for result in _distinct(results_of(reply.data))]

    def address(self, download_url: str) -> str:
        """The page's address, as it is."""
        return download_url

    def _offer(self, result: WebResult, topic: Topic) -> Offer:
        if path_of(result.url).lower().endswith(".pdf"):
            return _bare(result, topic, "no page states the licence of this file", pdf=result.url)
        try:
            reply = ask_text(self.client, result.url)
        except CatalogueError as error:
            return _bare(result, topic, f"not readable: {error.message}")
        page = landing.read(reply.data, reply.url)
        return Offer(
            catalogue=self.name,
            offer_id=result.url,
            title=page.first("title") or result.title,
            author="; ".join(page.values.get("author", [])),
            description=page.first("description") or result.snippet,
            language=page.first("language"),
            discipline=topic.domain,
            licence=page.licence.spdx,
            licence_evidence=page.licence.evidence,
            source_url=reply.url,
            download_url=next(iter(page.pdfs), ""),
            doi=page.first("doi"),
            isbn="; ".join(page.values.get("isbn", [])),
            answer=reply.sha256,
        )


def _bare(result: WebResult, topic: Topic, evidence: str, pdf: str = "") -> Offer:
    return Offer(
        catalogue="web",
        offer_id=result.url,
        title=result.title,
        description=result.snippet,
        discipline=topic.domain,
        licence=licences.UNKNOWN,
        licence_evidence=evidence,
        source_url=result.url,
        download_url=pdf,
    )


def _distinct(results: list[WebResult]) -> Iterator[WebResult]:
    web = {result.url: result for result in reversed(results) if result.url.startswith(("http://", "https://"))}
    yield from [result for result in results if web.get(result.url) is result][:MAX_RESULTS]


def connect(base: str, *, client: httpx.Client) -> Web:
    """The web; `base` is not used, the search belongs to the client's transport."""
    del base
    return Web(client=client)
