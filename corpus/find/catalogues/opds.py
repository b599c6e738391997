"""Catalogues in the OPDS 1.2 format (Atom): use the feed's own search if it has one, else read all and filter here."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from urllib.parse import quote

from corpus.find import identifiers, licences
from corpus.find.catalogue import Offer, Reply, Site, ask_xml, plain, text_of
from corpus.find.identifiers import absolute
from corpus.find.queries import mentions
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

MAX_PAGES = 200
ATOM = "{http://www.w3.org/2005/Atom}"
SEARCH = "{http://a9.com/-/spec/opensearch/1.1/}"
# Both namespaces of Dublin Core are in use.
DC = ("{http://purl.org/dc/terms/}", "{http://purl.org/dc/elements/1.1/}")
ACQUISITION = "http://opds-spec.org/acquisition"
FREE = frozenset({ACQUISITION, f"{ACQUISITION}/open-access"})
FORMATS = ("application/pdf", "text/markdown", "text/plain")
EXPECTED = "expected an Atom feed with acquisition links (OPDS 1.2)"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Find free books: results of the feed's search, or entries of all its sections with every word of the query."""
    root = _request_feed(site, site.feed)
    template = _search_template(site, root)
    first = _request_feed(site, template.replace("{searchTerms}", quote(query))) if template else root
    for reply in _pages(site, first):
        for entry in reply.data.findall(f"{ATOM}entry"):
            free = [link for link in entry.findall(f"{ATOM}link") if link.get("rel") in FREE]
            kinds = {link.get("type", "").partition(";")[0].strip(): link for link in reversed(free)}
            link = next((kinds[kind] for kind in FORMATS if kind in kinds), None)
            # Results of the catalogue's search need no second filter.
            texts = [text_of(entry.findtext(f"{ATOM}title")), plain(entry.findtext(f"{ATOM}summary")), *_terms(entry)]
            if link is not None and (template or mentions(" ".join(texts), query)):
                yield _offer(site, entry, link, topic, reply)


def _request_feed(site: Site, url: str) -> Reply:
    reply = ask_xml(site.client, url, expected=EXPECTED)
    if reply.data.tag != f"{ATOM}feed":
        raise CatalogueError(f"catalogue {url}: the answer is no Atom feed", hint=EXPECTED)
    return reply


def _search_template(site: Site, root: Reply) -> str:
    """Search address with the slot `{searchTerms}`, from the feed or its OpenSearch description; empty without one."""
    for link in root.data.findall(f"{ATOM}link[@rel='search']"):
        href = absolute(root.url, link.get("href", ""))
        if link.get("type", "").startswith("application/opensearchdescription+xml"):
            about = ask_xml(site.client, href, expected="expected an OpenSearch description").data
            urls = [row for row in about.findall(f"{SEARCH}Url") if "atom" in row.get("type", "")]
            href = absolute(href, urls[0].get("template", "")) if urls else ""
        if "{searchTerms}" in href:
            # Drop optional parameters such as `{startPage?}`.
            head, _, query = href.partition("?")
            parts = [part for part in query.split("&") if "{" not in part or "{searchTerms}" in part]
            return f"{head}?{'&'.join(parts)}" if parts and query else head
    return ""


def _pages(site: Site, first: Reply) -> Iterator[Reply]:
    """Read the pages of a feed and, breadth first, the sections that its entries link."""
    urls, ahead = {first.url}, [first]
    for _ in range(MAX_PAGES):
        if not ahead:
            return
        page = ahead.pop(0)
        yield page
        sections = [
            link
            for link in page.data.findall(f"{ATOM}entry/{ATOM}link")
            if link.get("rel", "subsection") == "subsection" and link.get("type", "").startswith("application/atom+xml")
        ]
        for link in [*page.data.findall(f"{ATOM}link[@rel='next']"), *sections]:
            href = absolute(page.url, link.get("href", ""))
            if href and href not in urls:
                urls.add(href)
                ahead.append(_request_feed(site, href))
    raise CatalogueError(f"catalogue {site.base}: more than {MAX_PAGES} pages", hint="name a feed below its root")


def _offer(site: Site, entry: ElementTree.Element, link: ElementTree.Element, topic: Topic, reply: Reply) -> Offer:
    names = [text_of(row.text) for tag in DC for row in entry.findall(f"{tag}identifier")]
    linked = [licences.read("link[license]", row.get("href")) for row in entry.findall(f"{ATOM}link[@rel='license']")]
    fields = [*((f"{tag}{name}", name) for tag in DC for name in ("license", "rights")), (f"{ATOM}rights", "rights")]
    stated = [licences.read(name, text_of(row.text)) for path, name in fields for row in entry.findall(path)]
    alternate = next((row.get("href", "") for row in entry.findall(f"{ATOM}link[@rel='alternate']")), "")
    return site.offer(
        topic,
        licences.agree([*linked, *stated]),
        offer_id=next(filter(None, [text_of(entry.findtext(f"{ATOM}id")), *names]), link.get("href", "")),
        title=text_of(entry.findtext(f"{ATOM}title")),
        author="; ".join(text_of(row.text) for row in entry.findall(f"{ATOM}author/{ATOM}name")),
        description=plain(entry.findtext(f"{ATOM}summary") or entry.findtext(f"{ATOM}content")),
        keywords=_terms(entry),
        language=next((text_of(row.text) for tag in DC for row in entry.findall(f"{tag}language")), ""),
        source_url=absolute(reply.url, alternate) if alternate else reply.url,
        download_url=absolute(reply.url, link.get("href", "")),
        doi=next((name for name in names if identifiers.doi(name)), ""),
        isbn="; ".join(name for name in names if identifiers.isbn(name)),
        answer=reply.sha256,
    )


def _terms(entry: ElementTree.Element) -> list[str]:
    rows = entry.findall(f"{ATOM}category")
    categories = [text_of(row.get("label")) or text_of(row.get("term")) for row in rows]
    return [*categories, *(text_of(row.text) for tag in DC for row in entry.findall(f"{tag}subject"))]
