"""Catalogue OAPEN Library, a DSpace repository of open-access books with their PDFs, and the code shared with DOAB.

Searches use REST; only OAI-PMH records state the licence.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from corpus.find import identifiers, licences
from corpus.find.catalogue import Offer, Params, Site, ask_json, get_record, objects, plain, text_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://library.oapen.org"
PAGE_SIZE = 25
MAX_PAGES = 2
"""Pages read for one query: later pages are looser matches."""
XOAI = "{http://www.lyncode.com/xoai}"
EXPECTED = "expected [{name, handle, metadata: [{key, value}], bitstreams: [{name, mimeType, retrieveLink}]}]"
EXPECTED_OAI = "expected an OAI-PMH record in the format xoai"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryBook:
    """A book in the repository's answer to a search."""

    handle: str
    """Handle, `prefix/suffix`."""
    values: dict[str, list[str]]
    """Metadata: key such as `dc.title` to its values."""
    bitstreams: list[dict[str, Any]]
    """Files of the book, as JSON objects of the answer."""
    answer: str
    """Digest of the answer."""

    def first(self, *keys: str) -> str:
        """The first metadata value under any of the keys; empty without one."""
        return next(iter(self.all(*keys)), "")

    def all(self, *keys: str) -> list[str]:
        """All metadata values under the keys."""
        return [value for key in keys for value in self.values.get(key, [])]


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search `GET {base}/rest/search` for books; `{base}/oai/request` has the licence of each book with a PDF."""
    for item in search_books(site, query):
        # Deposited files are in the bundle ORIGINAL, derived files in others.
        pdfs = (
            text_of(file.get("retrieveLink"))
            for file in item.bitstreams
            if text_of(file.get("bundleName")) in ("ORIGINAL", "")
            and text_of(file.get("mimeType")) == "application/pdf"
        )
        pdf = next(pdfs, "")
        # Without a file the licence does not matter.
        licence = licences.Licence(spdx="", evidence="not asked: no PDF")
        if pdf:
            licence, _ = request_record(site, BASE, item)
        yield build_offer(site, topic, item, licence, identifiers.absolute(f"{site.base}/", pdf) if pdf else "")


def search_books(site: Site, query: str) -> Iterator[RepositoryBook]:
    """Search the repository, up to MAX_PAGES pages; skip chapters, publishers and entries without a handle."""
    for page in range(MAX_PAGES):
        place: Params = {"limit": PAGE_SIZE, "offset": page * PAGE_SIZE}
        params: Params = {"query": query, "expand": "metadata,bitstreams", **place}
        reply = ask_json(site.client, f"{site.base}/rest/search", params, expected=EXPECTED)
        if not isinstance(reply.data, list):
            raise CatalogueError(f"catalogue {site.base}/rest/search: the answer is no list", hint=EXPECTED)
        for row in objects(reply.data):
            values: dict[str, list[str]] = {}
            for pair in objects(row.get("metadata")):
                values.setdefault(text_of(pair.get("key")), []).append(text_of(pair.get("value")))
            values.setdefault("dc.title", [text_of(row.get("name"))])
            item = RepositoryBook(
                handle=text_of(row.get("handle")),
                values=values,
                bitstreams=objects(row.get("bitstreams")),
                answer=reply.sha256,
            )
            if item.handle and "book" in item.all("dc.type"):
                yield item
        if len(reply.data) < PAGE_SIZE:
            return


def build_offer(site: Site, topic: Topic, item: RepositoryBook, licence: licences.Licence, download_url: str) -> Offer:
    """Make an offer of a book, with all its handles as identifiers."""
    twins = [identifiers.handle(link) for link in item.all("dc.identifier", "dc.identifier.uri")]
    return site.offer(
        topic,
        licence,
        offer_id=item.handle,
        title=item.first("dc.title"),
        author="; ".join(item.all("dc.contributor.author", "dc.contributor.editor")),
        description=plain(item.first("dc.description.abstract", "dc.description")),
        category="reference",
        keywords=item.all("dc.subject.classification", "dc.subject.other"),
        language=item.first("dc.language"),
        source_url=f"{site.base}/handle/{item.handle}",
        download_url=download_url,
        doi=item.first("oapen.identifier.doi", "dc.identifier.doi"),
        isbn="; ".join(item.all("oapen.relation.isbn", "dc.identifier.isbn")),
        other_ids=list(dict.fromkeys(filter(None, [identifiers.handle(item.handle), *twins]))),
        answer=item.answer,
    )


def request_record(site: Site, home: str, item: RepositoryBook) -> tuple[licences.Licence, list[str]]:
    """Request the OAI-PMH record `oai:HOST:HANDLE` of a book; returns its licence and PDF addresses.

    HOST is the host of the address `home`. A deleted or unknown record has neither licence nor addresses.
    """
    identifier = f"oai:{urlsplit(home).hostname}:{item.handle}"
    params = {"verb": "GetRecord", "metadataPrefix": "xoai", "identifier": identifier}
    root = get_record(site.client, f"{site.base}/oai/request", params, expected=EXPECTED_OAI)
    if isinstance(root, licences.Licence):
        return root, []
    statements, downloads = [], []
    for path, value in _fields(root, ()):
        # A file called license.txt is the depositor's contract, not the reader's: only names of fields count.
        is_licence = any("rights" in part.lower() or "licen" in part.lower() for part in path)
        if is_licence or "creativecommons.org/" in value:
            statements.append(licences.read(".".join(path), value))
        if path[-1] == "oapenidentifierdownloadUrl":
            downloads.append(value)
    return licences.agree(statements), list(dict.fromkeys(downloads))


def _fields(element: ElementTree.Element, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """All `field` elements below an XOAI element: the names of its ancestors and its own as a path, and its text."""
    for child in element:
        name = child.get("name", "")
        if child.tag == f"{XOAI}field":
            value = text_of(child.text)
            if value and name != "name":
                yield (*path, name), value
        else:
            yield from _fields(child, (*path, name) if name else path)
