"""The OAPEN Library: open-access academic books, files included."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from corpus.find import dspace, licences
from corpus.find.catalogue import Offer, Site, text_of
from corpus.find.identifiers import absolute
from infuser_core.schemas import Topic

BASE = "https://library.oapen.org"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """`GET {base}/rest/search`, and `{base}/oai/request` for the licence of each book that has a PDF."""
    for item in dspace.search(site.client, site.base, query):
        pdf = _pdf_link(item)
        # Without a file there is nothing whose licence would matter.
        licence = licences.Licence(spdx="", evidence="not asked: no PDF")
        if pdf:
            name = f"oai:{urlsplit(BASE).hostname}:{item.handle}"
            licence = dspace.record(site.client, site.base, name).licence
        yield dspace.offer(site, topic, item, licence, absolute(f"{site.base}/", pdf) if pdf else "")


def _pdf_link(item: dspace.Item) -> str:
    """The book's own PDF: the bundle ORIGINAL holds what was deposited, others what was derived from it."""
    for file in item.bitstreams:
        original = text_of(file.get("bundleName")) in ("ORIGINAL", "")
        if original and text_of(file.get("mimeType")) == "application/pdf":
            return text_of(file.get("retrieveLink"))
    return ""
