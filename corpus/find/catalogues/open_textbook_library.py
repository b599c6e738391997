"""The Open Textbook Library: an index of openly licensed textbooks whose files lie with their publishers."""

from dataclasses import dataclass
from typing import Any

import httpx

from corpus.find import licences
from corpus.find.catalogue import Offer, ask_json, objects, plain, text_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://open.umn.edu/opentextbooks"
MAX_PAGES = 5
"""Pages read for one query; the library answers ten entries a page, the best matches first."""
EXPECTED = "expected {data: [{id, title, license, formats: [{type, url}], ...}], links: {next}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTextbookLibrary:
    """Client of `GET {base}/textbooks.json?q=TEXT&page=N`."""

    base: str
    """Address of the library, without `textbooks.json`."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "open_textbook_library"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Entries found for the query, page by page up to MAX_PAGES."""
        url = f"{self.base}/textbooks.json"
        offers: list[Offer] = []
        for page in range(1, MAX_PAGES + 1):
            reply = ask_json(self.client, url, {"q": query or topic.subdomain, "page": page}, expected=EXPECTED)
            if not isinstance(reply.data, dict) or not isinstance(reply.data.get("data"), list):
                raise CatalogueError(f"catalogue {url}: no list under 'data'", hint=EXPECTED)
            offers += [self._offer(entry, topic, reply.sha256) for entry in objects(reply.data["data"])]
            links = reply.data.get("links")
            if not isinstance(links, dict) or not links.get("next"):
                break
        return offers

    def address(self, download_url: str) -> str:
        """The publisher's address, as it is."""
        return download_url

    def _offer(self, entry: dict[str, Any], topic: Topic, digest: str) -> Offer:
        fields = {key.lower().replace("_", ""): value for key, value in entry.items()}
        number = text_of(fields.get("id"))
        licence = licences.read("license", fields.get("license"))
        pdf = next((f for f in objects(fields.get("formats")) if "pdf" in text_of(f.get("type")).lower()), {})
        return Offer(
            catalogue=self.name,
            offer_id=number,
            title=text_of(fields.get("title")),
            author="; ".join(filter(None, map(_person, objects(fields.get("contributors"))))),
            description=plain(fields.get("description")),
            keywords=[text_of(row.get("name")) for row in objects(fields.get("subjects"))],
            language=text_of(fields.get("language")),
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=f"{self.base}/textbooks/{number}",
            download_url=text_of(pdf.get("url")),
            doi=text_of(fields.get("doi")),
            isbn="; ".join(filter(None, (text_of(fields.get(key)) for key in ("isbn13", "isbn10")))),
            answer=digest,
        )


def _person(row: dict[str, Any]) -> str:
    parts = (text_of(row.get(key)) for key in ("first_name", "middle_name", "last_name"))
    return " ".join(filter(None, parts)) or text_of(row.get("name"))


def connect(base: str, *, client: httpx.Client) -> OpenTextbookLibrary:
    """The library at `base`, by default its public address."""
    return OpenTextbookLibrary(base=(base or BASE).rstrip("/"), client=client)
