"""The audit finds what is copied, in both directions and at any length."""

import pytest
from corpus_rows import document, question, writer

from corpus.audit.ngrams import compare, grams, words
from corpus.audit.references import question_shards
from corpus.audit.scan import PoolText, Scan, Scanner
from infuser_core.config.corpus import OverlapSettings

prose = writer(7)
POOL = [document(f"d{n}", prose(400)) for n in range(12)]


@pytest.fixture
def scan(tmp_path):
    """The scan of a set of questions against documents."""

    def scanned(documents, questions, config=OverlapSettings().with_defaults()) -> Scan:
        texts = [PoolText(document_id=row.document_id, text=row.text) for row in documents]
        (shard,) = question_shards({"asked": questions}, tmp_path)
        return Scanner(texts, config).scan(shard)

    return scanned


@pytest.fixture
def matches(scan):
    """By document and question, the pairs that match."""

    def matched(*arguments):
        return {(row.document_id, row.record_id): row for row in scan(*arguments).findings if row.matched}

    return matched


def test_normalisation_and_short_texts():
    assert words("The \ufb01rst,  (Second)\nTHIRD.") == ["the", "first", "second", "third"]
    assert grams(["a", "b"], 3) == ["a b"] and grams([], 3) == [] and grams(list("abcd"), 3) == ["a b c", "b c d"]


def test_numbers_of_a_known_pair():
    shared = compare(["x", "a", "b", "c", "d", "y", "e", "f"], ["a", "b", "c", "d", "e", "f"], 3)
    assert (shared.num_common, shared.run.length, shared.run.first, shared.run.second) == (2, 4, 1, 0)
    assert (shared.containment_second, shared.containment_first) == (2 / 4, 2 / 6)
    assert shared.jaccard == 2 / 8


def test_a_question_inside_a_long_document_is_found(matches):
    text = prose(20)
    pool = [*POOL, document("leak", f"{prose(200)} {text} {prose(200)}")]
    found = matches(pool, [question("q1", text, ["one", "two"]), question("q2", prose(20))])
    assert list(found) == [("leak", "q1")]
    assert found["leak", "q1"].containment_reference >= 0.8


def test_a_document_inside_a_long_question_is_found(matches):
    found = matches([document("small", text := prose(40))], [question("q", f"{prose(300)} {text} {prose(300)}")])
    assert found["small", "q"].containment_document == 1.0


def test_a_long_quotation_in_two_long_texts_is_found_by_its_run(matches):
    run = prose(60)
    found = matches([document("d", f"{prose(300)} {run} {prose(300)}")], [question("q", f"{run} {prose(300)}")])
    row = found["d", "q"]
    assert row.longest_run == 60 and max(row.containment_document, row.containment_reference) < 0.8


def test_short_questions_are_found_at_their_own_length_and_counted(scan):
    pool = [document("d", f"{prose(50)} how many legs has one wug {prose(50)}")]
    found = scan(pool, [question("short", "How many legs has one wug?"), question("tiny", "legs?")])
    assert {row.record_id for row in found.findings if row.matched} == {"short"}
    assert (found.counts["read"], found.counts["short"], found.counts["tiny"]) == (2, 4, 2)


def test_the_papers_mode_finds_copies_and_misses_quotations(matches):
    text = prose(30)
    pool = [*POOL, document("leak", f"{prose(200)} {text} {prose(200)}")]
    questions = [question("copy", POOL[0].text), question("quoted", text)]
    assert list(matches(pool, questions, OverlapSettings(mode="paper").with_defaults())) == [("d0", "copy")]


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("documents", [[], [document("empty", "...")]])
def test_empty_sides_are_no_match(scan, documents, mode):
    assert scan(documents, [question("q", prose(20))], OverlapSettings(mode=mode).with_defaults()).findings == []
