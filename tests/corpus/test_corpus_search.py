"""A pair is searched everywhere: queries, failures, ranking and the choice of books, each with its reason."""

import ast
import json
import typing
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from corpus_rows import question
from loopback import GUARD, Loopback, Say, recorded, serving

import corpus
from corpus.find.catalogue import Offer, connect, subject
from corpus.find.queries import Librarian, librarian_of, phrase_queries, queries_by_rule
from corpus.find.registry import admit_offers
from corpus.find.search import OFFERS_PER_CATALOGUE, rank_offers, refusal_reason, relevance, search_topic
from corpus.find.session import live_recorder
from corpus.find.topics import extract_topics
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.errors import CatalogueError
from infuser_core.prompts.templates import load_template
from infuser_core.protocols import Messages
from infuser_core.schemas import Topic

TOPIC = Topic(domain="Physics", subdomain="Optics", num_questions=3)
SETTINGS = CatalogueSettings()
PHRASE, RANK = load_template("phrase_query", profile="paper"), load_template("rank_books", profile="paper")


def offer(name: str, title: str = "", **changes: object) -> Offer:
    fields = {"licence": "CC-BY-4.0", "licence_evidence": "x", "discipline": "Physics"}
    fields |= {"source_url": "", "download_url": f"https://x.example/{name}.pdf"}
    return Offer(catalogue="fake", offer_id=name, title=title or name, **(fields | changes))


class Fake:
    """A catalogue that offers what it was given; remembers the queries."""

    name = "fake"

    def __init__(self, *offers: Offer, broken: bool = False) -> None:
        self.offers, self.broken = list(offers), broken
        self.asked: list[str] = []

    def search(self, topic: Topic, query: str) -> list[Offer]:
        self.asked.append(query)
        if self.broken:
            raise CatalogueError("catalogue fake: down", hint="wait")
        return self.offers


def agent(phrase: str = '{"queries": ["wave optics"]}', rank: str = '{"ranking": [1]}') -> tuple[Librarian, list[str]]:
    seen: list[str] = []

    def reply(messages: Messages) -> str:
        seen.append(messages[-1]["content"])
        return rank if "Books, each with" in seen[-1] else phrase

    return Librarian(model=ScriptedChat(reply=reply), prompts={"phrase_query": PHRASE, "rank_books": RANK}), seen


@pytest.mark.parametrize(
    ("domain", "subdomain", "found"),
    [
        ("Physics", "Optics", ["Optics", "Optics Physics"]),
        ("Law", "Contract Law", ["Contract Law"]),
        (
            "Mathematics",
            "Ordinary Differential Equations",
            ["Ordinary Differential Equations", "Ordinary Differential Equations Mathematics"],
        ),
        (
            "Engineering",
            "Heat and Mass Transfer",
            ["Heat and Mass Transfer", "Mass Transfer", "Heat and Mass Transfer Engineering"],
        ),
        (
            "Medicine",
            "Internal Medicine/Public Health",
            ["Internal Medicine/Public Health", "Internal Medicine", "Public Health"],
        ),
    ],
)
def test_queries_by_rule_go_from_narrow_to_wide(domain, subdomain, found):
    assert queries_by_rule(Topic(domain=domain, subdomain=subdomain, num_questions=1), 3) == found


def test_wider_queries_are_asked_while_too_little_was_found():
    full, empty = Fake(*(offer(str(n), "Optics") for n in range(OFFERS_PER_CATALOGUE))), Fake()
    search_topic(TOPIC, [full, empty], SETTINGS)
    assert (full.asked, empty.asked) == (["Optics"], ["Optics", "Optics Physics"])


def test_a_catalogue_that_fails_costs_its_own_answers_alone():
    found = search_topic(TOPIC, [Fake(broken=True), Fake(offer("a", "Optics"))], SETTINGS)
    assert [row.offer_id for row in found.offers] == ["a"]
    assert [(row.query, row.reason) for row in found.failures] == [
        ("Optics", "catalogue fake: down"),
        ("Optics Physics", "catalogue fake: down"),
    ]


def test_an_outage_of_all_catalogues_is_no_result():
    with pytest.raises(CatalogueError, match="catalogue fake: down"):
        search_topic(TOPIC, [Fake(broken=True)], SETTINGS)


def test_a_catalogue_that_answers_with_nothing_is_a_result():
    assert search_topic(TOPIC, [Fake(broken=True), Fake()], SETTINGS).offers == []


