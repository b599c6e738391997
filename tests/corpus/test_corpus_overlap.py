"""The audit finds what is copied, in both directions, and proves it on planted controls."""

import pytest
from corpus_rows import document, question, writer

from corpus.audit.index import OverlapConfig
from corpus.audit.ngrams import compare, grams, words
from corpus.audit.overlap import audit
from corpus.audit.planted_controls import DISGUISES

prose = writer(7)
POOL = [document(f"d{n}", prose(400)) for n in range(12)]
FEW = OverlapConfig(controls_per_kind=5)


def matches(documents, references, config=FEW):
    rows, _ = audit(documents, references, config)
    return {(r.document_id, r.reference_id): r for r in rows if r.matched and not r.reference_id.startswith("control:")}


def test_normalisation_and_short_texts():
    assert words("The \ufb01rst,  (Second)\nTHIRD.") == ["the", "first", "second", "third"]
    assert grams(["a", "b"], 3) == ["a b"] and grams([], 3) == [] and grams(list("abcd"), 3) == ["a b c", "b c d"]


def test_numbers_of_a_known_pair():
    shared = compare(["x", "a", "b", "c", "d", "y", "e", "f"], ["a", "b", "c", "d", "e", "f"], 3)
    assert (shared.num_common, shared.run.length, shared.run.first, shared.run.second) == (2, 4, 1, 0)
    assert (shared.containment_second, shared.containment_first) == (2 / 4, 2 / 6)
    assert shared.jaccard == 2 / 8


def test_a_question_inside_a_long_document_is_found():
    text = prose(20)
    pool = [*POOL, document("leak", f"{prose(200)} {text} {prose(200)}")]
    found = matches(pool, [question("q1", text, ["one", "two"]), question("q2", prose(20))])
    assert list(found) == [("leak", "q1")]
    assert found["leak", "q1"].containment_reference == 1.0 and found["leak", "q1"].minhash < 0.8


def test_a_document_inside_a_long_question_is_found():
    found = matches([document("small", text := prose(40))], [question("q", f"{prose(300)} {text} {prose(300)}")])
    assert found["small", "q"].containment_document == 1.0


def test_a_long_quotation_in_two_long_texts_is_found_by_its_run():
    run = prose(60)
    found = matches([document("d", f"{prose(300)} {run} {prose(300)}")], [question("q", f"{run} {prose(300)}")])
    row = found["d", "q"]
    assert row.longest_run == 60 and max(row.containment_document, row.containment_reference) < 0.8


def test_short_questions_are_found_at_their_own_length_and_counted():
    pool = [document("d", f"{prose(50)} how many legs has one wug {prose(50)}")]
    references = [question("short", "How many legs has one wug?"), question("tiny", "legs?")]
    rows, summary = audit(pool, references, FEW)
    assert {row.reference_id for row in rows if row.matched and row.document_id == "d"} >= {"short"}
    assert not [row for row in rows if row.reference_id == "tiny" and row.matched]
    assert (summary["short_references"], summary["tiny_references"]) == (2, 1)


def test_controls_are_found_and_chance_is_not():
    _, summary = audit(POOL, [question("q", prose(25))], FEW)
    recalls = {name: value for name, value in summary.items() if name.startswith("recall_")}
    assert set(recalls) == {
        *(f"recall_verbatim_{n}_characters" for n in (150, 300, 500, 1000, 1500)),
        "recall_200_words_one_word_changed",
        "recall_half_a_document",
        "recall_1_of_the_words_changed",
        "recall_60_words_quoted_in_an_answer",
        "recall_a_whole_document_in_an_answer",
        "recall_a_question_quoted_in_a_document",
        *(f"recall_verbatim_{n}_characters_inside_2000" for n in (150, 300, 500, 1000, 1500)),
        *(f"recall_{kind.replace(' ', '_').replace('-', '_')}" for kind in DISGUISES if kind != "LaTeX spacing"),
    }
    # A passage of less than 50 words in a long text is no match by any rule.
    partly = {"recall_one_word_in_ten_changed", *(f"recall_verbatim_{n}_characters_inside_2000" for n in (150, 300))}
    assert {value for name, value in recalls.items() if name not in partly} == {1.0}
    assert summary["false_matches_unrelated_words"] == 0.0
    assert summary["matches"] == 0 and summary["documents"] == 12
    assert summary["minhash_recall_verbatim_300_characters"] == 0.0
    assert 0 < summary["minhash_recall_1_of_the_words_changed"] < 1


def test_the_papers_mode_finds_copies_and_misses_quotations():
    text = prose(30)
    pool = [*POOL, document("leak", f"{prose(200)} {text} {prose(200)}")]
    config = OverlapConfig(mode="paper", controls_per_kind=2, control_chars=(300,))
    found = matches(pool, [question("copy", POOL[0].text), question("quoted", text)], config)
    assert list(found) == [("d0", "copy")]


@pytest.mark.parametrize("documents", [[], [document("empty", "...")]])
def test_empty_sides_are_no_match(documents):
    _, summary = audit(documents, [], FEW)
    assert summary["matches"] == 0
