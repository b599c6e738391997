"""Catalogue LibreTexts Commons: read completely and filtered here, because its search is not documented."""

from collections.abc import Iterator
from typing import Any

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, plain, rows_of, text_of
from corpus.find.queries import mentions
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://commons.libretexts.org"
PAGE_SIZE = 100
MAX_PAGES = 200
EXPECTED = "expected {books: [{bookID, title, license, links: {pdf}}], numTotal}"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Find the books of `GET {base}/api/v1/commons/catalog?limit=100&page=N` that mention every word of the query."""
    url = f"{site.base}/api/v1/commons/catalog"
    numbers: set[str] = set()
    for page in range(1, MAX_PAGES + 1):
        reply = ask_json(site.client, url, {"limit": PAGE_SIZE, "page": page}, expected=EXPECTED)
        books = rows_of(reply, "books", expected=EXPECTED)
        total = reply.data.get("numTotal")
        if not isinstance(total, int):
            raise CatalogueError(f"catalogue {url}: no numTotal", hint=EXPECTED)
        for book in books:
            tags = book.get("tags")
            words = [text_of(book.get(key)) for key in ("title", "subject", "summary", "course")]
            words += map(text_of, tags) if isinstance(tags, list) else ()
            if mentions(" ".join(words), query):
                yield _offer(site, book, topic, reply.sha256)
        fresh = {text_of(book.get("bookID")) for book in books} - numbers
        numbers |= fresh
        if len(numbers) >= total or not fresh:
            return


def _offer(site: Site, book: dict[str, Any], topic: Topic, digest: str) -> Offer:
    number = text_of(book.get("bookID"))
    links = book.get("links")
    licence = licences.read("license", book.get("license"))
    return site.offer(
        topic,
        licence,
        offer_id=number,
        title=text_of(book.get("title")),
        author=text_of(book.get("author")),
        description=plain(book.get("summary")),
        keywords=[text_of(book.get("subject")), text_of(book.get("library"))],
        source_url=f"{site.base}/book/{number}",
        download_url=text_of(links.get("pdf")) if isinstance(links, dict) else "",
        isbn=text_of(book.get("isbn")),
        doi=text_of(book.get("doi")),
        other_ids=[f"libretexts:{number}"],
        answer=digest,
    )
