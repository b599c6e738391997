"""Common parts of all textbook catalogues: find a catalogue by name, search it, request JSON and XML, and the offers.

An offer is an entry that a catalogue has for a topic, a (domain, subdomain) pair.
"""

import hashlib
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import ModuleType
from typing import TYPE_CHECKING, Any

from corpus.find.licences import UNKNOWN, Licence
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.errors import CatalogueError, ConfigError
from infuser_core.plugins import Registry
from infuser_core.schemas import Topic

if TYPE_CHECKING:
    import httpx

OAI = "{http://www.openarchives.org/OAI/2.0/}"
START = "start the catalogue or correct its address"
Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A book that a catalogue lists for a topic. No field depends on the run, such as the port of a local server."""

    catalogue: str
    """Module name of the catalogue."""
    offer_id: str
    """The catalogue's identifier of the entry."""
    title: str
    author: str = ""
    """Authors, joined by "; "."""
    description: str = ""
    category: str = "textbook"
    """textbook, reference, tutorial or notes."""
    subjects: list[str] = field(default_factory=list)
    """Pairs that the entry covers according to the catalogue, each `domain / subdomain`; empty if it does not say."""
    keywords: list[str] = field(default_factory=list)
    """The catalogue's subject terms."""
    language: str = ""
    """Language in the catalogue's spelling, or empty."""
    discipline: str
    """Domain of the topic of the search."""
    licence: str
    """SPDX identifier, or empty if the catalogue names none."""
    licence_evidence: str
    """Field and value from which the licence was read."""
    source_url: str
    """Page that describes the entry."""
    download_url: str
    """Address of the PDF, or empty without one; a loopback catalogue writes `local:/path`."""
    doi: str = ""
    isbn: str = ""
    """ISBNs, joined by "; "."""
    arxiv: str = ""
    """arXiv identifier."""
    other_ids: list[str] = field(default_factory=list)
    """Further identifiers that are valid in every catalogue, such as `hdl:20.500.12657/1`."""
    answer: str = ""
    """Digest of the recorded answer with the entry."""

    @property
    def key(self) -> tuple[str, str]:
        """Catalogue and offer_id, which together identify the entry among all catalogues."""
        return self.catalogue, self.offer_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A catalogue at an address. It receives queries for (domain, subdomain) pairs, never the text of a question."""

    name: str
    """Module name of the catalogue."""
    base: str
    """Address of the catalogue, without a slash at its end."""
    feed: str
    """The same address as in the settings, which may end in a slash."""
    client: "httpx.Client"
    """Sends the requests; see `corpus.find.session`."""
    find: Callable[["Site", Topic, str], Iterable[Offer]]
    """Returns the entries for a topic and a query; an entry may be repeated."""
    resolve: Callable[["Site", str], str] | None = None
    """Turns a stored address into the address to fetch; None unless the catalogue stores addresses without its host."""

    def offer(self, topic: Topic, licence: Licence, **facts: Any) -> Offer:
        """Build an offer of this catalogue for a topic; `facts` are the remaining fields of Offer."""
        return Offer(
            catalogue=self.name,
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            **facts,
        )

    def search(self, topic: Topic, query: str) -> list[Offer]:
        """Search the catalogue: the distinct entries for the query, in the catalogue's order.

        Raises CatalogueError if the catalogue cannot be reached or answers in an unknown shape.
        """
        offers: dict[str, Offer] = {}
        for offer in self.find(self, topic, query):
            offers.setdefault(offer.offer_id, offer)
        return list(offers.values())


def subject(domain: str, subdomain: str) -> str:
    """Join domain and subdomain as `domain / subdomain`, case-folded, so that pairs can be compared."""
    return f"{domain.strip()} / {subdomain.strip()}".casefold()


SHIPPED = Registry(kind="catalogue", package="corpus.find.catalogues", outside="my_package.module")
"""The catalogues of the folder. Each module has `find(site, topic, query)`; optional: `BASE`, the public address, and
`resolve`, for a catalogue that stores addresses without its host."""


def connect(name: str, *, base: str = "", client: "httpx.Client") -> Site:
    """Make the catalogue `name`, from a module of the folder `catalogues` or from a plugin module of the same form.

    An empty base means the catalogue's default address. Raises ConfigError if it has none.
    """
    module, find = SHIPPED.find(name, "find")
    address = _address(module, name, base)
    resolve = getattr(module, "resolve", None)
    return Site(name=name, base=address.rstrip("/"), feed=address, client=client, find=find, resolve=resolve)


def _address(module: ModuleType, name: str, base: str) -> str:
    address = base or str(getattr(module, "BASE", ""))
    if not address:
        hint = "give its address, e.g. https://NETWORK.example"
        raise ConfigError(f"catalogue {name} needs `base`: it has no public address", hint=hint)
    return address


def require_addresses(settings: CatalogueSettings) -> None:
    """Check the addresses of all configured catalogues.

    Raises ConfigError for a catalogue without an address, and if several catalogues store addresses without their host.
    """
    hostless = []
    for entry in settings.catalogues if settings.type == "catalogues" else []:
        module, _ = SHIPPED.find(entry.name, "find")
        _address(module, entry.name, entry.base)
        hostless += [entry.name] if hasattr(module, "resolve") else []
    if len(hostless) > 1:
        message = f"corpus.catalogue.catalogues: only one of {', '.join(hostless)} can be used"
        raise ConfigError(message, hint="their addresses are stored without their host, and would be confused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A catalogue's answer to one request, parsed."""

    url: str
    """Address that answered, after redirects."""
    data: Any
    """JSON value, XML element, or text."""
    headers: Mapping[str, str]
    """Response headers by name in lower case."""
    sha256: str
    """Digest of the body."""


