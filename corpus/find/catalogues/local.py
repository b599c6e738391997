"""A JSON catalogue with a paged search and relative PDF addresses, such as the nano lab's shelf."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx

from corpus.find import licences
from corpus.find.catalogue import Offer, ask_json, subject
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

SCHEME = "local:"
MAX_PAGES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCatalogue:
    """Client of `GET {base}/catalogue.json?q=TEXT&page=N`."""

    base: str
    """Address of the catalogue, without `catalogue.json`."""
    client: httpx.Client
    """The client that asks; see `corpus.find.guard.client`."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "local"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Entries found for the query, page by page."""
        offers: list[Offer] = []
        for page in range(1, MAX_PAGES + 1):
            answer, digest = self._get(query or topic.subdomain, page)
            offers.extend(self._offer(entry, topic, digest) for entry in answer["data"])
            if not answer["links"].get("next"):
                return offers
        raise CatalogueError(
            f"catalogue {self.base}: more than {MAX_PAGES} pages for {query or topic.subdomain!r}",
            hint="its links.next never ends; check the server",
        )

    def address(self, download_url: str) -> str:
        """The absolute address behind `local:/path`."""
        return urljoin(self.base.rstrip("/") + "/", download_url.removeprefix(SCHEME).lstrip("/"))

    def _get(self, query: str, page: int) -> tuple[dict[str, Any], str]:
        url = f"{self.base.rstrip('/')}/catalogue.json"
        reply = ask_json(self.client, url, {"q": query, "page": page}, expected=EXPECTED)
        if not isinstance(reply.data, dict) or not isinstance(reply.data.get("data"), list):
            raise CatalogueError(f"catalogue {url}: no list under 'data'", hint=EXPECTED)
        if not isinstance(reply.data.get("links"), dict):
            raise CatalogueError(f"catalogue {url}: no object under 'links'", hint=EXPECTED)
        return reply.data, reply.sha256

    def _offer(self, entry: Any, topic: Topic, digest: str) -> Offer:
        if not isinstance(entry, dict):
            raise CatalogueError(f"catalogue {self.base}: entry {entry!r} is no object", hint=EXPECTED)
        missing = [key for key in ("id", "title", "pdf") if not isinstance(entry.get(key), str | int)]
        if missing:
            raise CatalogueError(f"catalogue {self.base}: entry {entry!r} lacks {', '.join(missing)}", hint=EXPECTED)
        licence = _licence(entry.get("license"))
        return Offer(
            catalogue=self.name,
            offer_id=str(entry["id"]),
            title=str(entry["title"]),
            author=str(entry.get("author") or ""),
            description=str(entry.get("description") or ""),
            category=str(entry.get("category") or "textbook"),
            subjects=_subjects(entry.get("subjects")),
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=f"{SCHEME}/catalogue.json#{entry['id']}",
            download_url=self._relative(str(entry["pdf"])),
            doi=str(entry.get("doi") or ""),
            isbn=str(entry.get("isbn") or ""),
            arxiv=str(entry.get("arxiv") or ""),
            answer=digest,
        )

    def _relative(self, pdf: str) -> str:
        """`local:/path`: the port of a loopback server differs in every run and must not reach the registry."""
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", pdf) and not pdf.startswith(self.base.rstrip("/") + "/"):
            return pdf
        return f"{SCHEME}/{pdf.removeprefix(self.base.rstrip('/')).lstrip('/')}"


EXPECTED = "expected {data: [{id, title, pdf, license, subjects, ...}], links: {next}}"


def _licence(field: Any) -> licences.Licence:
    """`license` as `{spdx, url}` or as text; an identifier that is none of ours is for the allow-list to know."""
    if isinstance(field, dict) and field.get("spdx"):
        spdx = str(field["spdx"])
        evidence = f"license.spdx={spdx}; license.url={field.get('url', '')}"
        return licences.Licence(spdx=licences.spdx_of(spdx) or spdx, evidence=evidence)
    return licences.read("license", field)


def _subjects(field: Any) -> list[str]:
    rows = field if isinstance(field, list) else []
    return [subject(str(r.get("domain", "")), str(r.get("subdomain", ""))) for r in rows if isinstance(r, dict)]


def connect(base: str, *, client: httpx.Client) -> LocalCatalogue:
    """The catalogue at `base`."""
    return LocalCatalogue(base=base, client=client)
