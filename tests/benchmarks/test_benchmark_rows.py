"""Rows of the benchmarks: their answers and choices."""

import random
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import DataWarning, DocumentError
from infuser_core.evaluation.benchmarks import (
    aime2024,
    aime2025,
    bbeh,
    gpqa_diamond,
    hmmt,
    math500,
    medqa,
    medxpertqa,
    mmlu_pro,
    olympiadbench_math,
    supergpqa,
)
from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import RowPlace
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading, grading_of

OLYMPIAD = {"id": 5, "subfield": "Algebra", "context": None, "question": "Find it.", "solution": ["..."]}


OLYMPIAD |= {
    "final_answer": ["$2$"],
    "is_multiple_answer": False,
    "unit": None,
    "answer_type": "Numerical",
    "error": None,
}


def read(module: Any, row: dict[str, Any], source: str = "test", number: int = 1) -> Any:
    return module.BENCHMARK.read_row(row, RowPlace(benchmark=module.BENCHMARK, source=source, number=number))


def aime(row: dict[str, Any], benchmark: Any = aime2025) -> Question:
    found: Question = read(benchmark, row)
    return found


def olympiad(**changed: Any) -> Question:
    found: Question = read(olympiadbench_math, {**OLYMPIAD, **changed})
    return found


@pytest.mark.parametrize(
    ("written", "answer"),
    [("042", "42"), (42, "42"), ("42.0", "42"), (" 7 ", "7"), ("336^\\circ", "336"), ("$000$", "0"), ("999", "999")],
)
def test_integers_are_read_as_they_are_written(written: Any, answer: str):
    assert aime({"question": "Find it.", "answer": written}).answer == answer


@pytest.mark.parametrize("written", ["1000", "4.5", "-3", "x", None, ""])
def test_what_is_no_answer_of_the_competition_is_refused(written: Any):
    with pytest.raises(DocumentError, match="field answer"):
        aime({"question": "Find it.", "answer": written})


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"id": 61, "problem": "P", "answer": "7", "year": "2024"}, "61"),
        ({"ID": "2024-II-4", "Problem": "P", "Answer": 33}, "2024-II-4"),
    ],
)
def test_both_known_data_sets_of_one_year_are_read(row: dict[str, Any], name: str):
    assert aime(row, aime2024).question_id == name


def test_a_row_without_an_identifier_gets_one_from_its_text_and_not_from_its_place():
    row = {"question": "Find it.", "answer": "7"}
    assert read(aime2025, row, number=3) == read(aime2025, row)
    assert aime({**row, "question": "Find that."}).question_id != aime(row).question_id


@pytest.mark.parametrize("told", [{"year": 2023}, {"url": "https://x.org/wiki/2022_AIME_I_Problems/Problem_3"}])
def test_a_row_of_another_year_is_not_part_of_the_benchmark(told: dict[str, Any]):
    assert read(aime2024, {"id": 3, "problem": "P", "answer": "7", **told}) is None


def test_contests_number_their_problems_anew():
    row = {"problem_idx": 1, "problem": "Find it.", "answer": 6, "problem_type": ["Algebra", "Geometry"]}
    question = read(hmmt, row, "hmmt_nov_2025")
    assert (question.question_id, question.answer, question.domain) == ("hmmt_nov_2025-1", "6", "Algebra")


@pytest.mark.parametrize(
    ("answer", "several"),
    [
        ("1, 2", True),
        ("(1, 2)", False),
        ("2,500", False),
        ("\\frac{1}{2}, 3", True),
        ("\\{1,2\\}", False),
        ("$7$", False),
    ],
)
def test_answers_with_several_values_are_lists(answer: str, several: bool):
    row = {"problem_idx": 1, "problem": "Find all.", "answer": answer, "problem_type": []}
    assert grading_of(read(hmmt, row)).multiple is several


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("$221,$8$", "221, 8"),
        ("$339,508$", "339, 508"),
        ("$1$, $(2,3)$", "1, (2,3)"),
        ("$-\\frac{1}{2}$,$4$,", "-\\frac{1}{2}, 4"),
        ("\\$3, \\$4", "\\$3, \\$4"),
    ],
)
def test_several_answers_become_one_clean_list(written: str, answer: str):
    question = olympiad(final_answer=[written], is_multiple_answer=True)
    assert question.answer == answer
    assert grading_of(question).multiple


