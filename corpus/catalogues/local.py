"""A JSON catalogue with a paged search and relative PDF addresses, such as the nano lab's shelf."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from corpus.catalogues.protocol import Offer, subject
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
    """The client that asks; see `corpus.guard.client`."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "local"

    def search(self, topic: Topic) -> list[Offer]:
        """Entries found for the topic's subdomain, page by page."""
        offers: list[Offer] = []
        for page in range(1, MAX_PAGES + 1):
            answer = self._get(topic.subdomain, page)
            offers.extend(self._offer(entry, topic) for entry in answer["data"])
            if not answer["links"].get("next"):
                return offers
        raise CatalogueError(
            f"catalogue {self.base}: more than {MAX_PAGES} pages for {topic.subdomain!r}",
            hint="its links.next never ends; check the server",
        )

    def address(self, download_url: str) -> str:
        """The absolute address behind `local:/path`."""
        return urljoin(self.base.rstrip("/") + "/", download_url.removeprefix(SCHEME).lstrip("/"))

    def _get(self, query: str, page: int) -> dict[str, Any]:
        url = f"{self.base.rstrip('/')}/catalogue.json"
        try:
            response = self.client.get(url, params={"q": query, "page": page})
            response.raise_for_status()
            answer = response.json()
        except httpx.HTTPError as error:
            raise CatalogueError(
                f"catalogue {url}: {type(error).__name__}: {error}", hint="start the catalogue or correct its address"
            ) from error
        except ValueError as error:
            raise CatalogueError(f"catalogue {url}: the answer is no JSON: {error}", hint=EXPECTED) from error
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            raise CatalogueError(f"catalogue {url}: no list under 'data'", hint=EXPECTED)
        if not isinstance(answer.get("links"), dict):
            raise CatalogueError(f"catalogue {url}: no object under 'links'", hint=EXPECTED)
        return answer

    def _offer(self, entry: Any, topic: Topic) -> Offer:
        if not isinstance(entry, dict):
            raise CatalogueError(f"catalogue {self.base}: entry {entry!r} is no object", hint=EXPECTED)
        missing = [key for key in ("id", "title", "pdf") if not isinstance(entry.get(key), str | int)]
        if missing:
            raise CatalogueError(f"catalogue {self.base}: entry {entry!r} lacks {', '.join(missing)}", hint=EXPECTED)
        licence, evidence = _licence(entry.get("license"))
        return Offer(
            catalogue=self.name,
            offer_id=str(entry["id"]),
            title=str(entry["title"]),
            author=str(entry.get("author") or ""),
            description=str(entry.get("description") or ""),
            category=str(entry.get("category") or "textbook"),
            subjects=_subjects(entry.get("subjects")),
            discipline=topic.domain,
            licence=licence,
            licence_evidence=evidence,
            source_url=f"{SCHEME}/catalogue.json#{entry['id']}",
            download_url=self._relative(str(entry["pdf"])),
            doi=str(entry.get("doi") or ""),
            isbn=str(entry.get("isbn") or ""),
            arxiv=str(entry.get("arxiv") or ""),
        )

    def _relative(self, pdf: str) -> str:
        """`local:/path`: the port of a loopback server differs in every run and must not reach the registry."""
        if urlsplit(pdf).scheme and not pdf.startswith(self.base.rstrip("/") + "/"):
            return pdf
        return f"{SCHEME}/{pdf.removeprefix(self.base.rstrip('/')).lstrip('/')}"


EXPECTED = "expected {data: [{id, title, pdf, license, subjects, ...}], links: {next}}"


def _licence(field: Any) -> tuple[str, str]:
    if isinstance(field, dict) and field.get("spdx"):
        return str(field["spdx"]), f"license.spdx={field['spdx']}; license.url={field.get('url', '')}"
    return "", f"license={field!r}"


def _subjects(field: Any) -> list[str]:
    rows = field if isinstance(field, list) else []
    return [subject(str(r.get("domain", "")), str(r.get("subdomain", ""))) for r in rows if isinstance(r, dict)]


def connect(base: str, *, client: httpx.Client) -> LocalCatalogue:
    """The catalogue at `base`."""
    return LocalCatalogue(base=base, client=client)
