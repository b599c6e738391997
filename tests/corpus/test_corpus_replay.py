"""A search is recorded answer by answer and gives the same offers again from the record, without a network."""

import hashlib
import json
from dataclasses import replace

import pytest
from loopback import GUARD, Loopback, Say, recorded, serving

from corpus.find.catalogue import Offer, connect
from corpus.find.polite_http import Patience, Politeness
from corpus.find.session import Session, SessionConfig, live, replayed
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
LIVE = SessionConfig(guard=GUARD, politeness=Politeness(delay_seconds=0, patience=Patience(backoff_seconds=0)))


@pytest.fixture
def server():
    with serving() as loopback:
        loopback.routes |= {"/rest/search": recorded("doab_search.json"), "/oai/request": recorded("doab_701.xml")}
        yield loopback


def search(session: Session, server: Loopback) -> list[Offer]:
    return connect("doab", base=server.base, client=session.client).search(TOPIC)


def test_the_record_gives_the_same_offers_when_the_server_is_gone(server, tmp_path):
    with live(replace(LIVE, folder=tmp_path)) as session:
        offers = search(session, server)
    server.routes.clear()
    asked = len(server.seen)
    with replayed(tmp_path) as again:
        assert search(again, server) == offers
        assert again.answers == session.answers
    assert len(server.seen) == asked


def test_every_answer_is_kept_with_its_digest_and_moment(server):
    with live(LIVE) as session:
        (offer,) = search(session, server)
    first = session.answers[0]
    assert first.url.startswith(f"{server.base}/rest/search?query=")
    assert first.sha256 == hashlib.sha256(first.content()).hexdigest() == offer.answer
    assert first.asked_on.endswith("+00:00") and first.status_code == 200


def test_a_question_that_was_not_recorded_is_named(server, tmp_path):
    with replayed(tmp_path) as session, pytest.raises(CatalogueError, match="replay: no recorded answer for http"):
        search(session, server)


def test_a_body_that_is_no_text_survives_the_record(server):
    server.routes["/rest/search"] = Say(body=b"[\xff]")
    with live(LIVE) as session:
        with pytest.raises(CatalogueError, match="no JSON"):
            search(session, server)
    assert session.answers[0].encoding == "base64" and session.answers[0].content() == b"[\xff]"


def test_a_later_session_takes_young_answers_from_the_folder_and_asks_for_old_ones(server, tmp_path):
    kept = replace(LIVE, folder=tmp_path)
    for config, asked in ((kept, 2), (kept, 0), (replace(kept, max_age_days=0.0), 2)):
        before = len(server.paths())
        with live(config) as session:
            offers = search(session, server)
        assert len(server.paths()) - before == asked and len(offers) == 1 and len(session.answers) == 2
    with replayed(tmp_path) as session:
        assert search(session, server) == offers


def test_an_error_is_not_kept_for_later(server, tmp_path):
    server.routes["/rest/search"] = Say(status=404)
    with live(replace(LIVE, folder=tmp_path)) as session:
        with pytest.raises(CatalogueError, match="HTTP 404"):
            search(session, server)
    assert list(tmp_path.iterdir()) == [] and session.answers[0].status_code == 404


def test_a_damaged_answer_on_disk_is_asked_for_again(server, tmp_path):
    with live(replace(LIVE, folder=tmp_path)) as session:
        search(session, server)
    for path, damage in zip(sorted(tmp_path.iterdir()), ("{", None), strict=True):
        values = json.loads(path.read_text())
        path.write_text(damage or json.dumps({**values, "body": values["body"] + " "}))
    before = len(server.paths())
    with live(replace(LIVE, folder=tmp_path)) as session:
        assert len(search(session, server)) == 1
    assert len(server.paths()) - before == 2


def test_a_body_that_breaks_off_is_asked_for_once_more(server):
    whole = recorded("doab_search.json")
    server.routes["/rest/search"] = lambda seen, n: replace(whole, length=len(whole.body) + 9) if n == 1 else whole
    with live(LIVE) as session:
        assert len(search(session, server)) == 1


def test_a_packed_answer_is_refused(server):
    server.routes["/rest/search"] = Say(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    with live(LIVE) as session, pytest.raises(CatalogueError, match="encoding gzip"):
        search(session, server)
