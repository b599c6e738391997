"""Catalogue arXiv: its books and lecture notes. Only its OAI-PMH interface states licences, and most are not open."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from corpus.find import licences
from corpus.find.catalogue import Offer, Params, Site, ask_xml, get_record, text_of
from corpus.find.identifiers import parts_of
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

BASE = "https://export.arxiv.org"
OAI_BASE = "https://oaipmh.arxiv.org/oai"
MAX_RESULTS = 50
MIN_PAGES = 60
"""Least number of pages of a paper that counts as a book although title and comment do not call it one."""
ATOM = "{http://www.w3.org/2005/Atom}"
ARXIV = "{http://arxiv.org/schemas/atom}"
RAW = "{http://arxiv.org/OAI/arXivRaw/}"
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


def find(site: Site, topic: Topic, query: str) -> Iterator[Offer]:
    """Search `GET {base}/api/query` (Atom) for books and lecture notes; the licence of each takes one more request."""
    # Papers with all words of the query in any field, and one of the words that announce teaching material.
    about = " AND ".join(f"all:{word}" for word in re.findall(r"[\w-]+", query))
    kinds = 'ti:"lecture notes" OR ti:lectures OR ti:textbook OR co:"lecture notes" OR co:textbook OR co:book'
    params: Params = {"search_query": f"({about}) AND ({kinds})", "start": 0, "max_results": MAX_RESULTS}
    reply = ask_xml(site.client, f"{site.base}/api/query", params, expected=EXPECTED)
    if reply.data.tag != f"{ATOM}feed":
        raise CatalogueError(f"catalogue {site.base}: the answer is no Atom feed", hint=EXPECTED)
    for entry in reply.data.findall(f"{ATOM}entry"):
        if _text(entry, "title") == "Error":
            # arXiv answers a wrong parameter with status 200 and one entry of this title.
            raise CatalogueError(f"catalogue {site.base}: {_text(entry, 'summary')}", hint=EXPECTED)
        about_entry = _title_and_comment(entry)
        is_long = any(int(number) >= MIN_PAGES for number in PAGES.findall(about_entry))
        if not NOT_TEACHING.search(about_entry) and (is_long or TEACHING.search(about_entry)):
            yield _offer(site, entry, topic, reply.sha256)


def _offer(site: Site, entry: ElementTree.Element, topic: Topic, digest: str) -> Offer:
    paper = parts_of(_text(entry, "id")).path.removeprefix("/abs/")
    # The licence is in the paper's OAI record, at arXiv's OAI host or at `/oai2` of another base.
    identifier = "oai:arXiv.org:" + re.sub(r"v\d+$", "", paper)
    params: Params = {"verb": "GetRecord", "metadataPrefix": "arXivRaw", "identifier": identifier}
    url = OAI_BASE if site.base == BASE else f"{site.base}/oai2"
    licence = get_record(site.client, url, params, expected=EXPECTED_OAI)
    if not isinstance(licence, licences.Licence):
        fields = [licences.read("arXivRaw.license", text_of(row.text)) for row in licence.iter(f"{RAW}license")]
        licence = licences.agree(fields)
    return site.offer(
        topic,
        licence,
        offer_id=paper,
        title=_text(entry, "title"),
        author="; ".join(_text(author, "name") for author in entry.findall(f"{ATOM}author")),
        description=_text(entry, "summary"),
        category="notes" if "lecture" in _title_and_comment(entry).lower() else "textbook",
        keywords=[row.get("term", "") for row in entry.findall(f"{ATOM}category")],
        source_url=f"https://arxiv.org/abs/{paper}",
        download_url=f"https://arxiv.org/pdf/{paper}",
        doi=text_of(entry.findtext(f"{ARXIV}doi")),
        arxiv=paper,
        answer=digest,
    )


def _title_and_comment(entry: ElementTree.Element) -> str:
    return f"{_text(entry, 'title')} . {text_of(entry.findtext(f'{ARXIV}comment'))}"


def _text(element: ElementTree.Element, name: str) -> str:
    return text_of(element.findtext(f"{ATOM}{name}"))
