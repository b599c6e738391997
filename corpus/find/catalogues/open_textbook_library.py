"""Catalogue Open Textbook Library: an index of openly licensed textbooks; their publishers have the files."""

from collections.abc import Iterator
from typing import Any

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, objects, plain, rows_of, text_of, texts_of
from infuser_core.schemas import Topic

BASE = "https://open.umn.edu/opentextbooks"
MAX_PAGES = 5
"""Pages read for one query; a page has ten entries, the best matches first."""
EXPECTED = "expected {data: [{id, title, license, formats: [{type, url}], ...}], links: {next}}"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search `GET {base}/textbooks.json?q=TEXT&page=N`, page by page up to MAX_PAGES."""
    for page in range(1, MAX_PAGES + 1):
        reply = ask_json(site.client, f"{site.base}/textbooks.json", {"q": query, "page": page}, expected=EXPECTED)
        for entry in rows_of(reply, "data", expected=EXPECTED):
            fields = {key.lower().replace("_", ""): value for key, value in entry.items()}
            yield _offer(site, fields, topic, reply.sha256)
        links = reply.data.get("links")
        if not isinstance(links, dict) or not links.get("next"):
            return


def _offer(site: Site, fields: dict[str, Any], topic: Topic, digest: str) -> Offer:
    number = text_of(fields.get("id"))
    licence = licences.read("license", fields.get("license"))
    pdf = next((f for f in objects(fields.get("formats")) if "pdf" in text_of(f.get("type")).lower()), {})
    authors = [
        " ".join(filter(None, (text_of(row.get(key)) for key in ("first_name", "middle_name", "last_name"))))
        or text_of(row.get("name"))
        for row in objects(fields.get("contributors"))
    ]
    return site.offer(
        topic,
        licence,
        offer_id=number,
        title=text_of(fields.get("title")),
        author="; ".join(filter(None, authors)),
        description=plain(fields.get("description")),
        keywords=[text_of(row.get("name")) for row in objects(fields.get("subjects"))],
        language=text_of(fields.get("language")),
        source_url=f"{site.base}/textbooks/{number}",
        download_url=text_of(pdf.get("url")),
        doi=text_of(fields.get("doi")),
        isbn=texts_of(fields, "isbn13", "isbn10"),
        answer=digest,
    )
