"""Settings open the catalogues they name, with the rules, pauses and hosts they allow, and nothing else."""

import pytest
from corpus_sources import PDF, source
from loopback import Say, recorded, serving

from corpus.find.configured import agent_of, librarian_of, open_catalogues, prompts_of
from corpus.find.download import download
from corpus.find.search import search_topic
from infuser_core.config.corpus import CatalogueEntry, CatalogueSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
SHELF = (
    b"""{"data": [{"id": "a", "title": "Optics", "pdf": "/a.pdf", "license": {"spdx": "CC-BY-4.0"}}], "links": {}}"""
)


@pytest.fixture
def server():
    with serving() as loopback:
        yield loopback


def settings_for(base: str, *names: str, **changes: object) -> CatalogueSettings:
    entries = [CatalogueEntry(name=name, base=base) for name in names]
    return CatalogueSettings(type="catalogues", catalogues=entries, host_delay_seconds=0.0, **changes)


def test_the_micro_worlds_shelf_is_one_local_catalogue(server):
    server.routes |= {"/catalogue.json": Say(body=SHELF), "/a.pdf": Say(body=PDF)}
    nano = CatalogueSettings()
    with open_catalogues(nano, shelf=server.base) as opened:
        (offer,) = search_topic(TOPIC, opened.catalogues, nano).offers
        assert opened.address(offer.download_url) == f"{server.base}/a.pdf"
        assert opened.address("https://x.example/b.pdf") == "https://x.example/b.pdf"
        assert len(opened.session.answers) == 2


def test_several_catalogues_are_asked_in_the_order_of_the_settings(server):
    names = ["doab", "openstax"]
    with open_catalogues(settings_for(server.base, *names)) as opened:
        assert [catalogue.name for catalogue in opened.catalogues] == names


def test_a_recorded_search_runs_without_a_server(tmp_path):
    with serving() as server:
        server.routes["/apps/cms/api/v2/pages/"] = recorded("openstax.json")
        settings = settings_for(server.base, "openstax")
        with open_catalogues(settings, folder=tmp_path) as opened:
            once = search_topic(TOPIC, opened.catalogues, settings)
    settings = settings.model_copy(update={"answers": "recorded"})
    with open_catalogues(settings, folder=tmp_path) as opened:
        assert search_topic(TOPIC, opened.catalogues, settings) == once


def test_a_shelf_on_loopback_is_never_answered_from_an_older_record(server, tmp_path):
    for title in (b"Optics", b"Optics again"):
        server.routes["/catalogue.json"] = Say(body=SHELF.replace(b'"Optics"', b'"' + title + b'"'))
        with open_catalogues(CatalogueSettings(), shelf=server.base, folder=tmp_path) as opened:
            assert opened.catalogues[0].search(TOPIC)[0].title == title.decode()


def test_only_hosts_that_the_settings_name_may_be_private(server, tmp_path):
    """A public catalogue that points to a machine of the local network is refused at the socket."""
    with open_catalogues(CatalogueSettings(type="catalogues")) as opened:
        config = opened.download
    assert config.guard.allowed_hosts == frozenset()
    server.routes["/a.pdf"] = Say(body=PDF)
    (row,) = download([source("a")], lambda url: f"{server.base}/a.pdf", tmp_path / "run", config).sources
    assert "refused" in row.reason and server.seen == []


def test_the_user_agent_names_the_contact(server):
    server.routes["/rest/search"] = Say(body=b"[]")
    with open_catalogues(settings_for(server.base, "doab"), contact="mailto:me@x.example") as opened:
        opened.catalogues[0].search(TOPIC)
    assert {seen.headers["User-Agent"] for seen in server.seen} == {"infuser-corpus/0.1 (+mailto:me@x.example)"}


def test_the_web_is_searched_by_the_command_that_is_given(server):
    settings = CatalogueSettings(type="catalogues", catalogues=[CatalogueEntry(name="web")])
    with open_catalogues(settings, search="sh -c 'echo []'") as opened:
        assert opened.catalogues[0].search(TOPIC) == []
    with open_catalogues(settings) as opened, pytest.raises(CatalogueError, match="no command"):
        opened.catalogues[0].search(TOPIC)


def test_the_models_prompts_come_from_the_profile_or_are_the_shipped_ones(tmp_path):
    chat = ScriptedChat(reply=lambda messages: "")
    (tmp_path / "phrase_query.txt").write_text("own words for {domain} {subdomain} {count}")
    assert agent_of(chat, str(tmp_path)).phrase.user.startswith("own words")
    assert agent_of(chat, str(tmp_path)).rank == agent_of(chat, "nano").rank == agent_of(chat, "paper").rank
    assert len(prompts_of("nano")) == 4
    assert "{subdomain}" in agent_of(chat, "paper").phrase.user and "{books}" in agent_of(chat, "paper").rank.user
    assert (
        "{question}" in librarian_of(chat, "paper").assign.user and "{labels}" in librarian_of(chat, "paper").merge.user
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"type": "local"}, "needs `url`"),
        ({"type": "catalogues", "catalogues": []}, "list of catalogues is empty"),
        ({"type": "catalogues", "catalogues": [CatalogueEntry(name="opds")]}, "opds needs `base`"),
        (
            {
                "catalogues": [
                    CatalogueEntry(name="local", base="http://a"),
                    CatalogueEntry(name="local", base="http://b"),
                ]
            },
            "only one",
        ),
        ({"books_per_topic": -1}, "greater than or equal to 0"),
        ({"catalogues": [CatalogueEntry(name="doab")], "answer": "live"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_work_say_why(values, problem):
    with pytest.raises(ValueError, match=problem):
        CatalogueSettings(**values)
