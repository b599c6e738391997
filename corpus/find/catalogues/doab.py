"""The Directory of Open Access Books: metadata and licences; the files lie with publishers and with OAPEN."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from corpus.find import dspace, identifiers
from corpus.find.catalogue import Offer, plain
from infuser_core.schemas import Topic

BASE = "https://directory.doabooks.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doab:
    """Client of `GET {base}/rest/search`, and of `{base}/oai/request` for each book's licence and file."""

    base: str
    """Address of the directory."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "doab"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Books found for the query; the quotes keep the words together, as the directory's matching is loose."""
        items = dspace.search(self.client, self.base, f'"{query or topic.subdomain}"')
        return [self._offer(item, topic) for item in items]

    def address(self, download_url: str) -> str:
        """The publisher's address, as it is."""
        return download_url

    def _offer(self, item: dspace.Item, topic: Topic) -> Offer:
        host = urlsplit(BASE).hostname
        record = dspace.record(self.client, self.base, f"oai:{host}:{item.handle}")
        links = item.all("dc.identifier", "dc.identifier.uri")
        twins = [identifiers.handle(link) for link in links]
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
            licence=record.licence.spdx,
            licence_evidence=record.licence.evidence,
            source_url=f"{self.base}/handle/{item.handle}",
            download_url=next(iter(record.downloads), ""),
            doi=item.first("oapen.identifier.doi", "dc.identifier.doi"),
            isbn="; ".join(item.all("oapen.relation.isbn", "dc.identifier.isbn")),
            other_ids=list(dict.fromkeys(filter(None, [identifiers.handle(item.handle), *twins]))),
            answer=item.answer,
        )


def connect(base: str, *, client: httpx.Client) -> Doab:
    """The directory at `base`, by default its public address."""
    return Doab(base=(base or BASE).rstrip("/"), client=client)
