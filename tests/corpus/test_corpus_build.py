"""None"""

import hashlib
import json
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from corpus_books import BookPlan, write_book
from corpus_sources import pdf_bytes
from launcher import Launcher
from loopback import GUARD, Loopback, Say, serving
from places import CONFIGS
from test_endpoint_replies import said, server

from corpus.chunk.chunk import Discarded, chunk_page
from corpus.find import named_sources
from corpus.find.catalogue import connect
from corpus.find.catalogues import local
from corpus.find.download import Holdings, download_sources
from corpus.find.registry import admit_offers
from corpus.find.search import FailedQuery, Ranking, search_topic
from corpus.find.session import live_recorder
from corpus.formats import read_documents
from corpus.pool import (
    DISCARDED,
    DOCUMENTS,
    OVERLAPS,
    REPORT,
    SEARCH,
    SOURCES,
    PoolSource,
    markdown_name,
)
from corpus.read.converters import pdfium
from corpus.read.file_kinds import file_of
from corpus.read.page import ConversionJob
from corpus.settings import build_settings, judge_source
from flows.corpus import build_pool
from infuser_core.config.corpus import CatalogueSettings, ChunkSettings
from infuser_core.errors import CatalogueError, DocumentError, UsageError
from infuser_core.nano import language, textbooks
from infuser_core.nano.shelf import serve_shelf
from infuser_core.schemas import Overlap, Topic
from infuser_core.store.tables import read_rows


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def build(sources: list[str], out: Path, **options: object):
    usual = {"configs": [], "search": False, "judge": "", "workers": 1}
    return build_pool(sources, out, **{**usual, **options})


def book(name: str, sections: int = 4) -> str:
    parts = [f"## {name} {n}\n\n" + f"A sentence about {name} and the number {n}. " * 40 for n in range(sections)]
    return f"Title page\n\n# {name}\n\n" + "\n\n".join(parts) + "\n\n# Index\n\nterm, 3; other term, 4; and more, 5\n"


def write(folder: Path, **texts: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_bytes(text.encode())
    return [str(folder / f"{name}.md") for name in texts]


def test_a_book_that_is_too_short_is_refused_with_its_length_the_limit_and_the_setting(tmp_path: Path):
    chapter = "A wave carries energy and no matter. " * 4
    sources = write(tmp_path / "books", two=f"# Chapter 1 Waves\n\n{chapter}\n\n# Chapter 2 Light\n\n{chapter}\n")
    build(sources, tmp_path / "out")
    (row,) = read_rows(tmp_path / "out" / SOURCES, PoolSource)
    rows = read_rows(tmp_path / "out" / DISCARDED, Discarded)
    longest = max(span.num_tokens for span in rows)
    told = f"2 spans too_short (the longest has {longest} tokens, corpus.chunk.min_tokens is 200)"
    assert row.reason == f"no documents: {told}" and f"chunk: {row.reason}" in (tmp_path / "out" / REPORT).read_text()


def test_what_the_converter_leaves_out_is_a_row_with_its_page_and_text(tmp_path: Path):
    write_book(tmp_path / "woods.pdf", BookPlan(chapters=2, sections=2))
    made = build([str(tmp_path / "woods.pdf")], tmp_path / "out")
    rows = [row for row in read_rows(tmp_path / "out" / DISCARDED, Discarded) if row.stage == "convert"]
    assert {row.reason for row in rows} <= {"running_head", "page_number"}
    (source,) = read_rows(tmp_path / "out" / SOURCES, PoolSource)
    assert len(rows) >= source.num_pages // 2
    assert all(row.text and row.start == row.end == -1 and 0 <= row.page < source.num_pages for row in rows)
    assert sum(row["lines"] for row in made.facts["left_out"]) == len(rows)
    assert source.num_discarded == made.facts["discarded"], "lines of the page's edge are no spans of the text"


def tables(out: Path):
    return (
        read_documents(out),
        read_rows(out / DISCARDED, Discarded),
        {Path(row.input).name: row for row in read_rows(out / SOURCES, PoolSource)},
    )


def stamps(folder: Path, pattern: str = "*") -> dict[Path, int]:
    found = {path: path.stat().st_mtime_ns for path in folder.rglob(pattern) if path.is_file()}
    assert found
    return found


def made(store: Path, phase: str) -> int:
    return len(list((store / "artifacts" / phase).glob("*/artifact.json")))


def test_documents_and_discards_tile_every_source(tmp_path):
    build(write(tmp_path / "in", a=book("Tides"), b=book("Heat").replace("\n", "\r\n")), tmp_path / "out")
    documents, discarded, sources = tables(tmp_path / "out")
    assert {row.stage for row in discarded} >= {"structure", "chunk"} and len(sources) == 2
    for source in sources.values():
        # As any reader of text files would open it.
        text = (tmp_path / "out" / source.markdown).read_text(encoding="utf-8")
        ours = [row for row in documents if row.source_id == source.source_id]
        spans = sorted((row.start, row.end) for row in [*ours, *discarded] if row.source_id == source.source_id)
        assert ours and all(row.text == text[row.start : row.end] for row in ours)
        assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])] and spans[-1][1] == len(text)


