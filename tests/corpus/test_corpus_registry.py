"""Every offer becomes a row: admitted, or rejected with its reason."""

from hypothesis import given
from hypothesis import strategies as st

from corpus.find.catalogue import Offer, subject
from corpus.find.registry import admit_offers
from corpus.find.search import Ranking
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.schemas import Source, Topic

TOPICS = [Topic(domain="Physics", subdomain="Optics", num_questions=1)]


def offer(name: str, **changes: object) -> Offer:
    fields = {"catalogue": "local", "offer_id": name, "title": name, "discipline": "Physics", "licence": "CC-BY-4.0"}
    fields |= {"subjects": [subject("physics", "Optics")], "licence_evidence": "license.spdx=CC-BY-4.0"}
    fields |= {"source_url": f"local:/catalogue.json#{name}", "download_url": f"local:/books/{name}.pdf"}
    return Offer(**(fields | changes))


def select(offers: list[Offer], **settings: object) -> list[Source]:
    """Rows of the offers, ranked in their order."""
    pair = {"domain": "Physics", "subdomain": "Optics", "score": 1.0, "ranked_by": "rule", "reason": ""}
    rankings = [
        Ranking(catalogue=row.catalogue, offer_id=row.offer_id, rank=place, **pair)
        for place, row in enumerate(offers, 1)
    ]
    return admit_offers(offers, TOPICS, CatalogueSettings(books_per_topic=0, **settings), rankings).sources


def test_reasons():
    rows = select(
        [
            offer("a", isbn="0306406152"),
            offer("b", licence="", licence_evidence="license=None"),
            offer("c", licence="CC-BY-NC-4.0"),
            offer("d", isbn="978-0-306-40615-7"),
            offer("e", subjects=[subject("History", "Rome")]),
            offer("f", subjects=[]),
        ],
        licences=["CC-BY-4.0"],
    )
    assert [row.status for row in rows] == ["admitted", "rejected", "rejected", "rejected", "rejected", "admitted"]
    assert [row.reason for row in rows] == [
        "",
        "no licence: license=None",
        "licence not allowed: CC-BY-NC-4.0",
        "duplicate of isbn:9780306406157: same isbn:9780306406157",
        "covers none of the topics: history / rome",
        "",
    ]
    assert rows[0].source_id == "isbn:9780306406157" and rows[0].filename == "a.pdf"


def test_an_entry_found_for_two_topics_is_one_row():
    assert len(select([offer("a"), offer("a", discipline="Chemistry")])) == 1


def test_a_rejected_copy_keeps_no_licensed_copy_out():
    copies = [offer("a", isbn="0306406152", licence=""), offer("b", isbn="0306406152")]
    assert [row.status for row in select(copies)] == ["rejected", "admitted"]


def test_two_entries_that_a_third_joins_are_one_book():
    shelf = [
        offer("a", doi="10.5555/a"),
        offer("b", isbn="0306406152"),
        offer("c", doi="10.5555/A", isbn="978-0-306-40615-7"),
    ]
    rows = select(shelf)
    assert [row.reason for row in rows] == [
        "",
        "duplicate of doi:10.5555/a: the same book by way of a third entry",
        "duplicate of doi:10.5555/a: same doi:10.5555/a",
    ]


def test_an_unlicensed_entry_joins_no_books():
    shelf = [offer("a", doi="10.5555/a"), offer("b", isbn="0306406152")]
    bridge = offer("c", doi="10.5555/a", isbn="0306406152", licence="")
    assert [row.status for row in select([*shelf, bridge])] == ["admitted", "admitted", "rejected"]


def test_one_of_several_isbns_is_enough():
    rows = select([offer("a", isbn="9780306406157; 9781111111113"), offer("b", isbn="9781111111113")])
    assert rows[1].reason == "duplicate of isbn:9780306406157: same isbn:9781111111113"


def test_an_arxiv_paper_and_its_own_doi_are_one_book():
    rows = select([offer("a", arxiv="2601.00001v2"), offer("b", doi="10.48550/arXiv.2601.00001")])
    assert [row.status for row in rows] == ["admitted", "rejected"]


def test_the_default_list_takes_every_version_of_the_open_licences_and_no_other():
    names = ["CC-BY", "CC-BY-2.0", "CC-BY-SA-3.0-US", "GFDL-1.2-only", "CC-BY-NC-4.0", "CC-BY-ND-4.0", "MIT"]
    rows = select([offer(name, licence=name) for name in names])
    assert [row.status for row in rows] == ["admitted"] * 4 + ["rejected"] * 3


@given(st.lists(st.lists(st.sampled_from(["0306406152", "9781111111113", "9781111111120"]), max_size=2), max_size=7))
def test_books_are_the_connected_groups_of_shared_identifiers(numbers):
    """Against a plain search through the graph: one admitted row per group, and it is the group's first."""
    shelf = [offer(f"o{n}", isbn="; ".join(isbns)) for n, isbns in enumerate(numbers)]
    groups: list[set[int]] = []
    for n, isbns in enumerate(numbers):
        touching = [g for g in groups if any({*numbers[m]} & {*isbns} for m in g)]
        groups = [g for g in groups if g not in touching] + [{n}.union(*touching)]
    rows = select(shelf)
    assert {n for n, row in enumerate(rows) if row.status == "admitted"} == {min(group) for group in groups}
    assert all(bool(row.reason) == (row.status == "rejected") for row in rows)
