"""Catalogue Directory of Open Access Books (DOAB): metadata and licences; publishers and OAPEN have the files."""

from collections.abc import Iterator

from corpus.find.catalogue import Offer, Site
from corpus.find.catalogues import oapen
from infuser_core.schemas import Topic

BASE = "https://directory.doabooks.org"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search `GET {base}/rest/search` for books; `{base}/oai/request` has the licence and file of each."""
    # Quotation marks search for the exact phrase: otherwise the directory matches loosely.
    for item in oapen.search_books(site, f'"{query}"'):
        licence, downloads = oapen.request_record(site, BASE, item)
        yield oapen.build_offer(site, topic, item, licence, next(iter(downloads), ""))
