"""The OAPEN Library: open-access academic books, files included."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from corpus.find import dspace, identifiers, licences
from corpus.find.catalogue import Offer, plain, text_of
from corpus.find.identifiers import absolute
from infuser_core.schemas import Topic

BASE = "https://library.oapen.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oapen:
    """Client of `GET {base}/rest/search`, and of `{base}/oai/request` for each book's licence."""

    base: str
    """Address of the library."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "oapen"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Books found for the query that have a PDF; one more question each, for the licence."""
        items = dspace.search(self.client, self.base, query or topic.subdomain)
        return [self._offer(item, topic) for item in items]

    def address(self, download_url: str) -> str:
        """The library's address, as it is."""
        return download_url

    def _offer(self, item: dspace.Item, topic: Topic) -> Offer:
        pdf = _pdf_link(item)
        # Without a file there is nothing whose licence would matter.
        licence = licences.Licence(spdx="", evidence="not asked: no PDF")
        if pdf:
            name = f"oai:{urlsplit(BASE).hostname}:{item.handle}"
            licence = dspace.record(self.client, self.base, name).licence
        return Offer(
            catalogue=self.name,
            offer_id=item.handle,
            title=item.first("dc.title"),
            author="; ".join(item.all("dc.contributor.author", "dc.contributor.editor")),
            description=plain(item.first("dc.description.abstract", "dc.description")),
            category="reference",
            keywords=item.all("dc.subject.classification", "dc.subject.other"),
            language=item.first("dc.language"),
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=f"{self.base}/handle/{item.handle}",
            download_url=absolute(f"{self.base}/", pdf) if pdf else "",
            doi=item.first("oapen.identifier.doi", "dc.identifier.doi"),
            isbn="; ".join(item.all("oapen.relation.isbn", "dc.identifier.isbn")),
            other_ids=[identifiers.handle(item.handle)],
            answer=item.answer,
        )


def _pdf_link(item: dspace.Item) -> str:
    """The book's own PDF: the bundle ORIGINAL holds what was deposited, others what was derived from it."""
    for file in item.bitstreams:
        original = text_of(file.get("bundleName")) in ("ORIGINAL", "")
        if original and text_of(file.get("mimeType")) == "application/pdf":
            return text_of(file.get("retrieveLink"))
    return ""


def connect(base: str, *, client: httpx.Client) -> Oapen:
    """The library at `base`, by default its public address."""
    return Oapen(base=(base or BASE).rstrip("/"), client=client)
