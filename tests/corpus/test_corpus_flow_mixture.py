"""What an instruction-finetuned anchor was trained on is looked for in pool, dev set and validation set."""

import json
from pathlib import Path

import pytest
from corpus_stages import Built, config_of, made, running

from corpus.audit.audit import side_of
from corpus.audit.references import texts_of
from infuser_core.config.run import RunConfig
from infuser_core.errors import DocumentError
from infuser_core.results.report.corpus import mixture as section
from infuser_core.schemas import AuditFact, Document, Overlap, Question
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from tasks import audits, documents

NOISE = "nothing of this stands in any book of the shelf, whatever the weather was like on that day"


pytestmark = pytest.mark.usefixtures("corpus_store")


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
