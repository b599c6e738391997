"""The overlap audit of a run: its questions, any data, and the mixture on which an instruction-finetuned anchor was trained."""

import json
from pathlib import Path

import pytest
from corpus_rows import document
from corpus_stages import Built, build, config_of, made, running
from report_views import database, reported, whole_run

from corpus.audit.audit import side_of
from corpus.audit.references import texts_of
from flows.corpus import document_pool
from infuser_core.config.run import RunConfig
from infuser_core.errors import DocumentError, UsageError
from infuser_core.results.report import page
from infuser_core.results.report.corpus import mixture as section
from infuser_core.schemas import AuditFact, Document, Judgement, Overlap, Question
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from infuser_core.store.tables import write_rows
from infuser_core.store.views import Lens
from tasks import audits, documents

pytestmark = pytest.mark.usefixtures("corpus_store")


@pytest.fixture(scope="module")
def longest(plain: Built) -> Document:
    return max(plain.rows(plain.pool, "documents", Document), key=lambda row: len(row.text.split()))


def asked(folder: Path, text: str) -> str:
    """The validation set's setting: one question whose text stands in a book, and one other."""
    rows = [
        {"question_id": f"q{n}", "question_text": said, "choices": ["yes", "no"], "ground_truth": "yes"}
        for n, said in enumerate([text, "Is there another one?"])
    ]
    path = folder / "dev.json"
    path.write_text(json.dumps(rows))
    return f"data.validation={{type: file, path: '{path}'}}"


def facts(built: Built, kind: str = "audits") -> dict[str, float]:
    return {row.name: row.value for ref in getattr(built, kind) for row in built.rows(ref, "audit_summary", AuditFact)}


def test_a_document_that_holds_a_question_leaves_the_pool_with_its_reason(
    plain: Built, longest: Document, tmp_path: Path
):
    built = build(config_of(asked(tmp_path, longest.text)))
    (dropped,) = built.rows(built.pool, "judgements", Judgement)
    assert (dropped.document_id, dropped.keep, dropped.decided_by) == (longest.document_id, False, "overlap")
    assert dropped.reason.startswith("overlaps validation.jsonl record q0, run of ")
    left = built.rows(built.pool, "documents", Document)
    assert left == [row for row in plain.rows(plain.pool, "documents", Document) if row != longest]


def test_what_happens_to_it_is_a_setting(plain: Built, longest: Document, tmp_path: Path):
    source = asked(tmp_path, longest.text)
    reported = build(config_of(source, "corpus.overlap.matched=report"))
    assert reported.pool == plain.pool and reported.audits != plain.audits
    rows = [row for ref in reported.audits for row in reported.rows(ref, "overlaps", Overlap) if row.matched]
    assert {(row.document_id, row.record_id) for row in rows} == {(longest.document_id, "q0")}
    with pytest.raises(DocumentError) as caught:
        build(config_of(source, "corpus.overlap.matched=stop"))
    assert caught.value.message.startswith(
        f"1 documents overlap, e.g. {longest.document_id} overlaps validation.jsonl record q0"
    )


def test_a_benchmark_question_counts_like_a_dev_question(longest: Document, tmp_path: Path):
    row = {"question_id": "b1", "question_text": longest.text, "choices": ["yes", "no"], "ground_truth": "no"}
    (tmp_path / "exam.json").write_text(json.dumps([row]))
    built = build(config_of(f"evaluate.benchmarks=[{{name: released, label: exam, path: {tmp_path}/exam.json}}]"))
    (dropped,) = built.rows(built.pool, "judgements", Judgement)
    assert dropped.document_id == longest.document_id and dropped.reason.startswith(
        "overlaps benchmark exam.jsonl record b1, run of "
    )


@pytest.mark.parametrize("mode", ["exact", "paper", "loose"])
def test_every_mode_tells_how_much_of_what_was_planted_it_found(mode: str):
    found = facts(build(config_of(f"corpus.overlap.mode={mode}")))
    said = f"questions: recall ({mode}, used), "
    recalls = {name.removeprefix(said): value for name, value in found.items() if name.startswith(said)}
    assert recalls and all(found[f"questions: controls, {kind}"] > 0 for kind in recalls)
    # Few words in a long text, or short runs of words: no rule calls these a match.
    hard = ("one word in ten changed", *(f"verbatim {n} characters inside 2000" for n in (150, 300, 500)))
    easy = [value for kind, value in recalls.items() if kind not in hard]
    if mode != "paper":
        assert set(easy) == {1.0}
    # What the paper's settings do not find of short passages is said, not hidden.
    assert (min(easy) < 0.5) == (mode == "paper")
    assert {value for name, value in found.items() if "false matches" in name and "used" in name} == {0.0}


def reference(folder: Path, longest: Document) -> Path:
    """A data set of two shards, one of conversations and one of texts; a document stands in the second."""
    folder.mkdir()
    noise = "nothing of this stands in any book of the shelf, whatever the weather was like on that day"
    turns = [{"role": "user", "content": noise}, {"role": "assistant", "content": noise}]
    (folder / "a.jsonl").write_text("".join(json.dumps({"messages": turns}) + "\n" for _ in range(3)))
    write_rows(folder / "b.parquet", [document("r1", f"{noise} {longest.text} {noise}")], Document)
    return folder


