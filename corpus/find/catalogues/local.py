"""Catalogue on a server that you run: JSON with a paged search and relative PDF addresses, as in the nano lab."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from corpus.find import licences
from corpus.find.catalogue import Offer, Site, ask_json, objects, subject
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

SCHEME = "local:"
MAX_PAGES = 1000
EXPECTED = "expected {data: [{id, title, pdf, license, subjects, ...}], links: {next}}"


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search `GET {base}/catalogue.json?q=TEXT&page=N`, page by page."""
    url = f"{site.base}/catalogue.json"
    for page in range(1, MAX_PAGES + 1):
        reply = ask_json(site.client, url, {"q": query, "page": page}, expected=EXPECTED)
        if not isinstance(reply.data, dict) or not isinstance(reply.data.get("data"), list):
            raise CatalogueError(f"catalogue {url}: no list under 'data'", hint=EXPECTED)
        if not isinstance(reply.data.get("links"), dict):
            raise CatalogueError(f"catalogue {url}: no object under 'links'", hint=EXPECTED)
        yield from (_offer(site, entry, topic, reply.sha256) for entry in reply.data["data"])
        if not reply.data["links"].get("next"):
            return
    raise CatalogueError(
        f"catalogue {site.base}: more than {MAX_PAGES} pages for {query!r}",
        hint="its links.next never ends; check the server",
    )


def _offer(site: Site, entry: Any, topic: Topic, digest: str) -> Offer:
    if not isinstance(entry, dict):
        raise CatalogueError(f"catalogue {site.base}: entry {entry!r} is no object", hint=EXPECTED)
    missing = [key for key in ("id", "title", "pdf") if not isinstance(entry.get(key), str | int)]
    if missing:
        raise CatalogueError(f"catalogue {site.base}: entry {entry!r} lacks {', '.join(missing)}", hint=EXPECTED)
    licence, pairs, pdf = _read_licence(entry.get("license")), objects(entry.get("subjects")), str(entry["pdf"])
    if pdf.startswith(f"{site.base}/") or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", pdf):
        # The port of a loopback server differs between runs and must not enter the registry.
        pdf = f"{SCHEME}/{pdf.removeprefix(site.base).lstrip('/')}"
    return site.offer(
        topic,
        licence,
        offer_id=str(entry["id"]),
        title=str(entry["title"]),
        author=str(entry.get("author") or ""),
        description=str(entry.get("description") or ""),
        category=str(entry.get("category") or "textbook"),
        subjects=[subject(str(pair.get("domain", "")), str(pair.get("subdomain", ""))) for pair in pairs],
        source_url=f"{SCHEME}/catalogue.json#{entry['id']}",
        download_url=pdf,
        doi=str(entry.get("doi") or ""),
        isbn=str(entry.get("isbn") or ""),
        arxiv=str(entry.get("arxiv") or ""),
        answer=digest,
    )


def resolve(site: Site, download_url: str) -> str:
    """Turn `local:/path` into an absolute address; any other address is returned unchanged."""
    if not download_url.startswith(SCHEME):
        return download_url
    return urljoin(f"{site.base}/", download_url.removeprefix(SCHEME).lstrip("/"))


def _read_licence(field: Any) -> licences.Licence:
    """Read the field `license`: `{spdx, url}` or text. An unknown identifier is kept: the allow-list may name it."""
    if isinstance(field, dict) and field.get("spdx"):
        spdx = str(field["spdx"])
        evidence = f"license.spdx={spdx}; license.url={field.get('url', '')}"
        return licences.Licence(spdx=licences.spdx_of(spdx) or spdx, evidence=evidence)
    return licences.read("license", field)