def test_the_model_phrases_queries_and_what_it_says_is_kept():
    helper, seen = agent()
    catalogue = Fake(offer("a", "Optics"))
    found = search_topic(TOPIC, [catalogue], SETTINGS, librarian=helper)
    assert catalogue.asked == ["wave optics"] and found.queries[0].phrased_by == "rule-based: scripted"
    assert "Specialisation: Optics" in seen[0] and [call.task for call in found.calls] == ["phrase", "rank"]


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("none", "no JSON object"),
        ('{"queries": "optics"}', "no list of strings"),
        ('{"queries": []}', "is empty"),
        ('{"queries": ["what is the focal length of a thin lens in air"]}', "more than 8 words"),
    ],
)
def test_where_the_model_phrases_nothing_usable_the_rule_does(reply, problem):
    found = search_topic(TOPIC, [Fake()], SETTINGS, librarian=agent(phrase=reply)[0])
    assert [row.phrased_by for row in found.queries] == ["rule", "rule"]
    assert [call.attempt for call in found.calls] == [1, 2, 3] and all(problem in call.problem for call in found.calls)


BOOKS = [
    offer("far", "Cooking for Many"),
    offer("about", "Light", description="an introduction to optics"),
    offer("title", "Modern Optics", category="reference"),
    offer("nc", "Optics", licence="CC-BY-NC-4.0"),
    offer("best", "Optics", keywords=["Optics", "Physics"]),
    offer("gone", "Optics of Nothing", download_url=""),
]


def test_books_are_ranked_by_shared_words_and_the_rest_has_reasons():
    found = search_topic(TOPIC, [Fake(*BOOKS)], SETTINGS)
    assert [row.offer_id for row in found.rankings if row.rank] == ["best", "title", "about"]
    assert {row.offer_id: row.reason for row in found.rankings if not row.rank} == {
        "far": "shares no word with the pair",
        "nc": "licence not allowed: CC-BY-NC-4.0",
        "gone": "no file: the catalogue names none that can be downloaded",
    }


def test_the_model_orders_what_may_be_taken_and_can_leave_out():
    helper, seen = agent(rank='Sure: {"ranking": [3, 1]}')
    found = search_topic(TOPIC, [Fake(*BOOKS)], SETTINGS, librarian=helper)
    assert [row.offer_id for row in found.rankings if row.rank] == ["about", "best"]
    reasons = {row.offer_id: row.reason for row in found.rankings}
    assert reasons["title"] == "left out by the ranking model" and "CC-BY-NC" in reasons["nc"]
    assert "Optics of Nothing" not in seen[1] and "Cooking" not in seen[1]


@pytest.mark.parametrize(
    "reply", ['{"ranking": [9]}', '{"ranking": [1, 1]}', '{"ranking": [true]}', '{"ranking": "1"}']
)
def test_an_order_of_other_books_is_refused_and_the_rule_decides(reply):
    found = search_topic(TOPIC, [Fake(*BOOKS)], SETTINGS, librarian=agent(rank=reply)[0])
    assert [row.offer_id for row in found.rankings if row.rank] == ["best", "title", "about"]
    assert {row.ranked_by for row in found.rankings} == {"rule"} and sum(c.task == "rank" for c in found.calls) == 3


def test_a_pair_that_a_catalogue_states_counts_like_a_full_title():
    stated = offer("s", "Readings", subjects=[subject("Physics", "Optics")])
    assert relevance(stated, TOPIC) > relevance(offer("d", "Readings", description="optics"), TOPIC) > 0


def test_languages_are_compared_however_they_are_written():
    rules = CatalogueSettings(languages=["en"])
    assert [refusal_reason(offer("a", language=name), rules) for name in ("eng", "English", "en_US", "EN", "")] == [
        ""
    ] * 5
    assert refusal_reason(offer("a", language="deu"), rules) == "language deu, not among en"