def test_any_data_set_on_the_disk_can_be_compared_with(plain: Built, longest: Document, tmp_path: Path):
    data = reference(tmp_path / "mixture", longest)
    built = build(config_of(f"corpus.overlap.references=['{data}']"))
    assert built.pool == plain.pool, "a reference is reported and drops nothing unless told so"
    (ref,) = built.references
    (row,) = [row for row in built.rows(ref, "overlaps", Overlap) if row.matched]
    assert (row.document_id, row.shard, row.record) == (longest.document_id, "mixture/b.parquet", 0)
    assert row.document_end - row.document_start > 0.9 * len(longest.text)
    found = facts(built, "references")
    assert (found["mixture: read"], found["mixture: controls, unrelated words"]) == (4.0, 20.0)
    assert found["mixture: recall (exact, used), verbatim 150 characters"] == 1.0
    assert found["mixture: recall (paper), verbatim 150 characters"] < 0.5

    dropping = build(config_of(f"corpus.overlap.references=['{data}']", "corpus.overlap.reference_matched=drop"))
    (dropped,) = dropping.rows(dropping.pool, "judgements", Judgement)
    assert dropped.document_id == longest.document_id and dropping.references == built.references


def test_a_data_set_enters_by_content(longest: Document, tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    data = reference(tmp_path / "one" / "mixture", longest)
    moved = reference(tmp_path / "two" / "mixture", longest)
    first, second = (build(config_of(f"corpus.overlap.references=['{path}']")) for path in (data, moved))
    assert first.references == second.references
    (moved / "a.jsonl").write_text('{"text": "something else"}\n')
    assert build(config_of(f"corpus.overlap.references=['{moved}']")).references != first.references


def test_the_dev_set_is_looked_for_in_the_data_set_too(tmp_path: Path, plain: Built):
    text = " ".join(f"word{n}" for n in range(60))
    (tmp_path / "leak.jsonl").write_text(json.dumps({"text": f"as they say: {text} and so on"}) + "\n")
    rows = [{"question_id": "d1", "question_text": text, "choices": ["yes", "no"], "ground_truth": "yes"}]
    labels = [{"field": "Physics", "subfield": "voltage"}, {"field": "Mathematics", "subfield": "clock"}]
    dev = [rows[0] | label | {"question_id": f"d{n}"} for n, label in enumerate(labels, 1)]
    dev[1]["question_text"] = "What is it?"
    (tmp_path / "dev.json").write_text(json.dumps(dev))
    built = build(
        config_of(
            f"data.dev={{type: file, path: '{tmp_path}/dev.json'}}",
            f"corpus.overlap.references=['{tmp_path}/leak.jsonl']",
        )
    )
    (row,) = [row for row in built.rows(built.references[0], "overlaps", Overlap) if row.matched]
    assert (row.document_id, row.shard, row.record) == ("dev:d1", "leak.jsonl", 0)


def test_a_data_set_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match="no such file or folder"):
        build(config_of(f"corpus.overlap.references=['{tmp_path}/none']"))


def test_the_report_adds_up_groups_and_shows_the_worst_recall():
    rows = whole_run()
    groups = {
        "k1": {
            "questions: document compared": 10.0,
            "questions: read": 7.0,
            "questions: recall (exact, used), edited": 1.0,
        },
        "k2": {
            "questions: document compared": 30.0,
            "questions: read": 7.0,
            "questions: recall (exact, used), edited": 0.5,
        },
        "k3": {"data: controls, edited": 4.0, "data: recall (exact, used), edited": 0.25},
    }
    rows["audit_summary"] = [
        ("r", -1, "audit", key, name, value) for key, values in groups.items() for name, value in values.items()
    ]
    text = page.markdown(reported(database(rows)))
    assert "| questions: document compared | 40 |" in text and "| questions: read | 7 |" in text
    assert (
        "| questions: recall (exact, used), edited | 0.5 |" in text
        and "| data: recall (exact, used), edited | 0.25 |" in text
    )


def test_a_pool_that_is_given_is_audited_like_one_that_is_built(plain: Built, longest: Document, tmp_path: Path):
    folder = tmp_path / "pool"
    folder.mkdir()
    write_rows(folder / "documents.parquet", plain.rows(plain.pool, "documents", Document), Document)
    with running(config_of(f"corpus.pool={folder}", asked(tmp_path, longest.text))) as run:
        dev, validation = (documents.reference_questions(run.name, part) for part in ("dev", "validation"))
        filled = document_pool(run.name, dev, validation)
        left = run.store.rows(filled, "documents", Document)
    assert left == [row for row in plain.rows(plain.pool, "documents", Document) if row != longest]


NOISE = "nothing of this stands in any book of the shelf, whatever the weather was like on that day"


