"""Catalogues are opened as the settings say, recorded answer by answer, and replayed without a network."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest
from corpus_sources import PDF, source
from loopback import GUARD, Loopback, Say, recorded, serving

from corpus.find import landing_page
from corpus.find.catalogue import Offer, connect
from corpus.find.download import Holdings, download_sources
from corpus.find.queries import PROMPTS, librarian_of
from corpus.find.search import search_topic
from corpus.find.session import ResponseRecorder, live_recorder, open_catalogues, replaying_recorder, run_web_search
from infuser_core.config.corpus import CatalogueEntry, CatalogueSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.errors import CatalogueError, ConfigError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
SHELF = (
    b"""{"data": [{"id": "a", "title": "Optics", "pdf": "/a.pdf", "license": {"spdx": "CC-BY-4.0"}}], "links": {}}"""
)


@pytest.fixture
def server():
    with serving() as loopback:
        loopback.routes |= {"/rest/search": recorded("doab_search.json"), "/oai/request": recorded("doab_701.xml")}
        yield loopback


def search(session: ResponseRecorder, server: Loopback) -> list[Offer]:
    return connect("doab", base=server.base, client=session.client).search(TOPIC, "Optics")


def test_the_record_gives_the_same_offers_when_the_server_is_gone(server, tmp_path):
    with live_recorder(GUARD, tmp_path) as session:
        (offer,) = offers = search(session, server)
    first = session.answers[0]
    assert first.url.startswith(f"{server.base}/rest/search?query=")
    assert first.sha256 == hashlib.sha256(first.content()).hexdigest() == offer.answer
    assert first.asked_on.endswith("+00:00") and first.status_code == 200
    asked = len(server.seen)
    with replaying_recorder(tmp_path) as again:
        assert search(again, server) == offers
        assert again.answers == session.answers
        with pytest.raises(CatalogueError, match="replay: no recorded answer for http"):
            connect("oapen", base=server.base, client=again.client).search(TOPIC, "other")
    assert len(server.seen) == asked


def test_a_body_that_is_no_text_survives_the_record(server):
    server.routes["/rest/search"] = Say(body=b"[\xff]")
    with live_recorder(GUARD) as session:
        with pytest.raises(CatalogueError, match="no JSON"):
            search(session, server)
    assert session.answers[0].encoding == "base64" and session.answers[0].content() == b"[\xff]"


def test_a_later_session_takes_young_answers_from_the_folder_and_asks_for_old_ones(server, tmp_path):
    for days, asked in ((7.0, 2), (7.0, 0), (0.0, 2)):
        before = len(server.paths())
        with live_recorder(GUARD, tmp_path, max_age_days=days) as session:
            offers = search(session, server)
        assert len(server.paths()) - before == asked and len(offers) == 1 and len(session.answers) == 2


def test_an_error_is_not_kept_for_later(server, tmp_path):
    server.routes["/rest/search"] = Say(status=404)
    with live_recorder(GUARD, tmp_path) as session:
        with pytest.raises(CatalogueError, match="HTTP 404"):
            search(session, server)
    assert list(tmp_path.iterdir()) == [] and session.answers[0].status_code == 404


def test_a_damaged_answer_on_disk_is_asked_for_again(server, tmp_path):
    with live_recorder(GUARD, tmp_path) as session:
        search(session, server)
    for path, damage in zip(sorted(tmp_path.iterdir()), ("{", None), strict=True):
        values = json.loads(path.read_text())
        path.write_text(damage or json.dumps({**values, "body": values["body"] + " "}))
    before = len(server.paths())
    with live_recorder(GUARD, tmp_path) as session:
        assert len(search(session, server)) == 1
    assert len(server.paths()) - before == 2


def test_a_body_that_breaks_off_is_asked_for_once_more(server):
    whole = recorded("doab_search.json")
    server.routes["/rest/search"] = lambda seen, n: replace(whole, length=len(whole.body) + 9) if n == 1 else whole
    with live_recorder(GUARD) as session:
        assert len(search(session, server)) == 1


def test_a_packed_answer_is_refused(server):
    server.routes["/rest/search"] = Say(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    with live_recorder(GUARD) as session, pytest.raises(CatalogueError, match="encoding gzip"):
        search(session, server)


def test_the_web_is_searched_by_a_command_and_a_page_that_states_licence_and_file_can_be_taken(server, tmp_path):
    server.routes |= {"/book": recorded("landing.html"), "/plain": Say(body=b"<html><a href='/x.pdf'>x</a></html>")}
    rows = [
        {"title": "T", "url": f"{server.base}{path}", "snippet": "s"} for path in ("/book", "/plain", "/a.pdf", "/no")
    ]
    rows += [{"url": "ftp://x/y"}, rows[0]]
    code = f"import json, sys; assert sys.stdin.read() == 'thin films'; print(json.dumps({rows!r}))"
    with live_recorder(GUARD, tmp_path, search=[sys.executable, "-c", code]) as session:
        book, plain, pdf, gone = connect("web", client=session.client).search(TOPIC, "thin films")
    with replaying_recorder(tmp_path) as again:
        assert connect("web", client=again.client).search(TOPIC, "thin films")[:3] == [book, plain, pdf]
    assert book.title == "Optics for Everybody" and book.author == "Web Writer"
    assert book.licence == "CC-BY-4.0" and "link[rel=license]" in book.licence_evidence
    assert book.download_url == f"{server.base}/files/everybody.pdf" and book.isbn == "9781111111113"
    assert (plain.licence, plain.download_url) == ("", f"{server.base}/x.pdf")
    assert (pdf.licence, pdf.licence_evidence) == ("", "no page states the licence of this file")
    assert gone.licence == "" and "HTTP 404" in gone.licence_evidence


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ([sys.executable, "-c", "print('no json')"], "no JSON"),
        ([sys.executable, "-c", "print('{}')"], "no list of results"),
        ([sys.executable, "-c", "print('[{\"title\": 1}]')"], "no list of results"),
        ([sys.executable, "-c", "import sys; sys.exit('quota used up')"], "failed with status 1: quota used up"),
        (["/nowhere/search"], "cannot start '/nowhere/search'"),
        ([], "no command"),
    ],
)
def test_what_a_search_command_does_wrong_is_named(command, problem):
    with live_recorder(GUARD, search=command) as session, pytest.raises(CatalogueError, match=problem) as caught:
        connect("web", client=session.client).search(TOPIC, "Optics")
    assert caught.value.hint


def test_a_search_command_has_a_time_limit():
    with pytest.raises(CatalogueError, match=r"still running after 0\.3 s"):
        run_web_search([sys.executable, "-c", "import time; time.sleep(9)"], "optics", wall_seconds=0.3)


def test_statements_that_contradict_each_other_give_no_licence():
    page = landing_page.read_page(
        '<a rel="license" href="https://creativecommons.org/licenses/by/4.0/">x</a>'
        '<meta name="DC.rights" content="CC BY-NC 4.0">',
        "https://x.example/",
    )
    assert page.licence.spdx == "" and "contradicting" in page.licence.evidence


@pytest.mark.parametrize(
    "html", ["", "<", "<meta", "<a href='http://[bad.pdf'>", "<script type='application/ld+json'>{", "\x00" * 9]
)
def test_broken_pages_say_nothing(html):
    page = landing_page.read_page(html, "https://x.example/")
    assert (page.licence.spdx, page.pdfs) == ("", [])


def settings_for(base: str, *names: str, **changes: object) -> CatalogueSettings:
    entries = [CatalogueEntry(name=name, base=base) for name in names]
    return CatalogueSettings(type="catalogues", catalogues=entries, host_delay_seconds=0.0, **changes)


def test_the_micro_worlds_shelf_is_one_local_catalogue_and_never_an_older_record(server, tmp_path):
    nano = CatalogueSettings()
    for title in (b"Optics", b"Optics again"):
        server.routes["/catalogue.json"] = Say(body=SHELF.replace(b'"Optics"', b'"' + title + b'"'))
        with open_catalogues(nano, shelf=server.base, folder=tmp_path) as opened:
            (offer,) = search_topic(TOPIC, opened.catalogues, nano).offers
            assert offer.title == title.decode() and opened.recorder.answers
            assert opened.address(offer.download_url) == f"{server.base}/a.pdf"
            assert opened.address("https://x.example/b.pdf") == "https://x.example/b.pdf"


def test_catalogues_are_asked_in_the_order_of_the_settings_under_the_contact(server):
    names = ["doab", "openstax"]
    with open_catalogues(settings_for(server.base, *names), contact="mailto:me@x.example") as opened:
        assert [catalogue.name for catalogue in opened.catalogues] == names
        opened.catalogues[0].search(TOPIC, "Optics")
    assert {seen.headers["User-Agent"] for seen in server.seen} == {"infuser-corpus/0.1 (+mailto:me@x.example)"}


def test_a_recorded_search_runs_without_a_server(tmp_path):
    with serving() as server:
        server.routes["/apps/cms/api/v2/pages/"] = recorded("openstax.json")
        settings = settings_for(server.base, "openstax")
        with open_catalogues(settings, folder=tmp_path) as opened:
            once = search_topic(TOPIC, opened.catalogues, settings)
    settings = settings.model_copy(update={"answers": "recorded"})
    with open_catalogues(settings, folder=tmp_path) as opened:
        assert search_topic(TOPIC, opened.catalogues, settings) == once


def test_only_hosts_that_the_settings_name_may_be_private(server, tmp_path):
    """A public catalogue that points to a machine of the local network is refused at the socket."""
    with open_catalogues(CatalogueSettings(type="catalogues")) as opened:
        config = opened.download
    assert config.allowed_hosts == frozenset()
    rows, shelf = [source("a")], Holdings(tmp_path / "held")
    server.routes["/a.pdf"] = Say(body=PDF)
    (row,), _ = download_sources(rows, lambda url: f"{server.base}/a.pdf", tmp_path / "run", shelf, config)
    assert "refused" in row.reason and server.seen == []


def test_the_web_is_searched_by_the_command_of_the_settings():
    settings = CatalogueSettings(type="catalogues", catalogues=[CatalogueEntry(name="web")])
    with open_catalogues(settings, search="sh -c 'echo []'") as opened:
        assert opened.catalogues[0].search(TOPIC, "Optics") == []


def test_the_models_prompts_come_from_the_profile_or_are_the_shipped_ones(tmp_path):
    chat = ScriptedChat(reply=lambda messages: "")
    (tmp_path / "phrase_query.txt").write_text("own words for {domain} {subdomain} {count}")
    own, nano, paper = (librarian_of(chat, profile).prompts for profile in (str(tmp_path), "nano", "paper"))
    assert own["phrase_query"].user.startswith("own words")
    assert own["rank_books"] == nano["rank_books"] == paper["rank_books"]
    assert tuple(paper) == PROMPTS
    assert "{question}" in paper["assign_topic"].user and "{labels}" in paper["merge_topics"].user


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"type": "local"}, "needs `url`"),
        ({"type": "catalogues", "catalogues": []}, "list of catalogues is empty"),
        ({"books_per_topic": -1}, "greater than or equal to 0"),
        ({"catalogues": [CatalogueEntry(name="doab")], "answer": "live"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_work_say_why(values, problem):
    with pytest.raises(ValueError, match=problem):
        CatalogueSettings(**values)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([CatalogueEntry(name="opds")], "opds needs `base`"),
        ([CatalogueEntry(name="local", base=f"http://{host}") for host in "ab"], "only one of local, local"),
    ],
)
def test_catalogues_that_cannot_be_asked_together_say_why(entries, problem):
    settings = CatalogueSettings(type="catalogues", catalogues=entries)
    with pytest.raises(ConfigError, match=problem), open_catalogues(settings):
        pass
