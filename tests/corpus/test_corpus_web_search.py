"""Web search by a command: results become offers by what their pages say of licence and file."""

import sys
from dataclasses import replace

import pytest
from loopback import GUARD, Say, recorded, serving

from corpus.find import landing
from corpus.find.catalogue import connect
from corpus.find.polite_http import Patience, Politeness
from corpus.find.session import SessionConfig, live, replayed
from corpus.find.web_search import CommandSearch
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
LIVE = SessionConfig(guard=GUARD, politeness=Politeness(delay_seconds=0, patience=Patience(backoff_seconds=0)))


def command(code: str, **settings: float) -> CommandSearch:
    return CommandSearch(command=[sys.executable, "-c", code], **settings)


def test_a_page_that_states_licence_and_file_becomes_an_offer_that_can_be_taken(tmp_path):
    with serving() as server:
        server.routes |= {"/book": recorded("landing.html"), "/plain": Say(body=b"<html><a href='/x.pdf'>x</a></html>")}
        rows = [
            {"title": "T", "url": f"{server.base}{path}", "snippet": "s"}
            for path in ("/book", "/plain", "/a.pdf", "/no")
        ]
        rows += [{"url": "ftp://x/y"}, rows[0]]
        code = f"import json, sys; assert sys.stdin.read() == 'thin films'; print(json.dumps({rows!r}))"
        with live(replace(LIVE, search=command(code), folder=tmp_path)) as session:
            book, plain, pdf, gone = connect("web", client=session.client).search(TOPIC, "thin films")
        with replayed(tmp_path) as again:
            assert connect("web", client=again.client).search(TOPIC, "thin films")[:3] == [book, plain, pdf]
        assert book.title == "Optics for Everybody" and book.author == "Web Writer"
        assert book.licence == "CC-BY-4.0" and "link[rel=license]" in book.licence_evidence
        assert book.download_url == f"{server.base}/files/everybody.pdf" and book.isbn == "9781111111113"
        assert (plain.licence, plain.download_url) == ("", f"{server.base}/x.pdf")
        assert (pdf.licence, pdf.licence_evidence) == ("", "no page states the licence of this file")
        assert gone.licence == "" and "HTTP 404" in gone.licence_evidence


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('no json')", "no JSON"),
        ("print('{}')", "no list of results"),
        ("print('[{\"title\": 1}]')", "no list of results"),
        ("import sys; sys.exit('quota used up')", "failed with status 1: quota used up"),
        ("import time; time.sleep(9)", "still running after 0.3 s"),
    ],
)
def test_what_a_command_does_wrong_is_named(code, problem):
    limit = 0.3 if "sleep" in code else 30.0
    with pytest.raises(CatalogueError, match=problem):
        command(code, wall_seconds=limit).search("q")


def test_a_command_that_does_not_exist_is_named():
    with pytest.raises(CatalogueError, match="cannot start '/nowhere/search'"):
        CommandSearch(command=["/nowhere/search"]).search("q")


def test_without_a_command_the_catalogue_says_how_to_set_one():
    with live(LIVE) as session, pytest.raises(CatalogueError) as caught:
        connect("web", client=session.client).search(TOPIC)
    assert "no command" in caught.value.message and "INFUSER_WEB_SEARCH" in caught.value.hint


def test_statements_that_contradict_each_other_give_no_licence():
    page = landing.read(
        '<a rel="license" href="https://creativecommons.org/licenses/by/4.0/">x</a>'
        '<meta name="DC.rights" content="CC BY-NC 4.0">',
        "https://x.example/",
    )
    assert page.licence.spdx == "" and "contradicting" in page.licence.evidence


@pytest.mark.parametrize(
    "html", ["", "<", "<meta", "<a href='http://[bad.pdf'>", "<script type='application/ld+json'>{", "\x00" * 9]
)
def test_broken_pages_say_nothing(html):
    page = landing.read(html, "https://x.example/")
    assert (page.licence.spdx, page.pdfs) == ("", [])
