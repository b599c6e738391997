"""Catalogues of Pressbooks networks: the list of books is read and filtered here.

Robots may not use the interface of a single book.
"""

from collections.abc import Iterator
from typing import Any

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, objects, plain, text_of
from corpus.find.queries import mentions
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

PAGE_SIZE = 10
"""Books per request; the interface refuses more."""
MAX_PAGES = 500
EXPECTED = "expected [{id, link, metadata: {name, license: {url, name}, author, ...}}] and the header X-WP-TotalPages"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Books of `GET {base}/wp-json/pressbooks/v2/books?per_page=10&page=N` that mention every word of the query."""
    url = f"{site.base}/wp-json/pressbooks/v2/books"
    for page in range(1, MAX_PAGES + 1):
        reply = ask_json(site.client, url, {"per_page": PAGE_SIZE, "page": page}, expected=EXPECTED)
        if not isinstance(reply.data, list):
            raise CatalogueError(f"catalogue {url}: the answer is no list", hint=EXPECTED)
        for book in objects(reply.data):
            about = book.get("metadata")
            if not isinstance(about, dict):
                continue
            texts = [text_of(about.get(key)) for key in ("name", "alternativeHeadline", "description")]
            if mentions(" ".join([*texts, *_subjects(about)]), query):
                yield _offer(site, book, about, topic, reply.sha256)
        pages = reply.headers.get("x-wp-totalpages", "")
        if page >= int(pages if pages.isdecimal() else 1) or not reply.data:
            return


def _offer(site: Site, book: dict[str, Any], about: dict[str, Any], topic: Topic, digest: str) -> Offer:
    link = text_of(book.get("link")).rstrip("/")
    licence, name = _read_licence(about.get("license")), about.get("identifier")
    if isinstance(name, dict):
        name = name.get("value") if text_of(name.get("propertyID")).upper() == "DOI" else ""
    return site.offer(
        topic,
        licence,
        offer_id=link or text_of(book.get("id")),
        title=text_of(about.get("name")),
        author="; ".join(_names(about.get("author"))),
        description=plain(about.get("description") or about.get("disambiguatingDescription")),
        keywords=_subjects(about),
        language=text_of(about.get("inLanguage")),
        source_url=link,
        download_url=f"{link}/open/download?type=pdf" if link else "",
        doi=text_of(name),
        isbn=text_of(about.get("isbn")),
        answer=digest,
    )


def _read_licence(value: Any) -> licences.Licence:
    if not isinstance(value, dict):
        return licences.read("metadata.license", value)
    keys = [key for key in ("url", "code", "name") if value.get(key)]
    return licences.agree([licences.read(f"metadata.license.{key}", value[key]) for key in keys])


def _names(value: Any) -> list[str]:
    return [text_of(row.get("name")) for row in objects(value if isinstance(value, list) else [value])]


def _subjects(about: dict[str, Any]) -> list[str]:
    words = text_of(about.get("keywords")).split(",")
    return list(filter(None, [*_names(about.get("about")), *(word.strip() for word in words)]))
