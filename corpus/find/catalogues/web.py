"""The open web, through a search command of the user's own. A page's own statements decide on licence and file."""

from collections.abc import Iterator
from typing import Any

from corpus.find import landing, licences
from corpus.find.catalogue import Offer, Site, ask_json, ask_text, objects, text_of
from corpus.find.identifiers import path_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "search://web/"
EXPECTED = 'the command writes a JSON list of {"title", "url", "snippet"}'
MAX_RESULTS = 20
"""Pages read for one query."""


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """One entry per result. A result that is a PDF itself states no licence, so its page has to be found."""
    reply = ask_json(site.client, BASE, {"q": query}, expected=EXPECTED)
    rows = objects(reply.data)
    if rows != reply.data or not all(isinstance(row.get("url"), str) for row in rows):
        raise CatalogueError(f"web search: no list of results: {str(reply.data)[:60]!r}", hint=EXPECTED)
    pages: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["url"].startswith(("http://", "https://")):
            pages.setdefault(row["url"], row)
    yield from (_offer(site, page, topic) for page in list(pages.values())[:MAX_RESULTS])


def _offer(site: Site, result: dict[str, Any], topic: Topic) -> Offer:
    if path_of(result["url"]).lower().endswith(".pdf"):
        return _bare(result, topic, "no page states the licence of this file", pdf=result["url"])
    try:
        reply = ask_text(site.client, result["url"])
    except CatalogueError as error:
        return _bare(result, topic, f"not readable: {error.message}")
    page = landing.read(reply.data, reply.url)
    return Offer(
        catalogue=site.name,
        offer_id=result["url"],
        title=page.first("title") or text_of(result.get("title")),
        author="; ".join(page.values.get("author", [])),
        description=page.first("description") or text_of(result.get("snippet")),
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


def _bare(result: dict[str, Any], topic: Topic, evidence: str, pdf: str = "") -> Offer:
    return Offer(
        catalogue="web",
        offer_id=result["url"],
        title=text_of(result.get("title")),
        description=text_of(result.get("snippet")),
        discipline=topic.domain,
        licence=licences.UNKNOWN,
        licence_evidence=evidence,
        source_url=result["url"],
        download_url=pdf,
    )