@given(st.lists(st.integers(-99, 10**6).map(str), min_size=2, max_size=5), st.sampled_from(["{},", "${}$,", "${},$ "]))
def test_the_parts_of_a_list_survive_its_marks(parts: list[str], form: str):
    written = "".join(form.format(part) for part in parts).rstrip().rstrip(",")
    question = olympiad(final_answer=[written], is_multiple_answer=True)
    assert fields.split_commas(question.answer, grouped=False) == parts


def test_facts_about_an_answer_reach_its_grading():
    question = olympiad(
        unit="$\\mathrm{~m}$",
        error="1e-1, .5",
        answer_type="Numerical,Tuple",
        context="On the moon:",
        final_answer=["3"],
    )
    assert question.text == "On the moon:\n\nFind it."
    assert grading_of(question) == Grading(
        route="olympiadbench_math", unit="\\mathrm{~m}", tolerance="1e-1,.5", answer_type="numerical,tuple"
    )


def test_a_tolerance_that_is_no_number_is_announced_and_not_used():
    with pytest.warns(DataWarning, match="question 5: tolerance 'roughly' is no number"):
        assert grading_of(olympiad(error="roughly")).tolerance == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert grading_of(olympiad(error=".1")).tolerance == ".1"


@pytest.mark.parametrize("answer", [None, [], [""], ["$$"]])
def test_a_problem_without_an_answer_is_refused(answer: Any):
    with pytest.raises(DocumentError, match="field final_answer: expected a list with the answer"):
        olympiad(final_answer=answer)


@pytest.mark.parametrize("answer", ["2516_8", "10,\\!080", "\\$18.90", "75\\%", "\\text{Tuesday}"])
def test_latex_stays_as_it_is_written(answer: str):
    row = {"problem": "Find it.", "answer": answer, "subject": "Algebra", "level": 2, "unique_id": "test/a/1.json"}
    question = read(math500, row)
    assert (question.answer, question.domain, question.subdomain) == (answer, "Algebra", "level 2")


@pytest.mark.parametrize(("target", "part"), [("(B)", "lettered"), ("B", "open"), ("2, 3", "open"), ("5", "open")])
def test_bbeh_is_answered_freely_and_split_by_the_form_of_its_target(target: str, part: str):
    question = read(bbeh, {"input": "Which? (A) x (B) y", "target": target}, "bbeh_sportqa")
    assert (question.choices, question.answer, question.verifier) == ([], target, "bbeh")
    assert (question.domain, question.subdomain) == ("sportqa", part)


def test_both_layouts_of_bbeh_name_a_task_alike():
    row = {"input": "Which?", "target": "5"}
    mirror = read(bbeh, {**row, "task": "boardgame qa", "mini": 0}, "train-00000-of-00001")
    assert read(bbeh, row, "bbeh_boardgame_qa") == mirror


# Multiple-choice rows: letters stay with their option, whatever the data set does with its list


MMLU = {"question_id": 7, "question": "Which?", "options": ["a", "b", "c", "d"], "answer": "C", "answer_index": 2}


MMLU |= {"category": "law"}


SUPER = {"uuid": "u1", "question": "Which?", "options": ["a", "b", "c"], "answer": "b", "answer_letter": "B"}


SUPER |= {"discipline": "Science", "field": "Physics"}


MEDQA = {"question": "Which?", "options": {"A": "w", "B": "x", "C": "y", "D": "z"}, "answer": "y", "answer_idx": "C"}
EXPERT = {"id": "Text-1", "question": "Which?", "options": {"A": "w", "B": "x", "C": None}, "label": "B"}


EXPERT |= {"medical_task": "Diagnosis", "body_system": "Nervous"}


GPQA = {"Record ID": "r1", "Question": "Which?", "Correct Answer": "right"}