def test_the_markdown_is_named_by_the_source():
    digest = f"sha256:{'a' * 64}"
    assert markdown_name(digest) == f"{digest}.md"
    name = markdown_name("url:https://x.org/a b/../c?d=e")
    assert "/" not in name and unquote(name.removesuffix(".md")) == "url:https://x.org/a b/../c?d=e"
    assert len(markdown_name("url:" + "x" * 500).encode()) < 255


def test_a_second_build_does_nothing_and_a_changed_source_is_done_alone(tmp_path, store):
    sources, out = write(tmp_path / "in", a=book("Tides"), b=book("Heat")), tmp_path / "out"
    assert build(sources, out).facts["changed"]
    before = stamps(out)
    assert not build(sources, out).facts["changed"] and stamps(out) == before and made(store, "convert") == 2
    write(tmp_path / "in", b=book("Light"))
    (tmp_path / "in" / "a.md").rename(tmp_path / "in" / "renamed.md")
    assert build([str(tmp_path / "in" / "renamed.md"), sources[1]], out).facts["changed"]
    assert made(store, "convert") == made(store, "chunk") == 3
    assert {row.header_path.split(" > ")[0] for row in read_documents(out)} == {"Tides", "Light"}
    assert len(list((out / "markdown").iterdir())) == 2
    assert build(sources[1:], tmp_path / "other").facts["documents"] > 0 and made(store, "chunk") == 3


def test_every_bad_source_has_its_reason_and_nothing_is_lost(tmp_path):
    sources = write(tmp_path / "in", good=book("Tides"), twin=book("Tides"), tiny="two words\n", empty="")
    bad = {"latin.md": b"caf\xe9 au lait", "page.pdf": b"<html>log in</html>", "cut.pdf": b"%PDF-1.4\n1 0 obj\n"}
    for name, data in bad.items():
        (tmp_path / "in" / name).write_bytes(data)
        sources.append(str(tmp_path / "in" / name))
    build([*sources, str(tmp_path / "nowhere.pdf")], tmp_path / "out")
    rows = tables(tmp_path / "out")[2]
    reasons = {name: (row.stage, row.reason.split(":")[0].split(" ")[0]) for name, row in rows.items() if row.reason}
    assert reasons == {
        "twin.md": ("intake", "duplicate"),
        "tiny.md": ("chunk", "no"),
        "empty.md": ("intake", "empty"),
        "latin.md": ("convert", "not_utf8"),
        "page.pdf": ("convert", "not_pdf"),
        "cut.pdf": ("convert", "truncated"),
        "nowhere.pdf": ("intake", "missing"),
    }
    assert rows["good.md"].status == "admitted" and rows["good.md"].licence == named_sources.BY_USER
    assert rows["good.md"].sha256 == hashlib.sha256(book("Tides").encode()).hexdigest()


