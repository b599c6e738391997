"""From a dev set without labels to licensed files, over several catalogues, twice: the second run fetches nothing."""

import json
from pathlib import Path

import pytest
from corpus_rows import question
from corpus_sources import pdf_bytes
from loopback import GUARD, Loopback, Say, recorded, serving

from corpus.find.catalogue import connect
from corpus.find.download import DownloadResult, Holdings, download
from corpus.find.registry import Admission, admit
from corpus.find.search import search_topic
from corpus.find.session import live
from corpus.find.topics import Librarian, extract
from corpus.read.file_kinds import file_of
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.engines.protocols import Messages
from infuser_core.prompts.load import load
from infuser_core.schemas import Topic

ASKED = ["Where is the focus?", "Which mirror inverts?", "How fast is light?"]
RULES = CatalogueSettings(books_per_topic=2, languages=["en"])


def librarian() -> Librarian:
    def reply(messages: Messages) -> str:
        prompt = messages[-1]["content"]
        if "Entries:" in prompt:
            keep, merged = ("Optics", ["Light Science"]) if "Light Science" in prompt else ("", [])
            return json.dumps({"groups": [{"keep": keep, "merge": merged}] if keep else []})
        return json.dumps({"domain": "Physics", "subdomain": "Light Science" if "fast" in prompt else "optics"})

    asking = ScriptedChat(reply=lambda messages: reply(messages).replace('"optics"', '"Optics"'))
    return Librarian(
        model=asking, assign=load("assign_topic", profile="paper"), merge=load("merge_topics", profile="paper")
    )


@pytest.fixture
def world():
    """Two catalogues that work, one that is down, and the publisher of two books."""
    with serving() as server:
        for name in ("open_textbook_library_2.json", "openstax.json", "opds_found.xml"):
            assert recorded(name).body
        otl = recorded("open_textbook_library_1.json").body.replace(b"https://press.example", server.base.encode())
        stax = recorded("openstax.json").body.replace(b"https://assets.example", server.base.encode())
        server.routes |= {
            "/textbooks.json": lambda seen, n: (
                Say(body=otl) if seen.query["page"] == "1" else recorded("open_textbook_library_2.json")
            ),
            "/apps/cms/api/v2/pages/": Say(body=stax),
            "/rest/search": Say(status=404),
            "/rays.pdf": Say(body=pdf_bytes("Rays"), headers={"Content-Type": "application/pdf"}),
            "/1-web.pdf": Say(body=pdf_bytes("Physics"), headers={"Content-Type": "application/pdf"}),
        }
        yield server


def build(server: Loopback, topics: list[Topic], held: Path, folder: Path) -> tuple[Admission, DownloadResult, int]:
    with live(GUARD, held / "answers") as session:
        names = ("open_textbook_library", "openstax", "oapen")
        catalogues = [connect(name, base=server.base, client=session.client) for name in names]
        found = [search_topic(topic, catalogues, RULES) for topic in topics]
    rows = [row for search in found for row in search.rankings]
    admission = admit([offer for search in found for offer in search.offers], topics, RULES, rows)
    known: dict[str, list[str]] = {}
    for alias in admission.aliases:
        known.setdefault(alias.source_id, []).append(alias.identifier)
    result = download(admission.sources, lambda url: url, folder, Holdings(held / "books"), GUARD, names=known)
    return admission, result, sum(len(search.failures) for search in found)


def test_a_dev_set_becomes_licensed_files_and_the_second_run_fetches_nothing(world, tmp_path):
    taxonomy = extract([question(text, text) for text in ASKED], librarian())
    assert taxonomy.topics == [Topic(domain="Physics", subdomain="Optics", num_questions=3)]
    admission, result, failures = build(world, taxonomy.topics, tmp_path, tmp_path / "run1")
    assert failures == 2  # OAPEN, asked with two queries
    reasons = {row.title: row.reason for row in result.sources}
    # Both catalogues give the same ISBN, so they offer one book: the better ranked entry stands for it.
    assert reasons == {
        "Rays and Waves: A First Course in Optics": "",
        "Optics for Makers": "licence not allowed: CC-BY-NC-SA",
        "Light": "no licence: license=None",
        "Physics Volume 3": "duplicate of isbn:9781111111113: same isbn:9781111111113",
        "Physics Volume 3, Second Edition": "licence not allowed: CC-BY-NC-SA-4.0",
    }
    (kept,) = [row for row in result.sources if row.status == "admitted"]
    assert file_of(tmp_path / "run1", kept.sha256).read_bytes() == pdf_bytes("Rays")
    assert kept.licence == "CC-BY" and kept.licence_evidence == "license=CC BY"
    assert [row.source_id for row in admission.coverage] == [kept.source_id]

    asked = len(world.seen)
    again = build(world, taxonomy.topics, tmp_path, tmp_path / "run2")[1]
    fetched = [seen.path for seen in world.seen[asked:] if seen.path.endswith(".pdf")]
    assert fetched == [] and again.sources == result.sources
    assert [row.attempts for row in again.log] == [0]