GPQA |= {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}


def read_choices(module: Any, row: dict[str, Any], *, number: int = 1) -> Question:
    found: Question = module.read_row(row, RowPlace(benchmark=module.BENCHMARK, source="file", number=number))
    return found


@given(st.lists(st.sampled_from(["N/A", "x", "y", "z", "w"]), min_size=2, max_size=10), st.data())
def test_padding_goes_and_the_letter_stays_with_its_option(options: list[str], data: st.DataObject):
    index = data.draw(st.integers(0, len(options) - 1))
    real = [option for number, option in enumerate(options) if option != "N/A" or number == index]
    row = {**MMLU, "options": options, "answer": "ABCDEFGHIJ"[index], "answer_index": index}
    if len(real) < 2:
        with pytest.raises(DocumentError, match="at least 2 real choices"):
            read_choices(mmlu_pro, row)
        return
    question = read_choices(mmlu_pro, row)
    assert question.choices == real
    assert question.choices["ABCDEFGHIJ".index(question.answer)] == options[index]


def test_a_letter_that_is_not_the_index_is_refused_and_two_options_are_a_question():
    with pytest.raises(DocumentError, match="field answer_index: expected 2, as the answer is C, found 1"):
        read_choices(mmlu_pro, {**MMLU, "answer_index": 1})
    assert read_choices(mmlu_pro, {**MMLU, "options": ["x", "y"], "answer": "B", "answer_index": 1}).choices == [
        "x",
        "y",
    ]


@pytest.mark.parametrize(("name", "places"), [("q0", [1, 2, 3, 0]), ("q1", [0, 3, 1, 2]), ("q2", [3, 2, 1, 0])])
def test_the_order_of_gpqa_is_the_authors(name: str, places: list[int]):
    assert gpqa_diamond.answer_order(name) == places


@given(st.lists(st.sampled_from(["same", "other", "third"]), min_size=4, max_size=4), st.text("ab1", min_size=1))
def test_gpqa_follows_the_right_answer_by_place_where_texts_repeat(texts: list[str], name: str):
    answers = dict(zip(gpqa_diamond._ANSWERS, texts, strict=True))
    before = random.getstate()
    question = read_choices(gpqa_diamond, {**GPQA, **answers, "Record ID": name})
    places = gpqa_diamond.answer_order(name)
    assert places["ABCD".index(question.answer)] == 0
    assert question.choices == [texts[place] for place in places]
    assert random.getstate() == before, "nobody else's random numbers move"


def test_gpqa_texts_lose_their_margins_and_marks():
    row = {**GPQA, "Question": "  What\nis it? ", "Correct Answer": " Step one [title] step two "}
    question = read_choices(gpqa_diamond, row)
    assert question.text == "What\nis it?"
    assert question.choices["ABCD".index(question.answer)] == "Step one.  step two"


def test_gpqa_rows_without_a_record_are_told_apart_by_their_text():
    nameless = {key: value for key, value in GPQA.items() if key != "Record ID"}
    one, other = (read_choices(gpqa_diamond, {**nameless, "Question": text}) for text in ("This?", "That?"))
    assert one.question_id != other.question_id
    assert read_choices(gpqa_diamond, {**nameless, "Question": "This?"}, number=9) == one


def test_blanks_do_not_make_a_supergpqa_answer_another_one():
    assert read_choices(supergpqa, {**SUPER, "options": ["a", "b  c", "d"], "answer": "b c "}).answer == "B"


def test_options_come_as_mapping_list_or_lettered_objects():
    listed = [{"letter": "B", "content": "x"}, {"letter": "A", "content": "w"}]
    forms: list[Any] = [{"A": "w", "B": "x"}, {"B": "x", "A": "w", "C": None, "D": None}, ["w", "x"], listed]
    assert [read_choices(medxpertqa, {**EXPERT, "options": form}).choices for form in forms] == [["w", "x"]] * 4


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
    assert read_choices(medxpertqa, {**EXPERT, "question": written}).text == text


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
        read_choices(module, row)
    assert message in caught.value.message
    assert caught.value.hint
