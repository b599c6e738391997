"""No stage after the taxonomy sees a dev question: not by its types, not by its inputs, not in anything it writes or
asks. The overlap audit alone compares with questions, and what it finds can only take documents away."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_stages import Built, build, config_of
from test_endpoint_replies import Log, said, server

from infuser_core.schemas import Document
from infuser_core.store.tables import read_foreign_rows

SECRET = ("zebrafinch", "quokkaberry")
PAIRS = (("Physics", "voltage"), ("Mathematics", "clock"))


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One store for all: what is the same is made once."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("INFUSER_STORE", str(tmp_path_factory.mktemp("leaks")))
        yield


def dev_of(folder: Path, word: str) -> str:
    """The dev set's setting: two questions with a telling word in every part."""
    rows = [
        {
            "question_id": f"q{n}",
            "question_text": f"Which {word} is the {n}th {word} of them all?",
            "choices": [f"a red {word}", f"no {word}"],
            "ground_truth": f"a red {word}",
            "field": field,
            "subfield": subfield,
        }
        for n, (field, subfield) in enumerate(PAIRS)
    ]
    path = folder / f"{word}.json"
    path.write_text(json.dumps(rows))
    return f"data.dev={{type: file, path: '{path}'}}"


@pytest.fixture(scope="module")
def answering() -> Iterator[tuple[str, Log]]:
    """A model for everything that can be asked of one: its replies are of no use but to the judge."""

    def script(body: dict[str, Any], attempt: int) -> Any:
        return said('{"keep": true, "reason": "it explains something"}')

    with server(script) as (address, log):
        yield address, log


@pytest.fixture(scope="module")
def built(answering: tuple[str, Log], tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    """The same build for two dev sets with the same pairs, every model of it being asked."""
    folder = tmp_path_factory.mktemp("dev")
    model = f"{{type: endpoint, model: reader, url: '{answering[0]}'}}"
    models = (
        f"corpus.judge={model}",
        f"corpus.catalogue.model={model}",
        "corpus.structure=model",
        "corpus.group=2",
    )
    data = folder / "reference.jsonl"
    data.write_text(json.dumps({"text": "nothing that stands in a book, and nothing that is asked in a set"}) + "\n")
    more = (*models, f"corpus.overlap.references=['{data}']")
    return [build(config_of(dev_of(folder, word), *more)) for word in SECRET]


def test_two_dev_sets_with_the_same_pairs_have_the_same_pool(built: list[Built]):
    one, other = built
    assert one.bytes() == other.bytes() and len(one.rows(one.pool, "documents", Document)) > 100
    for stage in ("downloads", "pages", "bounds", "chunks", "judgements"):
        assert getattr(one, stage) == getattr(other, stage), stage
    assert one.audits != other.audits


def test_only_taxonomy_and_audit_are_made_from_the_questions(built: list[Built]):
    store = built[0].store
    recipes = {ref: store.manifest(ref).recipe["inputs"] for ref in store.refs()}
    questions = {ref.id for ref in recipes if ref.kind == "questions"}
    seeing = {ref.kind for ref, inputs in recipes.items() if questions & {*inputs.values()}}
    assert seeing == {"taxonomy", "audit"}
    audits = {ref.id for ref in recipes if ref.kind == "audit"}
    assert not any(audits & {*inputs.values()} for inputs in recipes.values()), "audits enter by their effect"


def test_no_stage_writes_a_word_of_a_question(built: list[Built]):
    store = built[0].store
    holding = set()
    for ref in store.refs():
        for name in store.manifest(ref).files:
            if name.endswith(".parquet"):
                text = json.dumps(list(read_foreign_rows(store.path(ref, name))), default=repr)
                holding |= {(ref.kind, name) for word in SECRET if word in text}
    assert holding == {("questions", "reference_questions.parquet")}


def test_no_model_is_shown_a_word_of_a_question(built: list[Built], answering: tuple[str, Log]):
    del built
    asked = json.dumps(answering[1].bodies)
    kinds = ("level 1", "Physics", "voltage")
    assert all(word in asked for word in kinds), "headings, pairs and chunks were shown"
    assert not any(word in asked for word in SECRET)
