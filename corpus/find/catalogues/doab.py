"""The Directory of Open Access Books: metadata and licences; publishers and OAPEN have the files."""

from collections.abc import Iterator

from corpus.find.catalogue import Offer, Site
from corpus.find.catalogues import oapen
from infuser_core.schemas import Topic

BASE = "https://directory.doabooks.org"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """`GET {base}/rest/search`, and `{base}/oai/request` for each book's licence and file."""
    # Quotation marks search for the phrase: the directory's matching is loose.
    for item in oapen.search_books(site, f'"{query}"'):
        licence, downloads = oapen.request_record(site, BASE, item)
        yield oapen.build_offer(site, topic, item, licence, next(iter(downloads), ""))