def test_the_best_books_of_every_pair_are_taken_and_each_pair_is_covered():
    waves = Topic(domain="Physics", subdomain="Waves", num_questions=1)
    sound = Topic(domain="Physics", subdomain="Sound", num_questions=1)
    both = offer("both", "Optics and Waves", isbn="9781111111113")
    mirror = offer("mirror", "Waves and Optics", isbn="978-1-111111-11-3")
    shelf = [
        offer("o1", "Optics", keywords=["Optics"]),
        both,
        offer("o2", "About Optics"),
        mirror,
        offer("w", "Waves of Air"),
    ]
    searches = [search_topic(topic, [Fake(*shelf)], SETTINGS) for topic in (TOPIC, waves, sound)]
    offers = [row for found in searches for row in found.offers]
    rankings = [row for found in searches for row in found.rankings]
    found = admit_offers(offers, [TOPIC, waves, sound], CatalogueSettings(books_per_topic=2), rankings)
    status = {row.title: row.reason or row.status for row in found.sources}
    assert status == {
        "Optics": "admitted",
        "Optics and Waves": "admitted",
        "About Optics": "ranked 3 at best: 2 are taken for a pair",
        "Waves and Optics": "duplicate of isbn:9781111111113: same isbn:9781111111113",
        "Waves of Air": "admitted",
    }
    covered = [(row.subdomain, row.source_id) for row in found.coverage]
    assert ("Waves", "isbn:9781111111113") in covered and ("Optics", "isbn:9781111111113") in covered
    assert [row for row in covered if row[0] == "Sound"] == [("Sound", "")]
    names = {row.identifier for row in found.aliases if row.source_id == "isbn:9781111111113"}
    assert {"url:x.example/both.pdf", "url:x.example/mirror.pdf", "isbn:9781111111113"} <= names


def server_log(server: Loopback) -> str:
    return json.dumps([[seen.path, seen.query, seen.headers] for seen in server.seen])


def test_no_word_of_a_question_reaches_a_catalogue_or_the_agent():
    """From questions with telling words to requests on the wire: the pair alone gets through."""
    questions = [question(f"q{n}", f"ZEBRA{n} walks", ["QUOKKA", "b"]) for n in range(3)]
    told: list[str] = []

    def label(messages: Messages) -> str:
        return (
            '{"groups": []}'
            if "Entries:" in messages[-1]["content"]
            else '{"domain": "Physics", "subdomain": "Optics"}'
        )

    helper = librarian_of(ScriptedChat(reply=label), "paper")
    topics = extract_topics(questions, helper).topics
    searching, told = agent(rank='{"ranking": [1]}')
    with serving() as server, live_recorder(GUARD) as session:
        server.routes |= {"/rest/search": recorded("oapen_search.json"), "/oai/request": recorded("oapen_501.xml")}
        server.routes["/textbooks.json"] = Say(status=500)
        catalogues = [
            connect(name, base=server.base, client=session.client) for name in ("oapen", "open_textbook_library")
        ]
        found = [search_topic(topic, catalogues, SETTINGS, librarian=searching) for topic in topics]
        assert found[0].offers and found[0].failures
        everything = server_log(server) + json.dumps(told) + json.dumps([asdict(row) for row in found])
    assert "ZEBRA" not in everything and "QUOKKA" not in everything


LATER = (
    "corpus.find.search",
    "corpus.find.registry",
    "corpus.find.session",
    "corpus.find.download",
    "corpus.find.catalogues",
    "corpus.read.convert",
    "corpus.chunk.front_matter",
    "corpus.chunk.chunk",
    "corpus.chunk.langchain_chunk",
    "corpus.chunk.judge",
)
"""Where the stages after the taxonomy begin."""


def reached(*names: str) -> dict[Path, ast.Module]:
    """Files of the corpus that the modules import, at any depth."""
    root = Path(str(corpus.__path__[0])).parent
    ahead, found = list(names), {}
    for name in names:
        place = root / Path(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name
    while ahead:
        place = root / Path(*ahead.pop().split("."))
        # A catalogue is found by its name: the whole folder counts.
        plugged = place.glob("*.py") if place.name == "catalogues" else []
        for path in [*plugged, place.with_suffix(".py")]:
            if path.is_file() and path not in found:
                found[path] = ast.parse(path.read_text(encoding="utf-8"))
                for node in ast.walk(found[path]):
                    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("corpus"):
                        ahead += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def test_no_later_stage_can_be_given_a_question():
    """By types: search and download take Topics, Offers and Sources; no module they reach knows what a Question is."""
    files = reached(*LATER)
    names = {path.name for path in files}
    assert {"queries.py", "search.py", "download.py", "arxiv.py", "split.py", "headings.py", "model_reply.py"} <= names
    assert "topics.py" not in names
    for path, tree in files.items():
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert "Question" not in imported, path
    for function in (search_topic, phrase_queries, rank_offers, relevance, admit_offers, connect):
        assert "Question" not in repr(typing.get_type_hints(function, localns={"httpx": httpx}))
    assert {*Topic.__dataclass_fields__} == {"domain", "subdomain", "num_questions"}
