"""A model reads a book's headings and says where its teaching text lies; where it cannot, rules do. All of it is kept."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_stages import Built, build, config_of, made, running
from test_endpoint_replies import Log, said, server

from corpus.chunk.front_matter import BookBounds
from corpus.model_reply import ModelCall
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError
from infuser_core.schemas import Document, Judgement, Page, Source
from tasks import documents

KEEP = json.dumps({"keep": True, "reason": "it explains something"})
LINE = re.compile(r"^(\d+) \| level (\d) \| (.*?) \| \d+ characters$", re.MULTILINE)


pytestmark = pytest.mark.usefixtures("corpus_store")


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