@pytest.fixture
def killed(launch: Launcher, store: Path) -> Callable[..., None]:
    """Runs a build that ends at a point."""

    def run(*arguments: str, point: str) -> None:
        ended = launch("corpus", "build", *arguments, store=store, INFUSER_CRASH_AT=point)
        assert ended.code == -signal.SIGKILL, ended

    return run


@pytest.mark.parametrize("point", ["convert:after_rename:2", "chunk:before_commit:2"])
def test_a_killed_build_resumes(killed, tmp_path, store, point):
    sources, out = write(tmp_path / "in", a=book("Tides"), b=book("Heat"), c=book("Light")), tmp_path / "out"
    killed(*sources, "--workers", "1", "--out", str(out), point=point)
    assert not (out / DOCUMENTS).exists()
    before = stamps(store / "artifacts")
    build(sources, out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    build(sources, tmp_path / "other")
    assert read_documents(out) == read_documents(tmp_path / "other")


def test_an_endpoint_judges_each_chunk_once_also_over_a_kill(killed, tmp_path):
    def even(body: dict[str, object], attempt: int) -> object:
        number = int(body["messages"][-1]["content"].rpartition("## Tides ")[2].split()[0])
        return said(json.dumps({"keep": number % 2 == 0, "reason": f"part {number}"}))

    (source,) = write(tmp_path / "in", a=book("Tides", 40).partition("# Index")[0])
    with server(even) as (address, log):
        judge = f"openai:judge@{address}"
        killed(source, "--judge", judge, "--out", str(tmp_path / "out"), point="judge:before_commit")
        facts = build([source], tmp_path / "out", judge=judge).facts
        assert not build([source], tmp_path / "out", judge=judge).facts["changed"]
        assert len(log.bodies) == 40
    assert facts["documents"] == 20 and facts["judge"].startswith("judge@http://127.0.0.1")
    documents, discarded, _ = tables(tmp_path / "out")
    # The first part stands with the title above it.
    assert {row.header_path.split()[-1] for row in documents} == {"Tides", *(str(n) for n in range(2, 40, 2))}
    dropped = [row for row in discarded if row.stage == "judge"]
    assert len(dropped) == 20 and all(row.response and row.reason.startswith("part ") for row in dropped)


def test_judges_are_named_on_the_command_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    types = [judge_source(text)["type"] for text in ("none", "rules", "openai:m@http://h/v1", str(tmp_path))]
    assert types == ["none", "rules", "endpoint", "folder"]
    with pytest.raises(UsageError, match="--judge nobody: unknown"):
        build_settings(None, judge="nobody")


# The overlap audit


def passage(seed: int, count: int = 60) -> str:
    names = [
        "tide",
        "moon",
        "shore",
        "wave",
        "sand",
        "rope",
        "boat",
        "gull",
        "salt",
        "wind",
        "cloud",
        "rain",
        "stone",
        "shell",
        "crab",
        "net",
        "oar",
        "keel",
        "mast",
        "sail",
    ]
    return " ".join(
        names[(seed * 7 + n * n * (seed + 3) + n) % len(names)] + str((seed * n) % 13) for n in range(count)
    )


SEA = "# Sea\n\n" + "\n\n".join(f"## Part {n}\n\n{passage(n)}." for n in range(6))


def audited(tmp_path: Path, asked: int = 2, **overlap: object):
    """A build of the sea, compared with a dev set that asks a passage of it and with data that quotes another."""
    (source,) = write(tmp_path / "in", sea=SEA)
    (tmp_path / "sft").mkdir(exist_ok=True)
    (tmp_path / "sft" / "one.jsonl").write_text(json.dumps({"text": passage(4)}) + "\n")
    (tmp_path / "sft" / "two.jsonl").write_text(json.dumps({"text": "nothing of the kind is said here " * 9}) + "\n")
    texts = [passage(asked), "Which rope is longer, and by how much?"]
    rows = [
        {"question_id": f"q{n}", "question_text": text, "choices": ["yes", "no"], "ground_truth": "yes"}
        for n, text in enumerate(texts, 1)
    ]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    values = {
        "data": {"dev": {"type": "file", "path": str(tmp_path / "dev.json")}},
        "corpus": {
            "judge": {"type": "none"},
            "structure": "off",
            "chunk": {"min_tokens": 5, "max_tokens": 800, "small_sections": "drop", "tokenizer": {"type": "rules"}},
            "overlap": {"references": [str(tmp_path / "sft")], **overlap},
        },
        "evaluate": {"benchmarks": [{"name": "released", "label": "x", "path": str(tmp_path / "none.json")}]},
    }
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(values))
    return build([source], tmp_path / "out", configs=[CONFIGS / "nano.yaml", tmp_path / "overlay.yaml"]).facts


