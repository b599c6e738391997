"""Multiple-choice rows: letters stay with their option, whatever the data set does with its list."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks import gpqa_diamond, medqa, medxpertqa, mmlu_pro, supergpqa
from infuser_core.evaluation.benchmarks.parts.spec import RowPlace
from infuser_core.schemas import Question

MMLU = {"question_id": 7, "question": "Which?", "options": ["a", "b", "c", "d"], "answer": "C", "answer_index": 2}
MMLU |= {"category": "law"}
SUPER = {"uuid": "u1", "question": "Which?", "options": ["a", "b", "c"], "answer": "b", "answer_letter": "B"}
SUPER |= {"discipline": "Science", "field": "Physics"}
MEDQA = {"question": "Which?", "options": {"A": "w", "B": "x", "C": "y", "D": "z"}, "answer": "y", "answer_idx": "C"}
EXPERT = {"id": "Text-1", "question": "Which?", "options": {"A": "w", "B": "x", "C": None}, "label": "B"}
EXPERT |= {"medical_task": "Diagnosis", "body_system": "Nervous"}
GPQA = {"Record ID": "r1", "Question": "Which?", "Correct Answer": "right"}
GPQA |= {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}


def read(module: Any, row: dict[str, Any], *, number: int = 1) -> Question:
    found: Question = module.read_row(row, RowPlace(benchmark=module.BENCHMARK, source="file", number=number))
    return found


@given(st.lists(st.sampled_from(["N/A", "x", "y", "z", "w"]), min_size=2, max_size=10), st.data())
def test_padding_goes_and_the_letter_stays_with_its_option(options: list[str], data: st.DataObject):
    index = data.draw(st.integers(0, len(options) - 1))
    real = [option for number, option in enumerate(options) if option != "N/A" or number == index]
    row = {**MMLU, "options": options, "answer": "ABCDEFGHIJ"[index], "answer_index": index}
    if len(real) < 2:
        with pytest.raises(DocumentError, match="at least 2 real choices"):
            read(mmlu_pro, row)
        return
    question = read(mmlu_pro, row)
    assert question.choices == real
    assert question.choices["ABCDEFGHIJ".index(question.answer)] == options[index]


def test_a_letter_that_is_not_the_index_is_refused_and_two_options_are_a_question():
    with pytest.raises(DocumentError, match="field answer_index: expected 2, as the answer is C, found 1"):
        read(mmlu_pro, {**MMLU, "answer_index": 1})
    assert read(mmlu_pro, {**MMLU, "options": ["x", "y"], "answer": "B", "answer_index": 1}).choices == ["x", "y"]


@pytest.mark.parametrize(("name", "places"), [("q0", [1, 2, 3, 0]), ("q1", [0, 3, 1, 2]), ("q2", [3, 2, 1, 0])])
def test_the_order_of_gpqa_is_the_authors(name: str, places: list[int]):
    assert gpqa_diamond.answer_order(name) == places


@given(st.lists(st.sampled_from(["same", "other", "third"]), min_size=4, max_size=4), st.text("ab1", min_size=1))
def test_gpqa_follows_the_right_answer_by_place_where_texts_repeat(texts: list[str], name: str):
    answers = dict(zip(gpqa_diamond._ANSWERS, texts, strict=True))
    before = random.getstate()
    question = read(gpqa_diamond, {**GPQA, **answers, "Record ID": name})
    places = gpqa_diamond.answer_order(name)
    assert places["ABCD".index(question.answer)] == 0
    assert question.choices == [texts[place] for place in places]
    assert random.getstate() == before, "nobody else's random numbers move"


def test_gpqa_texts_lose_their_margins_and_marks():
    row = {**GPQA, "Question": "  What\nis it? ", "Correct Answer": " Step one [title] step two "}
    question = read(gpqa_diamond, row)
    assert question.text == "What\nis it?"
    assert question.choices["ABCD".index(question.answer)] == "Step one.  step two"


def test_gpqa_rows_without_a_record_are_told_apart_by_their_text():
    nameless = {key: value for key, value in GPQA.items() if key != "Record ID"}
    one, other = (read(gpqa_diamond, {**nameless, "Question": text}) for text in ("This?", "That?"))
    assert one.question_id != other.question_id
    assert read(gpqa_diamond, {**nameless, "Question": "This?"}, number=9) == one


def test_blanks_do_not_make_a_supergpqa_answer_another_one():
    assert read(supergpqa, {**SUPER, "options": ["a", "b  c", "d"], "answer": "b c "}).answer == "B"


def test_options_come_as_mapping_list_or_lettered_objects():
    listed = [{"letter": "B", "content": "x"}, {"letter": "A", "content": "w"}]
    forms: list[Any] = [{"A": "w", "B": "x"}, {"B": "x", "A": "w", "C": None, "D": None}, ["w", "x"], listed]
    assert [read(medxpertqa, {**EXPERT, "options": form}).choices for form in forms] == [["w", "x"]] * 4


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("What is it?\nAnswer Choices: (A) w (B) x", "What is it?"),
        ("What is it? Answer Choices: (A) two\nlines (B) x\n", "What is it?"),
        ("Answer Choices: are discussed here. What is it?", "Answer Choices: are discussed here. What is it?"),
        ("First Answer Choices: (A) old. Then?\nAnswer Choices: (A) w (B) x", "First Answer Choices: (A) old. Then?"),
    ],
)
def test_options_stand_in_a_medxpertqa_question_once(written: str, text: str):
    assert read(medxpertqa, {**EXPERT, "question": written}).text == text


WRONG = [
    (mmlu_pro, {**MMLU, "answer_index": 1}, "field answer_index: expected 2, as the answer is C, found 1"),
    (mmlu_pro, {**MMLU, "answer": "E"}, "field answer: expected a letter from A to D, found 'E'"),
    (mmlu_pro, {**MMLU, "options": list("abcdefghijk")}, "field options: expected 2 to 10 choices, found '11 choices'"),
    (mmlu_pro, {**MMLU, "options": "a,b,c"}, "field options: expected choices as a list"),
    (mmlu_pro, {**MMLU, "question": "  "}, "field question: expected a text, found '  '"),
    (supergpqa, {**SUPER, "answer": "a"}, "field answer: expected the text of choice B, 'b', found 'a'"),
    (supergpqa, {**SUPER, "answer_letter": None}, "field answer_letter: expected a letter from A to C, found None"),
    (
        medqa,
        {**MEDQA, "options": {**MEDQA["options"], "E": "v"}},
        "field options: expected 4 choices, found '5 choices'",
    ),
    (medqa, {**MEDQA, "answer": "w"}, "field answer: expected the text of choice C, 'y', found 'w'"),
    (medqa, {**MEDQA, "options": {"A": "w", "C": "y", "D": "z"}}, "field options: expected choices as a list, or by"),
    (medxpertqa, {**EXPERT, "label": "C"}, "field label: expected a letter from A to B, found 'C'"),
    (gpqa_diamond, {**GPQA, "Incorrect Answer 2": None}, "field Incorrect Answer 2: expected a text, found None"),
]


@pytest.mark.parametrize(("module", "row", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_a_wrong_row_names_the_field_and_what_was_expected(module: Any, row: dict[str, Any], message: str):
    with pytest.raises(DocumentError) as caught:
        read(module, row)
    assert message in caught.value.message
    assert caught.value.hint
