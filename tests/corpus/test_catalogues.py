"""Every shipped catalogue is read in its documented shape, and one of your own is one small file."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from launcher import ROOT, Launcher
from loopback import GUARD, Loopback, Say, Seen, guarded, recorded, serving

from corpus.find.catalogue import Offer, connect
from corpus.find.catalogues import local
from infuser_core.errors import CatalogueError, ConfigError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)


def search(name: str, base: str, query: str = "Optics") -> list[Offer]:
    with guarded() as client:
        return connect(name, base=base, client=client).search(TOPIC, query)


def by_page(**files: str):
    """An answer by the value of one query parameter, `page_1` for `page=1`."""

    def answer(seen: Seen, number: int) -> Say:
        for key, name in files.items():
            parameter, _, value = key.rpartition("_")
            if seen.query.get(parameter) == value:
                return recorded(name)
        return Say(status=404)

    return answer


def test_open_textbook_library(server):
    server.routes["/textbooks.json"] = by_page(
        page_1="open_textbook_library_1.json", page_2="open_textbook_library_2.json"
    )
    rays, makers, light = search("open_textbook_library", server.base, "optics")
    assert {seen.query["q"] for seen in server.seen} == {"optics"}
    assert rays.title == "Rays and Waves: A First Course in Optics"
    assert rays.author == "Ida M. Prism; Leo Lens"
    assert rays.description == "Covers optics from lenses to lasers."
    assert (rays.licence, rays.licence_evidence) == ("CC-BY", "license=CC BY")
    assert rays.download_url == "https://press.example/rays.pdf" and rays.isbn == "9781111111113"
    assert rays.keywords == ["Physics", "Natural Sciences"] and rays.language == "eng"
    assert rays.source_url == f"{server.base}/textbooks/901" and rays.discipline == "Physics"
    assert (makers.licence, makers.download_url) == ("CC-BY-NC-SA", "")
    assert (light.licence, light.licence_evidence, light.author) == ("", "license=None", "")
    assert len({rays.answer, light.answer}) == 2


def test_oapen(server):
    handles = {"501": "oapen_501.xml", "502": "oapen_502.xml", "505": "oapen_505.xml"}

    def record(seen: Seen, number: int) -> Say:
        assert seen.query["metadataPrefix"] == "xoai" and seen.query["identifier"].startswith("oai:library.oapen.org:")
        return recorded(handles.get(seen.query["identifier"][-3:], "oai_unknown.xml"))

    server.routes |= {"/rest/search": recorded("oapen_search.json"), "/oai/request": record}
    modern, society, cover, torn, gone = search("oapen", server.base)
    assert modern.author == "Prism, Ida; Lens, Leo" and modern.doi == "10.5555/OPT.501"
    assert modern.isbn == "9781111111113; 9781111111120" and modern.other_ids == ["hdl:20.500.12657/501"]
    assert modern.download_url == f"{server.base}/rest/bitstreams/b3/retrieve"
    assert (
        modern.licence == "CC-BY-4.0"
        and "rightsuri=https://creativecommons.org/licenses/by/4.0/" in modern.licence_evidence
    )
    assert society.licence == "CC-BY-NC-ND-4.0" and society.author == "Mirror, Mona"
    assert (cover.download_url, cover.licence_evidence) == ("", "not asked: no PDF")
    assert torn.licence == "" and torn.licence_evidence.startswith("contradicting fields")
    assert gone.licence == "" and "idDoesNotExist" in gone.licence_evidence
    asked = next(seen.query for seen in server.seen if seen.path == "/rest/search")
    assert asked["expand"] == "metadata,bitstreams" and asked["query"] == "Optics"


def test_a_record_that_cannot_be_read_costs_one_book(server):
    server.routes |= {"/rest/search": recorded("oapen_search.json"), "/oai/request": Say(status=404)}
    assert [offer.licence for offer in search("oapen", server.base)] == [""] * 5
    assert "HTTP 404" in search("oapen", server.base)[0].licence_evidence


def test_doab(server):
    server.routes |= {"/rest/search": recorded("doab_search.json"), "/oai/request": recorded("doab_701.xml")}
    (book,) = search("doab", server.base)
    assert book.download_url == "https://press.example/modern-optics.pdf" and book.licence == "CC-BY-4.0"
    assert book.other_ids == ["hdl:20.500.12854/701", "hdl:20.500.12657/501"]
    assert server.seen[0].query["query"] == '"Optics"'


def test_libretexts_is_read_to_its_end_and_filtered(server):
    server.routes["/api/v1/commons/catalog"] = by_page(page_1="libretexts_1.json", page_2="libretexts_2.json")
    offers = search("libretexts", server.base)
    assert [offer.offer_id for offer in offers] == ["phys-1", "phys-3", "phys-4", "phys-5"]
    assert [offer.licence for offer in offers] == ["CC-BY", "CC-BY-NC-SA", "", "LicenseRef-all-rights-reserved"]
    assert offers[0].download_url == "https://batch.example/print/phys-1.pdf"
    assert len(server.seen) == 2


def test_a_listing_that_repeats_itself_comes_to_an_end(server):
    server.routes["/api/v1/commons/catalog"] = recorded("libretexts_1.json")
    assert len(search("libretexts", server.base)) == 2 and len(server.seen) == 2


def test_pressbooks_pages_by_the_header_and_leaves_the_books_own_interface_alone(server):
    pages = {"1": "pressbooks_1.json", "2": "pressbooks_2.json"}
    server.routes["/wp-json/pressbooks/v2/books"] = lambda seen, n: recorded(
        pages[seen.query["page"]], X_WP_TotalPages="2", X_WP_Total="4"
    )
    hand, more, old = search("pressbooks", server.base)
    assert hand.title == "Optics by Hand" and hand.author == "Pat Press"
    assert hand.licence == "CC-BY-SA-4.0" and "metadata.license.url=" in hand.licence_evidence
    assert hand.download_url == "https://network.example/book2/open/download?type=pdf"
    assert (hand.doi, hand.isbn) == ("10.5555/press.2", "978-1-111111-11-3")
    assert more.licence == "LicenseRef-all-rights-reserved" and old.licence == ""
    assert {seen.path for seen in server.seen} == {"/wp-json/pressbooks/v2/books"}
    assert all(seen.query["per_page"] == "10" for seen in server.seen)


def test_openstax_takes_the_licence_of_the_version_that_is_offered(server):
    server.routes["/apps/cms/api/v2/pages/"] = recorded("openstax.json")
    first, second = search("openstax", server.base)
    assert (first.licence, second.licence) == ("CC-BY-4.0", "CC-BY-NC-SA-4.0")
    assert first.licence_evidence == "license_name + license_version=Creative Commons Attribution License 4.0"
    assert first.author == "Stax Writer" and first.download_url == "https://assets.example/1-web.pdf"
    assert first.other_ids == ["cnx:0000-1"] and first.source_url == "https://stax.example/details/s1"
    assert server.seen[0].query["type"] == "books.Book"


def test_arxiv_keeps_books_and_notes_and_asks_oai_for_the_licence(server):
    files = {
        "oai:arXiv.org:2601.00001": "arxiv_2601.00001.xml",
        "oai:arXiv.org:math-ph/0601002": "arxiv_math-ph_0601002.xml",
    }
    server.routes["/api/query"] = recorded("arxiv_search.xml")
    server.routes["/oai2"] = lambda seen, n: recorded(files[seen.query["identifier"]])
    notes, monograph = search("arxiv", server.base, "wave optics")
    assert notes.title == "Lecture Notes on Optics" and notes.description == "Notes of a course."
    assert (notes.category, notes.licence, notes.arxiv) == ("notes", "CC-BY-SA-4.0", "2601.00001v2")
    assert notes.download_url == "https://arxiv.org/pdf/2601.00001v2" and notes.author == "Ida Prism; Leo Lens"
    assert monograph.licence == "LicenseRef-arXiv-nonexclusive-distrib-1.0" and monograph.doi == "10.5555/mono"
    assert "all:wave AND all:optics" in server.seen[0].query["search_query"]


def test_arxivs_errors_with_status_200_are_errors(server):
    server.routes["/api/query"] = recorded("arxiv_error.xml")
    with pytest.raises(CatalogueError, match="start must be non-negative"):
        search("arxiv", server.base)
    server.routes["/api/query"] = Say(body=b"Rate exceeded.")
    with pytest.raises(CatalogueError, match=r"no XML: .*'Rate exceeded\.'"):
        search("arxiv", server.base)


def test_opds_sections_and_pages_are_followed_once(server):
    server.routes["/opds"] = recorded("opds_root.xml")
    server.routes["/opds/science"] = lambda seen, n: recorded(
        "opds_science_2.xml" if seen.query.get("page") == "2" else "opds_science.xml"
    )
    light, free = search("opds", f"{server.base}/opds")
    assert light.title == "Light" and light.download_url == f"{server.base}/files/1.pdf"
    assert (light.licence, light.isbn, light.language) == ("CC-BY-4.0", "urn:isbn:9781111111113", "en")
    assert light.licence_evidence == "link[license]=https://creativecommons.org/licenses/by/4.0/"
    assert (free.title, free.licence) == ("Optics free", "CC-BY-NC-4.0")
    assert len(server.seen) == 3


def test_opds_search_is_used_where_the_feed_names_one(server):
    server.routes |= {
        "/opds": recorded("opds_search_root.xml"),
        "/opensearch.xml": recorded("opensearch.xml"),
        "/find": recorded("opds_found.xml"),
    }
    (found,) = search("opds", f"{server.base}/opds", "thin films")
    assert found.title == "Rainbows" and server.seen[-1].query == {"q": "thin films"}


XML = {"arxiv": "/api/query", "opds": "/opds"}
JSON = {
    "local": "/catalogue.json",
    "open_textbook_library": "/textbooks.json",
    "oapen": "/rest/search",
    "doab": "/rest/search",
    "libretexts": "/api/v1/commons/catalog",
    "pressbooks": "/wp-json/pressbooks/v2/books",
    "openstax": "/apps/cms/api/v2/pages/",
}
BROKEN = [b"", b"<html>busy</html>", b"[1", b"{}", b'"text"', b"<?xml version='1.0'?><a/>", b"\xff\xfe", b"[" * 100_000]
BOMB = b'<!DOCTYPE a [<!ENTITY b "bbbbbbbb">]><feed xmlns="http://www.w3.org/2005/Atom">&b;</feed>'


def root(name: str, server: Loopback) -> str:
    return f"{server.base}/opds" if name == "opds" else server.base


@pytest.mark.parametrize("name", sorted({**JSON, **XML}))
def test_answers_in_another_shape_name_the_address(server, name):
    for body in [*BROKEN, BOMB]:
        server.routes[{**JSON, **XML}[name]] = Say(body=body)
        with pytest.raises(CatalogueError) as caught:
            search(name, root(name, server))
        assert server.base in caught.value.message and caught.value.hint


@pytest.mark.parametrize("name", sorted({**JSON, **XML}))
def test_rows_of_another_shape_are_passed_over_or_named(server, name):
    """Nothing but a CatalogueError: a strange row must not end the run."""
    odd = b'{"data": [7, {"id": {}}], "links": 3, "books": [7, {}], "numTotal": 2, "items": [7, {}], "meta": {"a": 1}}'
    server.routes[{**JSON, **XML}[name]] = Say(body=odd if name not in ("oapen", "doab", "pressbooks") else b"[7, {}]")
    try:
        assert search(name, root(name, server)) is not None
    except CatalogueError as error:
        assert error.hint


@pytest.mark.parametrize("name", ["opds", "pressbooks"])
def test_catalogues_without_a_public_address_ask_for_one(name):
    with guarded() as client, pytest.raises(ConfigError, match=f"catalogue {name} needs `base`"):
        connect(name, client=client)


def test_a_server_that_does_not_answer_in_time_is_named(server):
    never = threading.Event()
    server.routes["/rest/search"] = Say(body=b"[]", wait=never)
    impatient = replace(GUARD, stall_seconds=0.2)
    with guarded(impatient) as client, pytest.raises(CatalogueError, match="ReadTimeout"):
        connect("oapen", base=server.base, client=client).search(TOPIC, "Optics")
    never.set()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://169.254.169.254/latest/", "169.254.169.254, which is not public"),
        ("http://10.0.0.7/", "not public"),
        ("http://[64:ff9b::a00:7]/", "not public"),
        ("file:///etc/passwd", "refused redirect from http to file"),
        ("/rest/search", "TooManyRedirects"),
    ],
)
def test_redirects_of_a_catalogue_are_guarded(server, target, reason):
    server.routes["/rest/search"] = Say(status=302, headers={"Location": target})
    with pytest.raises(CatalogueError, match=reason):
        search("oapen", server.base)


def test_a_redirect_within_the_catalogue_is_followed(server):
    server.routes |= {"/textbooks.json": Say(status=301, headers={"Location": "/new?page=1"})}
    server.routes["/new"] = recorded("open_textbook_library_2.json")
    assert len(search("open_textbook_library", server.base)) == 1


def test_the_local_catalogue_is_read_page_by_page_and_no_port_is_stored(server):
    rows = [
        {
            "id": "b1",
            "title": "One",
            "license": {"spdx": "CC-BY-4.0", "url": "https://x.example"},
            "pdf": "/books/b1.pdf",
        },
        {"id": "b2", "title": "Two", "license": None, "pdf": "books/b2.pdf"},
    ]
    server.routes["/catalogue.json"] = lambda seen, n: Say(
        body=json.dumps({"data": [rows[n - 1]], "links": {"next": "page 2" if n == 1 else None}}).encode()
    )
    first, second = search("local", server.base)
    assert [seen.query for seen in server.seen] == [{"q": "Optics", "page": "1"}, {"q": "Optics", "page": "2"}]
    assert (first.download_url, second.download_url) == ("local:/books/b1.pdf", "local:/books/b2.pdf")
    assert (first.licence, second.licence) == ("CC-BY-4.0", "")
    assert "license.spdx=CC-BY-4.0" in first.licence_evidence and second.licence_evidence == "license=None"
    assert server.base.rpartition(":")[2] not in repr([first, second])
    with guarded() as client:
        address = local.resolve(connect("local", base=server.base, client=client), second.download_url)
    assert address == f"{server.base}/books/b2.pdf"


@pytest.mark.parametrize(
    "body", [b'{"data": [1], "links": {}}', b'{"data": []}', b'{"data": [{"id": "x"}], "links": {}}']
)
def test_rows_of_the_local_catalogue_must_be_whole(server, body):
    server.routes["/catalogue.json"] = Say(body=body)
    with pytest.raises(CatalogueError, match=server.base):
        search("local", server.base)


def test_an_unreachable_catalogue_is_named_with_a_remedy():
    with pytest.raises(CatalogueError) as caught:
        search("local", "http://127.0.0.1:1")
    assert "ConnectError" in caught.value.message and "start the catalogue" in caught.value.hint


def test_catalogues_are_found_by_name_shipped_or_anybodys(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "shelf.py").write_text("def find(site, topic, query):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    with guarded() as client:
        site = connect("own.shelf", base="http://x/", client=client)
        assert (site.name, site.base, site.search(TOPIC, "Optics")) == ("own.shelf", "http://x", [])
        with pytest.raises(ConfigError) as caught:
            connect("nowhere", base="http://x", client=client)
    assert all(name in caught.value.hint for name in ("arxiv", "doab", "local", "web", "my_package.module"))


FOLDER = ROOT / "examples" / "my_catalogue"
NAME = "examples.my_catalogue.my_catalogue"


def test_a_build_searches_it_and_admits_by_licence(launch: Launcher, tmp_path: Path):
    """Its books' host is invented: they are found, ranked and admitted, and cannot be fetched."""
    topics = [{"question_id": "1", "question_text": "Why do tides turn?", "ground_truth": "the moon"},
              {"question_id": "2", "question_text": "What moves ice?", "ground_truth": "weight"}]  # fmt: skip
    for row, subdomain in zip(topics, ("Tides and rivers", "Ice"), strict=True):
        row |= {"domain": "Earth", "subdomain": subdomain}
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in topics))
    with serving() as server:
        server.routes["/books.json"] = Say(body=(FOLDER / "books.json").read_bytes())
        config = {
            "data": {"dev": {"type": "file", "path": str(tmp_path / "dev.jsonl")}},
            "corpus": {
                "catalogue": {
                    "type": "catalogues",
                    "catalogues": [{"name": NAME, "base": server.base}],
                    "host_delay_seconds": 0.0,
                }
            },
        }
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
        ended = launch(
            *("corpus", "build", "--config", "nano", "--config", str(tmp_path / "own.yaml")),
            *("--out", str(tmp_path / "pool"), "--json"),
            store=tmp_path / "store",
        )
    rejected = {row["reason"] for row in json.loads(ended.out)["source_rejects"]}
    assert rejected == {"download", "licence not allowed", "no licence"}
    assert ended.code == 3 and "https://books.example/ice.pdf" in ended.err
