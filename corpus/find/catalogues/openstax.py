"""Catalogue OpenStax: it has few books, so the whole list is read and filtered here.

The licence is that of the current edition: older editions may have other terms.
"""

from collections.abc import Iterator
from typing import Any

from corpus.find import licences
from corpus.find.catalogue import Offer, Params, Site, ask_json, objects, plain, rows_of, text_of, texts_of
from corpus.find.queries import mentions
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://openstax.org"
PAGE_SIZE = 100
MAX_PAGES = 20
FIELDS = (
    "title,description,cnx_id,authors,license_name,license_version,license_url,book_subjects,book_state,"
    "high_resolution_pdf_url,low_resolution_pdf_url,digital_isbn_13,print_isbn_13"
)
EXPECTED = "expected {meta: {total_count}, items: [{title, cnx_id, license_name, license_version, ...}]}"
RETIRED = frozenset({"retired", "unlisted", "coming_soon"})


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Live books of `GET {base}/apps/cms/api/v2/pages/?type=books.Book` that mention every word of the query."""
    url = f"{site.base}/apps/cms/api/v2/pages/"
    for page in range(MAX_PAGES):
        params: Params = {"type": "books.Book", "fields": FIELDS, "limit": PAGE_SIZE, "offset": page * PAGE_SIZE}
        reply = ask_json(site.client, url, params, expected=EXPECTED)
        books = rows_of(reply, "items", expected=EXPECTED)
        meta = reply.data.get("meta")
        if not isinstance(meta, dict):
            raise CatalogueError(f"catalogue {url}: no meta", hint=EXPECTED)
        for book in books:
            live = text_of(book.get("book_state")).lower() not in RETIRED
            words = [text_of(book.get("title")), plain(book.get("description")), *_subjects(book)]
            if live and mentions(" ".join(words), query):
                yield _offer(site, book, topic, reply.sha256)
        total = meta.get("total_count")
        if (page + 1) * PAGE_SIZE >= (total if isinstance(total, int) else 0):
            return


def _offer(site: Site, book: dict[str, Any], topic: Topic, digest: str) -> Offer:
    name, version = text_of(book.get("license_name")), text_of(book.get("license_version"))
    statements = [licences.read("license_name + license_version", f"{name} {version}".strip())]
    if book.get("license_url"):
        statements.append(licences.read("license_url", book["license_url"]))
    licence = licences.agree(statements)
    authors = [row.get("value", row) for row in objects(book.get("authors"))]
    meta = book.get("meta")
    about: dict[str, Any] = meta if isinstance(meta, dict) else {}
    return site.offer(
        topic,
        licence,
        offer_id=text_of(book.get("cnx_id")) or text_of(book.get("id")),
        title=text_of(book.get("title")),
        author="; ".join(text_of(row.get("name")) for row in objects(authors) if row.get("name")),
        description=plain(book.get("description")),
        keywords=_subjects(book),
        language=text_of(about.get("locale")),
        source_url=text_of(about.get("html_url")) or site.base,
        download_url=text_of(book.get("high_resolution_pdf_url")) or text_of(book.get("low_resolution_pdf_url")),
        isbn=texts_of(book, "digital_isbn_13", "print_isbn_13"),
        other_ids=[f"cnx:{text_of(book.get('cnx_id'))}"] if book.get("cnx_id") else [],
        answer=digest,
    )


def _subjects(book: dict[str, Any]) -> list[str]:
    rows = objects(book.get("book_subjects"))
    return [name for row in rows if (name := text_of(row.get("subject_name")) or text_of(row.get("name")))]
