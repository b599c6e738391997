"""OpenStax: its books are few, so the list is read as a whole and filtered here.

A licence belongs to the version that is offered now: newer editions carry other terms than older ones did.
"""

from dataclasses import dataclass
from typing import Any

import httpx

from corpus.find import licences
from corpus.find.catalogue import Offer, Params, ask_json, objects, plain, text_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStax:
    """Client of `GET {base}/apps/cms/api/v2/pages/?type=books.Book`."""

    base: str
    """Address of OpenStax."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "openstax"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Live books in whose title, description or subjects every word of the query occurs."""
        offers: list[Offer] = []
        url = f"{self.base}/apps/cms/api/v2/pages/"
        for page in range(MAX_PAGES):
            params: Params = {"type": "books.Book", "fields": FIELDS, "limit": PAGE_SIZE, "offset": page * PAGE_SIZE}
            reply = ask_json(self.client, url, params, expected=EXPECTED)
            meta = reply.data.get("meta") if isinstance(reply.data, dict) else None
            if not isinstance(meta, dict) or not isinstance(reply.data.get("items"), list):
                raise CatalogueError(f"catalogue {url}: no meta or no items", hint=EXPECTED)
            for book in objects(reply.data["items"]):
                live = text_of(book.get("book_state")).lower() not in RETIRED
                if live and mentions(_words(book), query or topic.subdomain):
                    offers.append(self._offer(book, topic, reply.sha256))
            total = meta.get("total_count")
            if (page + 1) * PAGE_SIZE >= (total if isinstance(total, int) else 0):
                break
        return offers

    def address(self, download_url: str) -> str:
        """OpenStax's address, as it is."""
        return download_url

    def _offer(self, book: dict[str, Any], topic: Topic, digest: str) -> Offer:
        name, version = text_of(book.get("license_name")), text_of(book.get("license_version"))
        found = [licences.read("license_name + license_version", f"{name} {version}".strip())]
        if book.get("license_url"):
            found.append(licences.read("license_url", book["license_url"]))
        licence = licences.agree([row for row in found if row.spdx] or found)
        about = book.get("meta") if isinstance(book.get("meta"), dict) else {}
        assert isinstance(about, dict)
        return Offer(
            catalogue=self.name,
            offer_id=text_of(book.get("cnx_id")) or text_of(book.get("id")),
            title=text_of(book.get("title")),
            author="; ".join(_authors(book)),
            description=plain(book.get("description")),
            keywords=_subjects(book),
            language=text_of(about.get("locale")),
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=text_of(about.get("html_url")) or self.base,
            download_url=text_of(book.get("high_resolution_pdf_url")) or text_of(book.get("low_resolution_pdf_url")),
            isbn="; ".join(filter(None, (text_of(book.get(key)) for key in ("digital_isbn_13", "print_isbn_13")))),
            other_ids=[f"cnx:{text_of(book.get('cnx_id'))}"] if book.get("cnx_id") else [],
            answer=digest,
        )


def _authors(book: dict[str, Any]) -> list[str]:
    rows = [row.get("value", row) for row in objects(book.get("authors"))]
    return [text_of(row.get("name")) for row in objects(rows) if row.get("name")]


def _subjects(book: dict[str, Any]) -> list[str]:
    rows = objects(book.get("book_subjects"))
    return [name for row in rows if (name := text_of(row.get("subject_name")) or text_of(row.get("name")))]


def _words(book: dict[str, Any]) -> str:
    return " ".join([text_of(book.get("title")), plain(book.get("description")), *_subjects(book)])


def connect(base: str, *, client: httpx.Client) -> OpenStax:
    """OpenStax at `base`, by default its public address."""
    return OpenStax(base=(base or BASE).rstrip("/"), client=client)
