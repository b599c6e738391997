"""Read the licence, the PDF link and the identifiers of a book from the metadata of its web page.

Only machine-readable statements count: link relations, citation and Dublin Core fields, JSON-LD.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from corpus.find import licences
from corpus.find.identifiers import absolute, parts_of

FIELDS = {
    "citation_title": "title", "dc.title": "title", "dcterms.title": "title", "og:title": "title",
    "citation_author": "author", "dc.creator": "author", "dcterms.creator": "author",
    "citation_doi": "doi", "dc.identifier.doi": "doi",
    "citation_isbn": "isbn", "book:isbn": "isbn",
    "citation_pdf_url": "pdf",
    "dc.rights": "licence", "dcterms.rights": "licence", "dcterms.license": "licence", "dc.rights.license": "licence",
    "citation_language": "language", "dc.language": "language",
    "description": "description", "og:description": "description", "dc.description": "description",
}  # fmt: skip
LINKED = (("license", "licence"), ("isbn", "isbn"), ("name", "title"), ("inLanguage", "language"))
"""Pairs of a JSON-LD key and the field of LandingPage that it fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingPage:
    """Metadata that the web page of a book states."""

    values: dict[str, list[str]]
    """Field (title, author, doi, isbn, language, description) to its values."""
    licence: licences.Licence
    """Licence on which the page's statements agree."""
    pdfs: list[str]
    """Distinct absolute addresses of PDFs: those declared for citation, then links."""

    def first(self, field: str) -> str:
        """The first value of a field; empty if the page does not state it."""
        return next(iter(self.values.get(field, [])), "")


def read_page(html: str, url: str) -> LandingPage:
    """Read the metadata in the HTML of the page at `url`. Broken mark-up is read as far as possible."""
    page = _Page()
    page.feed(html)
    page.close()
    for name, value in _linked_data(page.scripts):
        page.statements.setdefault(name, []).append((f"json-ld.{name}", value))
    stated = [licences.read(source, value) for source, value in page.statements.get("licence", [])]
    declared = [value for _, value in page.statements.get("pdf", [])]
    links = filter(None, (absolute(url, href) for href in [*declared, *page.links]))
    values = {name: [value for _, value in rows] for name, rows in page.statements.items()}
    return LandingPage(
        values={name: rows for name, rows in values.items() if name not in ("licence", "pdf")},
        licence=licences.agree(stated),
        pdfs=list(dict.fromkeys(links)),
    )


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.statements: dict[str, list[tuple[str, str]]] = {}
        """Field to pairs of source and value."""
        self.links: list[str] = []
        self.scripts: list[str] = []
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: (value or "").strip() for name, value in attrs}
        if tag == "meta":
            name = (values.get("name") or values.get("property") or "").lower()
            if name in FIELDS and values.get("content"):
                self.statements.setdefault(FIELDS[name], []).append((f"meta[{name}]", values["content"]))
        elif tag in ("a", "link"):
            href = values.get("href", "")
            if "license" in values.get("rel", "").lower().split() and href:
                self.statements.setdefault("licence", []).append((f"{tag}[rel=license]", href))
            elif values.get("type", "").lower() == "application/pdf" or parts_of(href).path.lower().endswith(".pdf"):
                self.links.append(href)
        elif tag == "script":
            self._in_data = values.get("type", "").lower() == "application/ld+json"

    def handle_endtag(self, tag: str) -> None:
        self._in_data = self._in_data and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.scripts.append(data)


def _linked_data(scripts: list[str]) -> Iterator[tuple[str, str]]:
    for text in scripts:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            continue
        rows = [row for row in (data if isinstance(data, list) else [data]) if isinstance(row, dict)]
        for row, (key, name) in itertools.product(rows, LINKED):
            value = row.get(key)
            value = value.get("url") or value.get("@id") if isinstance(value, dict) else value
            if isinstance(value, str) and value:
                yield name, value