def parts(out: Path) -> str:
    return "".join(row.header_path[-1] for row in read_documents(out) if row.header_path.startswith("Sea > Part"))


def test_questions_go_and_other_data_is_reported(tmp_path, store):
    facts = audited(tmp_path)["audit"]
    rows = read_rows(tmp_path / "out" / OVERLAPS, Overlap)
    assert {(row.shard, row.record_id) for row in rows if row.matched} == {("dev.jsonl", "q1"), ("one.jsonl", "")}
    (dropped,) = [row for row in tables(tmp_path / "out")[1] if row.stage == "overlap"]
    assert dropped.header_path.endswith("Part 2") and dropped.reason.startswith("overlaps dev.jsonl record q1, run of")
    assert parts(tmp_path / "out") == "01345"
    assert facts["mode"] == "exact" and list(facts["absent"]) == ["benchmark x"] and facts["dropped_documents"] == 1
    names = ["dev.jsonl", "validation.jsonl", "one.jsonl", "two.jsonl"]
    assert [row["name"] for row in facts["references"]] == names
    controls = [row for row in facts["controls"] if row["expected"]]
    assert controls and all(row["shared"] == 1.0 for row in controls)
    # A quotation below fifty words inside another text is a finding and no match.
    missed = {row["kind"] for row in controls if row["exact"] < 1.0}
    assert missed <= {f"verbatim {length} characters inside 2000" for length in (150, 300)}
    report = (tmp_path / "out" / "report.md").read_text()
    assert "mode: exact" in report and "Planted controls" in report and "Not compared with benchmark x: " in report

    compared = made(store, "audit")
    assert not audited(tmp_path)["changed"] and made(store, "audit") == compared
    assert audited(tmp_path, asked=3)["changed"] and parts(tmp_path / "out") == "01245"


@pytest.mark.parametrize(
    ("overlap", "left"),
    [
        ({"matched": "report"}, "012345"),
        ({"reference_matched": "drop"}, "0135"),
        ({"mode": "loose"}, "01345"),
    ],
)
def test_what_a_match_leads_to_is_a_setting(tmp_path, overlap, left):
    assert audited(tmp_path, **overlap)["audit"]["mode"] == overlap.get("mode", "exact")
    assert parts(tmp_path / "out") == left


def test_a_match_may_stop_the_build_and_a_missing_reference_does(tmp_path):
    with pytest.raises(DocumentError, match=r"dev\.jsonl record q1"):
        audited(tmp_path, matched="stop")
    with pytest.raises(UsageError, match="nowhere"):
        audited(tmp_path, references=[str(tmp_path / "nowhere")])


# The search in catalogues


def offer(name: str, title: str, licence: str = "CC-BY-4.0", domain: str = "Physics", subdomain: str = "Optics"):
    entry = {"id": name, "title": title, "pdf": f"books/{name}.pdf", "license": {"spdx": licence}}
    return {**entry, "subjects": [{"domain": domain, "subdomain": subdomain}]}


