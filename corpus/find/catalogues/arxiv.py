"""arXiv: books and lecture notes among its papers. The licence stands in OAI-PMH alone, and most are not open."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import httpx

from corpus.find import licences
from corpus.find.catalogue import Offer, Reply, ask_xml, text_of
from corpus.find.identifiers import path_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://export.arxiv.org"
OAI_BASE = "https://oaipmh.arxiv.org/oai"
MAX_RESULTS = 50
MIN_PAGES = 60
"""Pages from which on a paper counts as book-length where its title and comment do not say what it is."""
ATOM = "{http://www.w3.org/2005/Atom}"
ARXIV = "{http://arxiv.org/schemas/atom}"
RAW = "{http://arxiv.org/OAI/arXivRaw/}"
OAI = "{http://www.openarchives.org/OAI/2.0/}"
EXPECTED = "expected an Atom feed; arXiv asks for 3 s between two requests and answers 'Rate exceeded.' otherwise"
EXPECTED_OAI = "expected an OAI-PMH record in the format arXivRaw"
TEACHING = re.compile(
    r"\b(?:lecture notes?|lectures (?:on|in|given|delivered)|course notes?|text ?book|graduate course|monograph|"
    r"introductory course|book)\b",
    re.IGNORECASE,
)
NOT_TEACHING = re.compile(
    r"\b(?:book review|review of the book|book chapter|chapter in (?:a|the) book)\b", re.IGNORECASE
)
PAGES = re.compile(r"\b(\d{2,4})\s*(?:\+\s*\d+\s*)?p(?:ages|p)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arxiv:
    """Client of `GET {base}/api/query` (Atom) and of `GET {oai}?verb=GetRecord` (licence)."""

    base: str
    """Address of the search interface's host."""
    oai: str
    """Address of the OAI-PMH interface."""
    client: httpx.Client
    """The client that asks."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        return "arxiv"

    def search(self, topic: Topic, query: str = "") -> list[Offer]:
        """Books and lecture notes found for the query; one more question each, for the licence."""
        reply = ask_xml(self.client, f"{self.base}/api/query", _params(query or topic.subdomain), expected=EXPECTED)
        if reply.data.tag != f"{ATOM}feed":
            raise CatalogueError(f"catalogue {self.base}: the answer is no Atom feed", hint=EXPECTED)
        entries = reply.data.findall(f"{ATOM}entry")
        for entry in entries:
            if _text(entry, "title") == "Error":
                # A wrong parameter is answered with status 200 and one entry of this title.
                raise CatalogueError(f"catalogue {self.base}: {_text(entry, 'summary')}", hint=EXPECTED)
        return [self._offer(entry, topic, reply) for entry in entries if _teaches(entry)]

    def address(self, download_url: str) -> str:
        """arXiv's address, as it is."""
        return download_url

    def _offer(self, entry: ElementTree.Element, topic: Topic, reply: Reply) -> Offer:
        paper = path_of(_text(entry, "id")).removeprefix("/abs/")
        licence = self._licence(re.sub(r"v\d+$", "", paper))
        authors = [_text(author, "name") for author in entry.findall(f"{ATOM}author")]
        return Offer(
            catalogue=self.name,
            offer_id=paper,
            title=_text(entry, "title"),
            author="; ".join(authors),
            description=_text(entry, "summary"),
            category="notes" if "lecture" in _said(entry).lower() else "textbook",
            keywords=[row.get("term", "") for row in entry.findall(f"{ATOM}category")],
            discipline=topic.domain,
            licence=licence.spdx,
            licence_evidence=licence.evidence,
            source_url=f"https://arxiv.org/abs/{paper}",
            download_url=f"https://arxiv.org/pdf/{paper}",
            doi=text_of(entry.findtext(f"{ARXIV}doi")),
            arxiv=paper,
            answer=reply.sha256,
        )

    def _licence(self, paper: str) -> licences.Licence:
        params = {"verb": "GetRecord", "metadataPrefix": "arXivRaw", "identifier": f"oai:arXiv.org:{paper}"}
        try:
            root = ask_xml(self.client, self.oai, params, expected=EXPECTED_OAI).data
        except CatalogueError as failure:
            # One record that cannot be read costs one book, not the whole answer.
            return licences.Licence(spdx="", evidence=f"not readable: {failure.message}")
        error = root.find(f"{OAI}error")
        if error is not None:
            return licences.Licence(spdx="", evidence=f"OAI-PMH error {error.get('code')}: {text_of(error.text)}")
        found = [licences.read("arXivRaw.license", text_of(row.text)) for row in root.iter(f"{RAW}license")]
        return licences.agree(found)


def _params(query: str) -> dict[str, str | int]:
    """Words of the query anywhere, and one of the words by which authors announce teaching material."""
    words = re.findall(r"[\w-]+", query)
    about = " AND ".join(f"all:{word}" for word in words)
    kinds = 'ti:"lecture notes" OR ti:lectures OR ti:textbook OR co:"lecture notes" OR co:textbook OR co:book'
    return {"search_query": f"({about}) AND ({kinds})", "start": 0, "max_results": MAX_RESULTS}


def _teaches(entry: ElementTree.Element) -> bool:
    said = _said(entry)
    pages = [int(number) for number in PAGES.findall(said)]
    if NOT_TEACHING.search(said):
        return False
    return bool(TEACHING.search(said)) or any(number >= MIN_PAGES for number in pages)


def _said(entry: ElementTree.Element) -> str:
    return f"{_text(entry, 'title')} . {text_of(entry.findtext(f'{ARXIV}comment'))}"


def _text(element: ElementTree.Element, name: str) -> str:
    return text_of(element.findtext(f"{ATOM}{name}"))


def connect(base: str, *, client: httpx.Client) -> Arxiv:
    """arXiv's public interfaces, or both at `base`: `/api/query` and `/oai2`."""
    oai = f"{base.rstrip('/')}/oai2" if base else OAI_BASE
    return Arxiv(base=(base or BASE).rstrip("/"), oai=oai, client=client)
