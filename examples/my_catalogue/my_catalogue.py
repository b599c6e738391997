"""Example of a catalogue: a department's reading list, one JSON file at an address."""

from collections.abc import Iterator

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, rows_of, text_of
from infuser_core.schemas import Topic

EXPECTED = "expected {books: [{id, title, subject, license, pdf}, ...]}"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Books of `GET {base}/books.json` whose title or subject has a word of the query."""
    words = set(query.casefold().split())
    reply = ask_json(site.client, f"{site.base}/books.json", expected=EXPECTED)
    for row in rows_of(reply, "books", expected=EXPECTED):
        title, subject = text_of(row.get("title")), text_of(row.get("subject"))
        if not words & set(f"{title} {subject}".casefold().split()):
            continue
        yield site.offer(
            topic,
            licences.read("license", row.get("license")),
            offer_id=text_of(row.get("id")),
            title=title,
            keywords=[subject],
            source_url=f"{site.base}/books.json",
            download_url=text_of(row.get("pdf")),
            answer=reply.sha256,
        )