def ask_json(client: "httpx.Client", url: str, params: Params | None = None, *, expected: str) -> Reply:
    """Request a JSON answer. `expected` describes what the catalogue should send; it is the hint of an error."""
    return _request(client, url, params, json.loads, "JSON", expected)


def ask_xml(client: "httpx.Client", url: str, params: Params | None = None, *, expected: str) -> Reply:
    """Request an XML answer; `data` is its root. Refuse a document type: its entities can expand without end."""

    def parse(content: bytes) -> ElementTree.Element:
        if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            raise ValueError("it declares a document type")
        return ElementTree.fromstring(content)

    return _request(client, url, params, parse, "XML", expected)


def ask_text(client: "httpx.Client", url: str) -> Reply:
    """Request an answer as text; broken characters become U+FFFD."""
    return _request(client, url, None, lambda content: content.decode("utf-8", errors="replace"), "text", "")


def get_record(client: "httpx.Client", url: str, params: Params, *, expected: str) -> ElementTree.Element | Licence:
    """Request an OAI-PMH record: its root element, or an unknown licence whose evidence says why there is no record.

    A record that cannot be read loses one book, not the whole search.
    """
    try:
        root: ElementTree.Element = ask_xml(client, url, params, expected=expected).data
    except CatalogueError as failure:
        return Licence(spdx=UNKNOWN, evidence=f"not readable: {failure.message}")
    error = root.find(f"{OAI}error")
    if error is None:
        return root
    return Licence(spdx=UNKNOWN, evidence=f"OAI-PMH error {error.get('code')}: {text_of(error.text)}")


def rows_of(reply: Reply, key: str, *, expected: str) -> list[dict[str, Any]]:
    """The JSON objects in the list under `key` of an answer. Raises CatalogueError if there is no such list."""
    rows = reply.data.get(key) if isinstance(reply.data, dict) else None
    if not isinstance(rows, list):
        raise CatalogueError(f"catalogue {reply.url}: no list under {key!r}", hint=expected)
    return objects(rows)


def _request(
    client: "httpx.Client",
    url: str,
    params: Params | None,
    parse: Callable[[bytes], Any],
    kind: str,
    expected: str,
) -> Reply:
    response = _get(client, url, params)
    content = response.content
    try:
        data = parse(content)
    except (ValueError, RecursionError, ElementTree.ParseError) as error:
        beginning = content[:60].decode(errors="replace")
        raise CatalogueError(
            f"catalogue {url}: the answer is no {kind}: {error}; it begins {beginning!r}", hint=expected
        ) from error
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(url=str(response.request.url), data=data, headers=headers, sha256=hashlib.sha256(content).hexdigest())


def _get(client: "httpx.Client", url: str, params: Params | None) -> "httpx.Response":
    # Imported here because a plan of a run imports this module but sends no request.
    import httpx

    try:
        response = client.get(httpx.URL(url).copy_merge_params(dict(params or {})))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CatalogueError(f"catalogue {url}: {type(error).__name__}: {error}", hint=START) from error
    except CatalogueError as error:
        raise CatalogueError(f"catalogue {url}: {error.message}", hint=error.hint) from error
    if not response.is_success:
        raise CatalogueError(f"catalogue {url}: HTTP {response.status_code}", hint=START)
    return response


def text_of(value: object) -> str:
    """A JSON or XML field as one line of text; empty for missing and structured values."""
    return " ".join(str(value).split()) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def texts_of(row: Mapping[str, Any], *keys: str) -> str:
    """The non-empty fields `keys` of a JSON object, joined by "; "."""
    return "; ".join(filter(None, (text_of(row.get(key)) for key in keys)))


def objects(value: object) -> list[dict[str, Any]]:
    """The JSON objects in a list; an empty list if `value` is not a list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def plain(html: object) -> str:
    """Strip the tags from HTML; returns one line of text."""
    reader = _Text()
    reader.feed(text_of(html))
    reader.close()
    return " ".join("".join(reader.parts).split())


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(" ")
