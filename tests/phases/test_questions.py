"""Question files in the published layout are read whole, or refused with file and row."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.benchmarks.parts.question_sets import content_of, load_questions, question_of
from infuser_core.config.sources import FileQuestions, NanoQuestions
from infuser_core.errors import DocumentError
from infuser_core.verifiers.parts.grading import Grading, grading_of

ROW = {
    "question_id": "q1",
    "question_text": "What is 6 * 7?",
    "choices": ["41", "42", "43"],
    "ground_truth": "42",
    "field": "Mathematics",
    "subfield": "Arithmetic",
}


STRUCTURES = st.one_of(
    st.none(), st.booleans(), st.just(float("nan")), st.lists(st.integers(), min_size=2),
    st.dictionaries(st.text(), st.text()), st.just([{"role": "user", "content": "1 + 1?"}]),
)  # fmt: skip


def read(tmp_path: Path, rows: list[dict[str, Any]] | str, size: int | None = None):
    path = tmp_path / "set.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return load_questions(FileQuestions(type="file", path=str(path), size=size), seed=0)


def test_a_row_becomes_a_question(tmp_path: Path):
    (question,) = read(tmp_path, [ROW])
    assert (question.question_id, question.text, question.choices) == ("q1", "What is 6 * 7?", ["41", "42", "43"])
    assert (question.answer, question.verifier) == ("B", "choice")
    assert (question.domain, question.subdomain) == ("Mathematics", "Arithmetic")


def test_a_list_and_a_file_of_lines_say_the_same(tmp_path: Path):
    rows = [ROW, {**ROW, "question_id": "q2", "question_text": "And 5 * 5?", "ground_truth": "A"}]
    listed = read(tmp_path, rows)
    assert read(tmp_path, "\n".join(json.dumps(row) for row in rows)) == listed
    assert [question.answer for question in listed] == ["B", "A"]


@pytest.mark.parametrize(
    ("truth", "choices", "letter"),
    [
        ("42", ["41", "42"], "B"),
        ("B", ["41", "42"], "B"),
        (1, ["41", "42"], "B"),
        (42, ["41", "42"], "B"),
        # A choice's text comes first: choices may themselves be letters or small numbers.
        ("A", ["B", "A"], "B"),
        (1, ["1", "0"], "A"),
        ("42", {"A": "41", "B": "42"}, "B"),
        ("42", {"B": "42", "A": "41"}, "B"),
        ("B", {"A": "41", "B": "42", "C": None}, "B"),
        (["42"], ["41", "42"], "B"),
        ("B", {"text": ["41", "42"], "label": ["A", "B"]}, "B"),
        ("2", {"text": ["41", "42"], "label": ["1", "2"]}, "B"),
        (1, {"text": ["41", "42"], "label": ["1", "2"]}, "A"),
        ("b", [{"label": "b", "text": "42"}, {"label": "a", "text": "41"}], "B"),
        # CSV has no lists: a cell holds one as JSON, or as Python prints it.
        ("42", '["41", "42"]', "B"),
        ("42", "['41', '42']", "B"),
        ("B", '{"A": "41", "B": "42"}', "B"),
    ],
)
def test_the_answer_is_found_as_text_then_as_letter_or_index(tmp_path: Path, truth: Any, choices: Any, letter: str):
    (question,) = read(tmp_path, [{**ROW, "choices": choices, "ground_truth": truth}])
    assert question.answer == letter


@pytest.mark.parametrize(("source", "verifier"), [("aime", "integer"), ("math500", "math"), (None, "math")])
def test_a_question_without_choices_is_answered_freely(tmp_path: Path, source: str | None, verifier: str):
    row = {**ROW, "choices": None, "ground_truth": 42, "data_source": source}
    (question,) = read(tmp_path, [row])
    assert (question.answer, question.choices, question.verifier) == ("42", [], verifier)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROW, "ground_truth": "44"}], "{path}, row 1: the answer '44' is none of the choices"),
        ([ROW, {**ROW, "question_id": ""}], "{path}, row 2: no question_id"),
        ([{**ROW, "question_text": None}], "{path}, row 1: no question_text"),
        ([{key: ROW[key] for key in ROW if key != "ground_truth"}], "{path}, row 1: no ground_truth"),
        ([{**ROW, "choices": "41|42"}], "{path}, row 1: field choices: expected choices as a list"),
        # An array of numpy as pandas prints it: Python joins texts without commas.
        ([{**ROW, "choices": "['41' '42']", "ground_truth": "A"}], "{path}, row 1: 1 choices"),
        ([{**ROW, "choices": ["41", "42", None]}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": [["41"], ["42"]]}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": {"A": "41", "C": "42"}}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": [{"label": "A", "text": "42"}] * 2}], "{path}, row 1: field choices: expected choices"),
        (
            [{**ROW, "choices": {"text": ["2", "42"], "label": ["1", "2"]}, "ground_truth": "2"}],
            "{path}, row 1: the answer '2' is a choice and the label of another",
        ),
        ([{**ROW, "ground_truth": 3}], "{path}, row 1: the answer 3 is none of the choices"),
        ([{**ROW, "choices": list("abcdefghijk")}], "{path}, row 1: 11 choices"),
        ([ROW, ROW], "{path}: question_id q1 twice"),
        ([], "{path} holds no rows"),
        ("[1, 2]", "{path}, row 1 is no object"),
        ("{not json", "{path} is not JSON: "),
    ],
)
def test_a_wrong_file_is_refused_with_its_row(tmp_path: Path, rows: Any, message: str):
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, rows)
    assert caught.value.message.startswith(message.format(path=tmp_path / "set.json"))
    assert caught.value.hint


@pytest.mark.parametrize("field", ["question_id", "question_text", "ground_truth"])
@given(value=STRUCTURES)
def test_a_value_of_another_type_is_never_printed_into_a_question(field: str, value: Any):
    with pytest.raises(DocumentError, match=f"(no|field) {field}"):
        question_of({**ROW, "choices": None, field: value}, "row 1")


def test_a_structure_that_a_table_fills_with_null_is_no_choices(tmp_path: Path):
    (question,) = read(tmp_path, [{**ROW, "choices": {"A": None, "B": None}}])
    assert (question.choices, question.answer) == ([], "42")


def test_a_row_without_a_column_names_those_that_are_there():
    with pytest.raises(DocumentError, match="no question_id; there are prompt, answer"):
        question_of({"prompt": "1 + 1?", "answer": "2"}, "row 1")


def test_another_number_of_rows_than_expected_is_refused(tmp_path: Path):
    assert len(read(tmp_path, [ROW], size=1)) == 1
    with pytest.raises(DocumentError, match="has 1 questions, expected 2"):
        read(tmp_path, [ROW], size=2)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(DocumentError, match="cannot read"):
        load_questions(FileQuestions(type="file", path=str(tmp_path), size=None), seed=0)


@pytest.mark.parametrize(
    ("source", "verifier"), [("bbeh", "bbeh"), ("BBEH-open", "bbeh"), ("aime2025", "integer"), ("hmmt", "math")]
)
def test_the_data_source_of_a_published_row_chooses_its_verifier(tmp_path: Path, source: str, verifier: str):
    (question,) = read(tmp_path, [{**ROW, "choices": [], "data_source": source}])
    assert question.verifier == verifier


@pytest.mark.parametrize(
    ("labels", "route"),
    [
        ({"data_source": "mmlu_pro"}, "mmlu_pro"),
        ({"data_source": "MMLU-Pro"}, "mmlu_pro"),
        ({"data_source": "supergpqa", "domain": "Science"}, "supergpqa"),
        ({"domain": "OlympiadBench_Physics", "field": ""}, "olympiadbench_phys"),
        ({"data_source": "somebody"}, ""),
    ],
)
def test_a_published_row_says_which_benchmark_it_is_from(tmp_path: Path, labels: dict[str, str], route: str):
    (question,) = read(tmp_path, [{**ROW, **labels}])
    assert grading_of(question).route == route


def test_published_gpqa_rows_are_shuffled_by_their_identifier(tmp_path: Path):
    row = {**ROW, "question_id": "q0", "choices": ["right", "b", "c", "d"], "ground_truth": "right"}
    (question,) = read(tmp_path, [{**row, "data_source": "gpqa_diamond"}])
    assert (question.choices, question.answer) == (["b", "c", "d", "right"], "D")
    (question,) = read(tmp_path, [{**row, "data_source": "mmlu_pro"}])
    assert (question.choices, question.answer) == (["right", "b", "c", "d"], "A")


def test_published_olympiad_rows_keep_unit_tolerance_and_lists(tmp_path: Path):
    row = {**ROW, "choices": [], "domain": "OlympiadBench_Math", "ground_truth": "1; (2, 3)", "answer_type": "Tuple"}
    (question,) = read(tmp_path, [{**row, "unit": "$m$", "error": ".1", "field": ""}])
    assert question.answer == "1, (2, 3)"
    assert grading_of(question) == Grading(
        route="olympiadbench_math", answer_type="tuple", multiple=True, tolerance=".1", unit="m"
    )


def test_the_content_of_a_source_is_that_of_its_file_wherever_it_lies(tmp_path: Path):
    def content(name: str, rows: list[dict[str, Any]]) -> str:
        (tmp_path / name).write_text(json.dumps(rows))
        return content_of(FileQuestions(type="file", path=str(tmp_path / name)))

    assert content("one.json", [ROW]) == content("two.json", [ROW]) != content("one.json", [ROW, ROW])
    assert content_of(NanoQuestions(split="dev", size=9)) != content_of(NanoQuestions(split="dev", size=8))
    with pytest.raises(DocumentError, match="cannot read"):
        content_of(FileQuestions(type="file", path=str(tmp_path / "none.json")))


def test_micro_world_sets_are_disjoint_and_follow_the_seed():
    sets = {
        split: load_questions(NanoQuestions(split=split, size=96), seed=42) for split in ("dev", "validation", "test")
    }
    texts = [question.text for questions in sets.values() for question in questions]
    assert len(set(texts)) == len(texts) == 3 * 96
    assert load_questions(NanoQuestions(split="dev", size=96), seed=42) == sets["dev"]
    assert load_questions(NanoQuestions(split="dev", size=96), seed=43) != sets["dev"]