@pytest.fixture
def shelf():
    """A catalogue of five books, one of them under a licence that is not allowed and one that is not there."""
    offers = [
        offer("rays", "Rays: a course in Optics"),
        offer("lenses", "Lenses in Optics"),
        offer("closed", "Optics for buyers", "CC-BY-NC-4.0"),
        offer("gone", "Optics that was moved"),
        offer("cheese", "Making cheese", subdomain="Cooking"),
    ]
    with serving() as loopback:
        loopback.routes["/catalogue.json"] = Say(body=json.dumps({"data": offers, "links": {"next": None}}).encode())
        for name in ("rays", "lenses", "closed", "cheese"):
            loopback.routes[f"/books/{name}.pdf"] = Say(body=pdf_bytes(name))
        yield loopback


def fetched(loopback: Loopback) -> list[str]:
    return [path for path in loopback.paths() if path.endswith(".pdf")]


def configured(tmp_path: Path, catalogue: dict[str, object]) -> list[Path]:
    """The configuration of a build whose dev set is about optics and tides."""
    rows = [
        {"question_id": f"q{n}", "question_text": f"Why {n}?", "choices": ["a", "b"], "ground_truth": "a", **pair}
        for n, pair in enumerate(
            [{"field": "Physics", "subfield": "Optics"}, {"field": "Geology", "subfield": "Tides"}]
        )
    ]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    source = {"type": "file", "path": str(tmp_path / "dev.json")}
    corpus = {"judge": {"type": "none"}, "chunk": {"tokenizer": {"type": "rules"}}, "catalogue": catalogue}
    values = {"data": {"dev": source, "validation": source}, "corpus": corpus, "evaluate": {"benchmarks": []}}
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(values))
    return [CONFIGS / "nano.yaml", tmp_path / "overlay.yaml"]


def searched(tmp_path: Path, catalogue: dict[str, object], *sources: str):
    return build([*sources], tmp_path / "out", configs=configured(tmp_path, catalogue), search=True).facts


def told(out: Path) -> dict[str, tuple[str, str, str]]:
    rows = read_rows(out / SOURCES, PoolSource)
    return {row.title: (row.stage, row.reason.split(":")[0], row.subdomain) for row in rows if row.stage}


def test_offers_are_ranked_licensed_and_fetched_once_and_a_lost_one_is_tried_again(shelf, tmp_path, store):
    facts = searched(tmp_path, {"type": "local", "url": shelf.base})
    reasons = {
        "Optics for buyers": ("search", "licence not allowed", ""),
        "Optics that was moved": ("download", "download", "Optics"),
        "Making cheese": ("search", "covers none of the topics", ""),
    }
    assert told(tmp_path / "out") == reasons and facts["source_rejects"]
    assert {row["subdomain"]: row["sources"] for row in facts["coverage"]}.keys() == {"Optics", "Tides"}
    assert {row.rank for row in read_rows(tmp_path / "out" / SEARCH / "rankings.parquet", Ranking)} >= {0, 1, 2, 3}
    seen, conversions = fetched(shelf), made(store, "convert")
    assert not searched(tmp_path, {"type": "local", "url": shelf.base})["changed"]
    assert set(fetched(shelf)[len(seen) :]) == {"/books/gone.pdf"}
    shelf.routes["/books/gone.pdf"] = Say(body=pdf_bytes("gone"))
    searched(tmp_path, {"type": "local", "url": shelf.base})
    assert "Optics that was moved" not in {
        title for title, row in told(tmp_path / "out").items() if row[0] == "download"
    }
    assert fetched(shelf).count("/books/rays.pdf") == 1 and made(store, "convert") <= conversions + 3


def test_a_book_that_is_given_and_offered_is_one_source(shelf, tmp_path):
    (tmp_path / "mine.pdf").write_bytes(pdf_bytes("rays"))
    searched(tmp_path, {"type": "local", "url": shelf.base}, str(tmp_path / "mine.pdf"))
    rows = {row.title: row for row in read_rows(tmp_path / "out" / SOURCES, PoolSource)}
    assert rows["mine.pdf"].sha256 and rows["Rays: a course in Optics"].reason.startswith("duplicate of sha256:")


