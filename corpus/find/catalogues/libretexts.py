"""LibreTexts Commons: its catalogue is read as a whole and filtered here, since its own search is not documented."""

from dataclasses import dataclass
from typing import Any

import httpx

from corpus.find import licences
from corpus.find.catalogue import Offer, ask_json, objects, plain, text_of
from corpus.find.queries import mentions
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://commons.libretexts.org"
PAGE_SIZE = 100
MAX_PAGES = 200
EXPECTED = "expected {books: [{bookID, title, license, links: {pdf}}], numTotal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibreTexts:
    """Client of `GET {base}/api/v1/commons/catalog?limit=100&page=N`."""

    base: str
    """Address of the Commons."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "libretexts"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Books in whose title, subject, summary or tags every word of the query occurs."""
        found: dict[str, Offer] = {}
        seen: set[str] = set()
        for page in range(1, MAX_PAGES + 1):
            params = {"limit": PAGE_SIZE, "page": page}
            reply = ask_json(self.client, f"{self.base}/api/v1/commons/catalog", params, expected=EXPECTED)
            total = reply.data.get("numTotal") if isinstance(reply.data, dict) else None
            if not isinstance(total, int) or not isinstance(reply.data.get("books"), list):
                raise CatalogueError(f"catalogue {self.base}: no books or no numTotal", hint=EXPECTED)
            books = objects(reply.data["books"])
            fresh = {text_of(book.get("bookID")) for book in books} - seen
            seen |= fresh
            for book in books:
                if mentions(_words(book), query or topic.subdomain):
                    found.setdefault(text_of(book.get("bookID")), self._offer(book, topic, reply.sha256))
            if len(seen) >= total or not fresh:
                break
        return list(found.values())

    def address(self, download_url: str) -> str:
        """The Commons' address, as it is."""
        return download_url

    def _offer(self, book: dict[str, Any], topic: Topic, digest: str) -> Offer:
        number = text_of(book.get("bookID"))
        links = book.get("links") if isinstance(book.get("links"), dict) else {}
        assert isinstance(links, dict)
        licence = licences.read("license", book.get("license"))
        return Offer(
            catalogue=self.name,
            offer_id=number,
            title=text_of(book.get("title")),
            author=text_of(book.get("author")),
            description=plain(book.get("summary")),
            keywords=[text_of(book.get("subject")), text_of(book.get("library"))],
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=f"{self.base}/book/{number}",
            download_url=text_of(links.get("pdf")),
            isbn=text_of(book.get("isbn")),
            doi=text_of(book.get("doi")),
            other_ids=[f"libretexts:{number}"],
            answer=digest,
        )


def _words(book: dict[str, Any]) -> str:
    tags = book.get("tags")
    listed = [text_of(tag) for tag in tags] if isinstance(tags, list) else []
    return " ".join([*(text_of(book.get(key)) for key in ("title", "subject", "summary", "course")), *listed])


def connect(base: str, *, client: httpx.Client) -> LibreTexts:
    """The Commons at `base`, by default its public address."""
    return LibreTexts(base=(base or BASE).rstrip("/"), client=client)
