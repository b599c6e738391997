"""DSpace repositories: the OAPEN Library, whose books come with files, and what it shares with DOAB.

A search goes by REST; the licence is stated by OAI-PMH records alone.
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
"""Pages read for one query: the search fills its answers with ever looser matches."""
XOAI = "{http://www.lyncode.com/xoai}"
EXPECTED = "expected [{name, handle, metadata: [{key, value}], bitstreams: [{name, mimeType, retrieveLink}]}]"
EXPECTED_OAI = "expected an OAI-PMH record in the format xoai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One book of the repository."""

    handle: str
    """Handle, `prefix/suffix`."""
    values: dict[str, list[str]]
    """Metadata: key such as `dc.title` to its values."""
    bitstreams: list[dict[str, Any]]
    """Files, as the search gives them."""
    answer: str
    """Digest of the answer."""

    def first(self, *keys: str) -> str:
        """The first value under any of the keys, or empty."""
        return next(iter(self.all(*keys)), "")

    def all(self, *keys: str) -> list[str]:
        """Every value under the keys."""
        return [value for key in keys for value in self.values.get(key, [])]


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """`GET {base}/rest/search`, and `{base}/oai/request` for the licence of each book that has a PDF."""
    for item in search(site, query):
        pdf = _pdf_link(item)
        # Without a file there is nothing whose licence would matter.
        licence = licences.Licence(spdx="", evidence="not asked: no PDF")
        if pdf:
            licence, _ = record(site, BASE, item)
        yield offer(site, topic, item, licence, identifiers.absolute(f"{site.base}/", pdf) if pdf else "")


def _pdf_link(item: Item) -> str:
    """The book's own PDF: the bundle ORIGINAL holds what was deposited, others what was derived from it."""
    for file in item.bitstreams:
        original = text_of(file.get("bundleName")) in ("ORIGINAL", "")
        if original and text_of(file.get("mimeType")) == "application/pdf":
            return text_of(file.get("retrieveLink"))
    return ""


def search(site: Site, query: str) -> Iterator[Item]:
    """Books found for a query, up to MAX_PAGES pages; chapters, publishers and entries without a handle left out."""
    for page in range(MAX_PAGES):
        place: Params = {"limit": PAGE_SIZE, "offset": page * PAGE_SIZE}
        params: Params = {"query": query, "expand": "metadata,bitstreams", **place}
        reply = ask_json(site.client, f"{site.base}/rest/search", params, expected=EXPECTED)
        if not isinstance(reply.data, list):
            raise CatalogueError(f"catalogue {site.base}/rest/search: the answer is no list", hint=EXPECTED)
        for row in objects(reply.data):
            item = _item(row, reply.sha256)
            if item.handle and "book" in item.all("dc.type"):
                yield item
        if len(reply.data) < PAGE_SIZE:
            return


def _item(row: dict[str, Any], digest: str) -> Item:
    values: dict[str, list[str]] = {}
    for pair in objects(row.get("metadata")):
        values.setdefault(text_of(pair.get("key")), []).append(text_of(pair.get("value")))
    values.setdefault("dc.title", [text_of(row.get("name"))])
    return Item(
        handle=text_of(row.get("handle")), values=values, bitstreams=objects(row.get("bitstreams")), answer=digest
    )


def offer(site: Site, topic: Topic, item: Item, licence: licences.Licence, download_url: str) -> Offer:
    """The item as an entry of a catalogue, with every handle that it goes by."""
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


def record(site: Site, home: str, item: Item) -> tuple[licences.Licence, list[str]]:
    """Licence and PDF addresses by the record `oai:host:handle`, with the host of the catalogue's own address `home`.

    A deleted or unknown record has neither.
    """
    identifier = f"oai:{urlsplit(home).hostname}:{item.handle}"
    params = {"verb": "GetRecord", "metadataPrefix": "xoai", "identifier": identifier}
    root = get_record(site.client, f"{site.base}/oai/request", params, expected=EXPECTED_OAI)
    if isinstance(root, licences.Licence):
        return root, []
    found, downloads = [], []
    for path, value in _fields(root, ()):
        # A file called license.txt is the deposit's contract, not the reader's.
        named = any("rights" in part.lower() or "licen" in part.lower() for part in path)
        if named or "creativecommons.org/" in value:
            found.append(licences.read(".".join(path), value))
        if path[-1] == "oapenidentifierdownloadUrl":
            downloads.append(value)
    return licences.agree(found), list(dict.fromkeys(downloads))


def _fields(element: ElementTree.Element, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every `field` with the names of the elements around it and its own."""
    for child in element:
        name = child.get("name", "")
        if child.tag == f"{XOAI}field":
            value = text_of(child.text)
            if value and name != "name":
                yield (*path, name), value
        else:
            yield from _fields(child, (*path, name) if name else path)