def test_a_catalogue_that_is_down_costs_its_own_answers_alone(shelf, tmp_path):
    entries = [{"name": "local", "base": shelf.base}, {"name": "oapen", "base": f"{shelf.base}/down"}]
    facts = searched(tmp_path, {"type": "catalogues", "catalogues": entries, "queries_per_topic": 1})
    failures = read_rows(tmp_path / "out" / SEARCH / "failures.parquet", FailedQuery)
    assert {(row.catalogue, row.subdomain) for row in failures} == {("oapen", "Optics"), ("oapen", "Tides")}
    assert [row["catalogue"] for row in facts["search_failures"]] == ["oapen", "oapen"]
    assert "## Catalogues without an answer" in (tmp_path / "out" / "report.md").read_text()


def test_when_no_catalogue_answers_the_build_says_so(tmp_path):
    with pytest.raises(CatalogueError, match=r"127\.0\.0\.1:1"):
        searched(tmp_path, {"type": "local", "url": "http://127.0.0.1:1"})


def test_a_build_killed_while_downloading_fetches_the_rest_alone(killed, shelf, tmp_path):
    catalogue = {"type": "local", "url": shelf.base}
    configs = [part for path in configured(tmp_path, catalogue) for part in ("--config", str(path))]
    killed(*configs, "--out", str(tmp_path / "out"), point="download:before_commit:2")
    seen = fetched(shelf)
    searched(tmp_path, catalogue)
    assert seen and all(fetched(shelf).count(path) == 1 for path in seen)
    rows = {row.title: row for row in read_rows(tmp_path / "out" / SOURCES, PoolSource)}
    assert rows["Rays: a course in Optics"].sha256 and rows["Lenses in Optics"].sha256
    assert rows["Optics for buyers"].stage == "search" and rows["Optics that was moved"].stage == "download"


SECTION = re.compile(r"## [^\n]+\n\n([^\n]+)")


def test_every_section_of_the_admitted_books_is_one_chunk(tmp_path):
    entries = textbooks.build_shelf(tmp_path, 0)
    pairs = sorted({(s["domain"], s["subdomain"]) for entry in entries for s in entry["subjects"]})
    topics = [Topic(domain=domain, subdomain=subdomain, num_questions=1) for domain, subdomain in pairs]
    with serve_shelf(tmp_path) as base, live_recorder(GUARD) as session:
        catalogue = connect("local", base=base, client=session.client)
        searches = [search_topic(topic, [catalogue], CatalogueSettings()) for topic in topics]
        offers = [offer for found in searches for offer in found.offers]
        rankings = [row for found in searches for row in found.rankings]
        ranked = admit_offers(offers, topics, CatalogueSettings(), rankings)
        held, address = Holdings(tmp_path / "held"), partial(local.resolve, catalogue)
        fetched, _ = download_sources(ranked.sources, address, tmp_path / "pdf", held, GUARD)
    assert {row.subdomain for row in ranked.coverage if row.source_id} == {topic.subdomain for topic in topics}
    assert base.rpartition(":")[2] not in repr(ranked)
    admitted = {row.source_id for row in fetched if row.status == "admitted"}
    books = [book for book in textbooks.BOOKS if f"doi:{book.doi}" in admitted]
    assert len(books) == len(admitted) == 4

    files = {row.source_id: file_of(tmp_path / "pdf", row.sha256) for row in fetched if row.sha256}
    pages = [pdfium.convert(path, name, ConversionJob()) for name, path in files.items()]
    config = ChunkSettings(min_tokens=16, max_tokens=96, small_sections="drop")
    chunks = [row for page in pages for row in chunk_page(page, lambda text: len(text.split()), config, "d")]
    found = [match[1] for row in chunks if not row.discard and (match := SECTION.fullmatch(row.document.text))]
    notes = [note for book in books for chapter in textbooks.book_notes(book, 0) for note in chapter]
    assert sorted(found) == sorted(language.paragraph(note.facts) for note in notes)
