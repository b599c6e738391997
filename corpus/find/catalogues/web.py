"""The open web, through a search command of the user's own. A page's own statements decide on licence and file."""

from collections.abc import Iterator

import httpx

from corpus.find import landing, licences
from corpus.find.catalogue import Offer, Site, ask_json, ask_text
from corpus.find.identifiers import path_of
from corpus.find.web_search import ADDRESS, EXPECTED, WebResult, results_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

MAX_RESULTS = 20
"""Pages read for one query."""


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """One entry per result. A result that is a PDF itself states no licence, so its page has to be found."""
    wanted = query or "open textbook pdf"
    reply = ask_json(site.client, ADDRESS, {"q": wanted}, expected=EXPECTED)
    yield from (_offer(site, result, topic) for result in _distinct(results_of(reply.data)))


def _offer(site: Site, result: WebResult, topic: Topic) -> Offer:
    if path_of(result.url).lower().endswith(".pdf"):
        return _bare(result, topic, "no page states the licence of this file", pdf=result.url)
    try:
        reply = ask_text(site.client, result.url)
    except CatalogueError as error:
        return _bare(result, topic, f"not readable: {error.message}")
    page = landing.read(reply.data, reply.url)
    return Offer(
        catalogue=site.name,
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


def connect(base: str, *, client: httpx.Client) -> Site:
    """The web; `base` is not used, the search belongs to the client's transport (see corpus.find.web_search)."""
    del base
    return Site(name="web", base=ADDRESS, client=client, find=find)
