"""The Directory of Open Access Books: metadata and licences; the files lie with publishers and with OAPEN."""

from collections.abc import Iterator

from corpus.find.catalogue import Offer, Site
from corpus.find.catalogues import oapen
from infuser_core.schemas import Topic

BASE = "https://directory.doabooks.org"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """`GET {base}/rest/search`, and `{base}/oai/request` for each book's licence and file."""
    # The quotes keep the words together, as the directory's matching is loose.
    for item in oapen.search(site, f'"{query}"'):
        licence, downloads = oapen.record(site, BASE, item)
        yield oapen.offer(site, topic, item, licence, next(iter(downloads), ""))
