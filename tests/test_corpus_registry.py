"""Every offer becomes a row: admitted, or rejected with its reason."""

from corpus.catalogues.protocol import Offer, subject
from corpus.registry import select
from infuser_core.schemas import Topic

TOPICS = [Topic(domain="Physics", subdomain="Optics", num_questions=1)]


def offer(name: str, **changes: object) -> Offer:
    fields = {
        "catalogue": "local",
        "offer_id": name,
        "title": name,
        "author": "",
        "description": "",
        "category": "textbook",
        "subjects": [subject("physics", "Optics")],
        "discipline": "Physics",
        "licence": "CC-BY-4.0",
        "licence_evidence": "license.spdx=CC-BY-4.0",
        "source_url": f"local:/catalogue.json#{name}",
        "download_url": f"local:/books/{name}.pdf",
        "doi": "",
        "isbn": "",
        "arxiv": "",
    }
    return Offer(**(fields | changes))


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
        TOPICS,
        ["CC-BY-4.0"],
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
    assert len(select([offer("a"), offer("a", discipline="Chemistry")], TOPICS, ["CC-BY-4.0"])) == 1


def test_a_rejected_copy_keeps_no_licensed_copy_out():
    copies = [offer("a", isbn="0306406152", licence=""), offer("b", isbn="0306406152")]
    assert [row.status for row in select(copies, TOPICS, ["CC-BY-4.0"])] == ["rejected", "admitted"]


def test_sources_of_earlier_runs_are_known():
    known = select([offer("a")], TOPICS, ["CC-BY-4.0"])
    again = select([offer("other", download_url="local:/books/a.pdf")], TOPICS, ["CC-BY-4.0"], known=known)
    assert again[0].reason.startswith("duplicate of")
