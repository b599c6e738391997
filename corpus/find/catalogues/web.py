"""Catalogue of the open web, searched with a command of the user. Metadata of each page gives its licence and file."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, ask_text, objects, text_of
from corpus.find.identifiers import parts_of
from corpus.find.landing_page import read_page
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "search://web/"
EXPECTED = 'the command writes a JSON list of {"title", "url", "snippet"}'
MAX_RESULTS = 20
"""Number of results of one query whose pages are read."""


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search the web: one offer per result. A result that is itself a PDF has no licence and will be refused."""
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
    url, title, snippet = result["url"], text_of(result.get("title")), text_of(result.get("snippet"))
    bare = partial(site.offer, topic, offer_id=url, title=title, description=snippet, source_url=url)
    if parts_of(url).path.lower().endswith(".pdf"):
        licence = licences.Licence(spdx=licences.UNKNOWN, evidence="no page states the licence of this file")
        return bare(licence=licence, download_url=url)
    try:
        reply = ask_text(site.client, url)
    except CatalogueError as error:
        licence = licences.Licence(spdx=licences.UNKNOWN, evidence=f"not readable: {error.message}")
        return bare(licence=licence, download_url="")
    page = read_page(reply.data, reply.url)
    return site.offer(
        topic,
        page.licence,
        offer_id=url,
        title=page.first("title") or title,
        author="; ".join(page.values.get("author", [])),
        description=page.first("description") or snippet,
        language=page.first("language"),
        source_url=reply.url,
        download_url=next(iter(page.pdfs), ""),
        doi=page.first("doi"),
        isbn="; ".join(page.values.get("isbn", [])),
        answer=reply.sha256,
    )
