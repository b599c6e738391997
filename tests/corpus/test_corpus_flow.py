"""The stages of a corpus: groups of books, bounds that a model names, and what a killed stage loses."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_stages import NANO, RULES, Built, build, config_of, made, running
from launcher import Launcher, SmallRun
from places import CONFIGS
from test_endpoint_replies import Log, said, server

from corpus.chunk.front_matter import BookBounds
from corpus.model_reply import ModelCall
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError
from infuser_core.schemas import Document, Judgement, Page, Source
from infuser_core.store.journal import Journal
from tasks import documents

pytestmark = pytest.mark.usefixtures("corpus_store")


@pytest.fixture(scope="module")
def built(corpus_store: Path) -> Built:
    return build(config_of("corpus.group=1"))


def test_each_book_has_artifacts_of_its_own(built: Built):
    books = [row for row in built.rows(built.sources, "sources", Source) if row.sha256]
    assert len(books) == len(built.pages) == len(built.chunks) == len(built.judgements) == len(built.audits) == 4
    for book, pages, chunks in zip(books, built.pages, built.chunks, strict=True):
        assert [page.source_id for page in built.rows(pages, "pages", Page)] == [book.source_id]
        assert {row.source_id for row in built.rows(chunks, "chunks", Document)} == {book.source_id}


@pytest.mark.parametrize("size", [3, 16])
def test_the_size_of_a_group_changes_no_document(built: Built, size: int):
    other = build(config_of(f"corpus.group={size}"))
    assert len(other.pages) == (2 if size == 3 else 1)
    assert other.pool != built.pool and other.bytes() == built.bytes()
    assert len(built.rows(built.pool, "documents", Document)) > 100


def test_every_chunk_and_every_discarded_span_is_accounted_for(built: Built):
    for chunks, verdicts in zip(built.chunks, built.judgements, strict=True):
        candidates = {row.document_id for row in built.rows(chunks, "chunks", Document)}
        judged = built.rows(verdicts, "judgements", Judgement)
        assert {row.document_id for row in judged} == candidates and all(row.reason for row in judged)
        ruled = built.rows(chunks, "judgements", Judgement)
        assert not candidates & {row.document_id for row in ruled} and all(row.reason for row in ruled)
    kept = sum(row.keep for ref in built.judgements for row in built.rows(ref, "judgements", Judgement))
    assert kept == len(built.rows(built.pool, "documents", Document))


def test_a_book_less_leaves_the_work_on_the_others_as_it_is(built: Built):
    licences = sorted({row.licence for row in built.rows(built.sources, "sources", Source) if row.sha256})
    assert len(licences) > 1, "books differ in their licence"
    fewer = build(config_of("corpus.group=1", f"corpus.catalogue.licences=[{licences[0]}]"))
    assert 0 < len(fewer.pages) < len(built.pages)
    for stage in ("downloads", "pages", "chunks", "judgements"):
        assert {*getattr(fewer, stage)} <= {*getattr(built, stage)}, stage
    assert fewer.pool != built.pool


def test_an_audit_that_finds_nothing_new_changes_no_pool(plain: Built):
    benchmarks = "evaluate.benchmarks=[{name: nano_transfer}]"
    for change in (
        benchmarks,
        "data.validation.size=9",
        "corpus.overlap.mode=loose",
        "corpus.overlap.matched=report",
    ):
        other = build(config_of(change))
        assert other.pool == plain.pool, change
    assert build(config_of(benchmarks)).audits != plain.audits


@pytest.mark.slow
def test_the_flow_composes_the_same_stages(small_run: SmallRun, small_overlay: Path):
    built = build(load([NANO, small_overlay]), "small")
    keys = {ref.key for ref in small_run.store.refs()}
    found = {entry.key for entry in Journal(built.store.root, "small").latest()}
    assert found <= keys and built.pool.key in found


def test_worlds_and_shelves_do_not_share_books(plain: Built):
    """Micro-worlds print other books under the same names: in one store each keeps its own."""
    basic = [CONFIGS / "nano-basic.yaml"]
    others = [build(load(basic, [*RULES, *more])) for more in ([], ["corpus.catalogue.shelf=by_domain"])]
    books = [
        {row.source_id: row.sha256 for row in each.rows(each.sources, "sources", Source) if row.sha256}
        for each in (plain, *others)
    ]
    assert len({frozenset(each) for each in books}) == 1, "the names are the same"
    assert len({digest for each in books for digest in each.values()}) == 12


def command(*settings: str) -> list[str]:
    return ["run", "configs/nano.yaml", "--name", "one", *[part for each in settings for part in ("--set", each)]]


def pieces(store: Path, phase: str) -> dict[Path, int]:
    """What a stage keeps between its attempts, with the time of its writing."""
    found = [path for path in (store / ".partial").glob(f"{phase}-*/**/*") if path.parent.name != "questions"]
    return {path: path.stat().st_mtime_ns for path in found if path.is_file()}


def killed(launch: Launcher, store: Path, arguments: list[str], point: str) -> None:
    ended = launch(*arguments, store=store, INFUSER_CRASH_AT=point)
    assert ended.code == -signal.SIGKILL, f"{point}: {ended}"


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "files"), [("convert", 1), pytest.param("chunk", 3, marks=pytest.mark.long)])
def test_finished_books_are_not_worked_on_again(launch: Launcher, tmp_path: Path, phase: str, files: int):
    killed(launch, tmp_path, command(*RULES), f"{phase}:inside:2")
    kept = pieces(tmp_path, phase)
    assert len(kept) == 2 * files, "two books of four"
    killed(launch, tmp_path, ["resume", "one"], f"{phase}:before_commit")
    assert len(pieces(tmp_path, phase)) == 4 * files
    assert {path: pieces(tmp_path, phase)[path] for path in kept} == kept
    killed(launch, tmp_path, ["resume", "one"], "anchor:start")
    assert pieces(tmp_path, phase) == {}, "what is committed needs no pieces"
    (pool,) = (tmp_path / "artifacts" / "pool").glob("*")
    rows = json.loads((pool / "artifact.json").read_text())["rows"]
    assert rows["documents"] > 100


@pytest.mark.slow
def test_a_model_is_asked_about_each_book_and_each_chunk_once(
    launch: Launcher, tmp_path: Path, answering: tuple[str, Log]
):
    address, log = answering
    judge = f"corpus.judge={{type: endpoint, model: reader, url: '{address}'}}"
    arguments = command(*RULES, judge, "corpus.structure=model", "corpus.group=2")
    killed(launch, tmp_path, arguments, "structure:inside:1")
    killed(launch, tmp_path, ["resume", "one"], "structure:after_rename")
    killed(launch, tmp_path, ["resume", "one"], "judge:before_commit")
    killed(launch, tmp_path, ["resume", "one"], "anchor:start")
    shown = [body["messages"][-1]["content"] for body in log.bodies]
    assert len(shown) == len({*shown}) > 100
    assert sum(bool(LINE.search(prompt)) for prompt in shown) == 4
    ran = [entry.phase for entry in Journal(tmp_path, "one").entries() if entry.state == "ran"]
    # The kill between rename and journal leaves an artifact that no attempt wrote down as its own.
    assert {phase: ran.count(phase) for phase in ("structure", "chunk", "judge", "audit", "pool")} == {
        "structure": 1, "chunk": 2, "judge": 2, "audit": 2, "pool": 1,
    }  # fmt: skip


@pytest.mark.long
def test_scanned_shards_of_a_reference_are_not_scanned_again(launch: Launcher, tmp_path: Path):
    data = tmp_path / "mixture"
    data.mkdir()
    for name in ("a", "b", "c"):
        (data / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": f"{name} {n} of them"}) + "\n" for n in range(9))
        )
    store = tmp_path / "store"
    # The questions of the dev and validation sets are two shards of an audit before.
    killed(launch, store, command(*RULES, f"corpus.overlap.references=['{data}']"), "audit:shard:4")
    kept = pieces(store, "audit")
    assert len(kept) == 2
    killed(launch, store, ["resume", "one"], "audit:before_commit")
    assert len(pieces(store, "audit")) == 3
    assert {path: pieces(store, "audit")[path] for path in kept} == kept
    killed(launch, store, ["resume", "one"], "anchor:start")
    assert pieces(store, "audit") == {}


KEEP = json.dumps({"keep": True, "reason": "it explains something"})
LINE = re.compile(r"^(\d+) \| level (\d) \| (.*?) \| \d+ characters$", re.MULTILINE)


def boundaries(prompt: str) -> str:
    """By rule: teaching begins with the second heading of the first level, and ends with the last of them."""
    chapters = [int(number) for number, level, _ in LINE.findall(prompt) if level == "1"]
    return json.dumps({"first_chapter": chapters[1], "end_marker": chapters[-1]})


@pytest.fixture
def answering() -> Iterator[tuple[str, Log]]:
    """A server with a judge that keeps everything, and knows where books begin and end."""

    def script(body: dict[str, Any], attempt: int) -> Any:
        prompt = body["messages"][-1]["content"]
        return said(boundaries(prompt) if LINE.search(prompt) else KEEP)

    with server(script) as (address, log):
        yield address, log


def asking(address: str, *more: str) -> Built:
    endpoint = f"{{type: endpoint, model: reader, url: '{address}'}}"
    return build(config_of(f"corpus.judge={endpoint}", "corpus.structure=model", "corpus.group=3", *more))


def test_what_the_model_names_is_cut_and_what_it_said_is_kept(answering: tuple[str, Log]):
    address, log = answering
    built = asking(address)
    bounds = [row for ref in built.bounds for row in built.rows(ref, "structure_bounds", BookBounds)]
    calls = [row for ref in built.bounds for row in built.rows(ref, "structure_calls", ModelCall)]
    pages = {row.source_id: row for ref in built.pages for row in built.rows(ref, "pages", Page)}
    assert len(built.bounds) == 2 and [row.source_id for row in bounds] == list(pages)
    assert {row.decided_by for row in bounds} == {f"reader@{address}"} and not any(row.problem for row in bounds)
    assert len(calls) == 4 and all(json.loads(row.reply) and not row.problem for row in calls)
    for row in bounds:
        text = pages[row.source_id].markdown
        assert text[row.first :].startswith("# ") and text[row.end :].startswith("# ")

    cut = [row for ref in built.chunks for row in built.rows(ref, "judgements", Judgement)]
    assert {"front_matter", "back_matter"} <= {row.reason for row in cut if row.decided_by == "structure"}
    spans = {row.source_id: row for row in bounds}
    for document in built.rows(built.pool, "documents", Document):
        assert spans[document.source_id].first <= document.start < document.end <= spans[document.source_id].end
    # The headings are asked about, never a text of a book.
    shown = [body["messages"][-1]["content"] for body in log.bodies]
    headings = [prompt for prompt in shown if LINE.search(prompt)]
    assert len(headings) == 4
    words = [row.text.split("\n")[-1][:60] for row in built.rows(built.pool, "documents", Document)]
    assert not any(word in prompt for word in words for prompt in headings)


def test_a_malformed_answer_is_kept_with_its_problem_and_the_rules_decide():
    # A sampler without a model, that says a digit to everything.
    fake = ("corpus.judge={type: nano}", "engine.sampler=fake")
    with running(config_of(*fake, "corpus.structure=model")) as run:
        source = build(config_of("corpus.group=16"))
        found = made(run, documents.find_structure, source.pages[0])
        bounds = run.store.rows(found, "structure_bounds", BookBounds)
        calls = run.store.rows(found, "structure_calls", ModelCall)
        by_rule = made(run, documents.chunk_textbooks, source.sources, source.downloads[0], source.pages[0], found)
    assert len(calls) == 3 * len(bounds) == 12
    assert {row.problem for row in calls} == {"the reply has no JSON object"} and all(row.reply for row in calls)
    assert {(row.decided_by, row.problem) for row in bounds} == {("rules", "1 of 1 prompts had no usable answer")}
    headings = build(config_of("corpus.structure=headings"))
    for table, kind in (("chunks", Document), ("judgements", Judgement)):
        assert headings.rows(by_rule, table, kind) == headings.rows(headings.chunks[0], table, kind)


def test_books_are_not_asked_about_again(answering: tuple[str, Log]):
    address, log = answering
    built = asking(address)
    before = len(log.bodies)
    assert asking(address).pool == built.pool and len(log.bodies) == before


def test_a_model_that_is_none_is_refused():
    with pytest.raises(ConfigError) as caught:
        config_of("corpus.structure=model")
    assert "structure `model` asks the judge's model, and judge `rules` has none" in caught.value.message


def test_an_endpoint_without_an_address_is_refused():
    with pytest.raises(ConfigError, match=r"corpus\.judge"):
        load([Path("configs/nano.yaml")], ["corpus.judge={type: endpoint, model: m, url: 'not an address'}"])


def test_a_model_behind_an_address_may_phrase_queries_too(answering: tuple[str, Log]):
    address, _ = answering
    # Its replies are no queries: rules phrase them, and the replies stay.
    librarian = f"corpus.catalogue.model={{type: endpoint, model: reader, url: '{address}'}}"
    built = build(config_of(librarian))
    assert [row.status for row in built.rows(built.sources, "sources", Source)].count("admitted") == 4
    searches = [ref for ref in built.store.refs() if ref.kind == "search"]
    calls = [row for ref in searches for row in built.rows(ref, "search_calls", ModelCall)]
    assert f"reader@{address}" in {row.model for row in calls}