@pytest.fixture(scope="module")
def data(plain: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three records: a document as a conversation, a validation question as a prompt with a response, and noise."""
    folder = tmp_path_factory.mktemp("data") / "sft"
    folder.mkdir()
    document = max(plain.rows(plain.pool, "documents", Document), key=lambda row: len(row.text.split()))
    with running(config_of(LONG.format(path=questions(folder.parent)))) as run:
        validation = made(run, documents.reference_questions, "validation")
        asked = run.store.rows(validation, "reference_questions", Question)[0]
    turns = [{"role": "user", "content": NOISE}, {"role": "assistant", "content": f"{NOISE} {document.text}"}]
    (folder / "chats.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    pairs = [{"prompt": NOISE, "response": NOISE}, {"prompt": asked.text, "response": "It is yes.", "id": "p1"}]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


LONG = "data.validation={{type: file, path: '{path}'}}"


def questions(folder: Path) -> Path:
    """A validation set: one question of sixty words, and one other."""
    texts = [" ".join(f"term{n}" for n in range(60)), "Is there another one?"]
    rows = [
        {"question_id": f"v{n}", "question_text": text, "choices": ["yes", "no"], "ground_truth": "yes"}
        for n, text in enumerate(texts)
    ]
    path = folder / "validation.json"
    path.write_text(json.dumps(rows))
    return path


def settings(data: Path, *more: str) -> RunConfig:
    path = questions(data.parent)
    return config_of(LONG.format(path=path), f"corpus.overlap.mixture=['{data}']", *more)


def audited(config: RunConfig, plain: Built, name: str = "") -> ArtifactRef:
    with running(config, name) as run:
        dev, validation = (made(run, documents.reference_questions, part) for part in ("dev", "validation"))
        (path,) = run.config.corpus.overlap.mixture
        found = made(run, audits.audit_data, plain.chunks, plain.judgements, dev, validation, path)
        if run.config.corpus.overlap.sft_matched == "stop":
            made(run, audits.refuse_matches, found, path)
        return found


def matches(plain: Built, ref: ArtifactRef) -> list[tuple[str, str, int]]:
    rows = plain.rows(ref, "overlaps", Overlap)
    return sorted((side_of(row.document_id), row.shard, row.record) for row in rows if row.matched)


def test_documents_and_validation_questions_are_found_in_both_layouts(plain: Built, data: Path):
    ref = audited(settings(data), plain)
    assert matches(plain, ref) == [("document", "sft/chats.jsonl", 0), ("validation", "sft/pairs.jsonl", 1)]
    facts = {row.name: row.value for row in plain.rows(ref, "audit_summary", AuditFact)}
    assert facts["mixture sft: read"] == 3.0 and facts["mixture sft: validation compared"] == 2.0
    assert (facts["mixture sft: document matched"], facts["mixture sft: dev matched"]) == (1.0, 0.0)
    assert facts["mixture sft: recall (exact, used), verbatim 150 characters"] == 1.0


def test_a_match_ends_the_run_where_asked_and_its_rows_stay(plain: Built, data: Path):
    with pytest.raises(DocumentError, match="2 texts overlap with the anchor's training data sft") as caught:
        audited(settings(data, "corpus.overlap.sft_matched=stop"), plain, "stopped")
    assert "overlaps" in str(caught.value.hint)
    latest = Journal(plain.store.root, "stopped").last_attempt()
    assert [(entry.phase, entry.state) for entry in latest if entry.phase == "audit"][-1] == ("audit", "failed")
    lens = Lens(Store(plain.store.root), runs=["stopped"])
    assert len(lens.query('select * from "overlaps" where matched')) == 2
    lens.close()


def test_nothing_that_matches_ends_no_run(plain: Built, tmp_path: Path):
    (tmp_path / "clean.jsonl").write_text(json.dumps({"prompt": NOISE, "completion": NOISE}) + "\n")
    config = settings(tmp_path / "clean.jsonl", "corpus.overlap.sft_matched=stop")
    assert matches(plain, audited(config, plain)) == []


def test_the_report_says_what_was_compared_and_what_matches(plain: Built, data: Path):
    audited(settings(data), plain, "told")
    lens = Lens(Store(plain.store.root), runs=["told"])
    found = section(lens.query, "told")
    lens.close()
    counts, pairs = found.tables
    assert [row[1] for row in counts.rows] == ["dev set", "document pool", "validation set"]
    assert [row[-1] for row in counts.rows] == ["0", "1", "1"]
    assert {row[1] for row in pairs.rows} == {"sft/chats.jsonl#0", "sft/pairs.jsonl#1"}
    lens = Lens(Store(plain.store.root), runs=["none"])
    assert section(lens.query, "none").tables == []
    lens.close()


def test_prompts_with_responses_are_read_as_conversations():
    rows = [
        {"prompt": [{"role": "user", "content": "one"}], "response": "two", "id": 7},
        {"messages": [{"role": "user", "content": "three"}]},
        {"instruction": "four", "input": "five", "output": "six"},
        {"text": "seven"},
    ]
    found = [reference for row in rows for reference in texts_of(0, row)]
    assert [row.text for row in found] == ["one\ntwo", "three", "four\nfive\nsix", "seven"]
    assert (found[0].name, found[3].part) == ("7", "text")
