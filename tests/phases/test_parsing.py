"""Generator text becomes a question, or says why not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.cotrain.phases.parsing import Malformed, ParsedQuestion, find_objects, parse, to_question
from infuser_core.errors import DataWarning
from infuser_core.schemas import Document, Question

GOOD = {"question_text": "Q?", "choices": ["4", "5", "6", "7"], "ground_truth": "5"}


def written(**fields: object) -> str:
    return json.dumps({**GOOD, **fields})


def good(text: str, **options: object) -> ParsedQuestion:
    result = parse(text, **options)
    assert isinstance(result, ParsedQuestion), result
    return result


def reason(text: str, **options: object) -> str:
    result = parse(text, **options)
    assert isinstance(result, Malformed), result
    return result.reason


def document(prompt_type: str = "mcq") -> Document:
    return Document(
        document_id="d", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="Physics",
        prompt_type=prompt_type,
    )  # fmt: skip


def raw(question_text: str) -> str:
    """A reply whose question text is given as the characters between the quotes."""
    return f'{{"question_text": "{question_text}", "choices": ["a", "b", "c", "d"], "ground_truth": "a"}}'


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{1}{2}", r"\beta", r"\theta \to \tau \times \text", r"\nabla", r"\rightarrow", r"\sum_{k=1}^n k", 
        r"\sqrt", r"\(", r"\frac{\beta}{\theta}", r"\nu_0 \neq \rho",
    ],
)  # fmt: skip
def test_latex_with_single_backslashes_survives(text: str) -> None:
    assert good(raw(text)).text == text


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (r"\\frac", r"\frac"),
        (r"L1\nthen", "L1\nthen"),
        (r"L1\n then", "L1\n then"),
        (r"L1\n2", "L1\n2"),
        (r"a\tb", "a\tb"),
        (r"caf\u00e9", "caf\u00e9"),
        ("L1\nL2", "L1\nL2"),
        (r"say \"x\" \/", 'say "x" /'),
        (r"half \ud83d pair", "half \ufffd pair"),
    ],
)
def test_escapes(inside: str, text: str) -> None:
    assert good(raw(inside)).text == text


def test_half_a_surrogate_pair_is_announced() -> None:
    with pytest.warns(DataWarning, match="half a surrogate pair in 2 texts"):
        good(written(reasoning="\ud83d", question_text="\udc00?"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty_response"),
        (" \n", "empty_response"),
        ("<think>{}</think>\n", "no_json_content"),
        (f"<think>{written()}", "no_json_content"),
        (f"<|channel|>analysis<|message|>{written()}", "no_json_content"),
        ("no brace", "no_json_object"),
        ('{"a":', "truncated_json"),
        ('{"question_text": "Q', "truncated_json"),
        (written()[:-1], "truncated_json"),
        ("{a}", "invalid_json"),
        (written()[:-1] + ",}", "invalid_json"),
        (written().replace('"', "'"), "invalid_json"),
        ('{"question_text": "Q"}', "missing_required_fields"),
        (json.dumps({"outer": GOOD}), "missing_required_fields"),
        (written(ground_truth=None), "missing_required_fields"),
        (written(question_text=" ", choices="", ground_truth=""), "empty_question"),
        (written(ground_truth=""), "invalid_ground_truth"),
        (written(ground_truth="B"), "invalid_ground_truth"),
        (written(ground_truth=["5"]), "invalid_ground_truth"),
        (written(choices=["4", "5", "6"]), "wrong_number_of_choices"),
        (written(choices=[str(n) for n in range(9)]), "wrong_number_of_choices"),
        (written(choices=[]), "wrong_number_of_choices"),
        (written(choices=["4", "5", "6", None]), "empty_choice"),
        (written(choices=["4", "5", "6", " "]), "empty_choice"),
        (written(choices=["1", "2", "1", "5"]), "duplicate_choices"),
        (written(choices=["A) x", "B) y", "C) x", "D) z"], ground_truth="x"), "duplicate_choices"),
        (
            json.dumps({"question_text": "Q", "ground_truth": "5", "benchmark_type": "qa_open"}),
            "missing_required_fields",
        ),
    ],
)
def test_every_reason(text: str, expected: str) -> None:
    assert reason(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{written(question_text='no')}</think>{written()}",
        f"[THINK]{written(question_text='no')}[/THINK]{written()}",
        f"{written(question_text='first')}\nbetter:\n{written()}",
        f"{written()} and then {{broken}}",
        f"```json\n{written()}\n```",
        f"[{written()}]",
        f'an odd " quote {{ and {{"x and \\frac{{1}}{{2}} {written()}',
        '{"' * 9 + "x" * 20_000 + written(),
        f'{{"draft": {written()}',
        written(benchmark_type="mcq", data_source="mmlu_pro"),
        written(choices={"A": "4", "B": "5", "C": "6", "D": "7"}),
        written(choices=[{"A": 4}, {"B": 5}, {"C": 6}, {"D": 7}], ground_truth=5),
        written(choices=["A) 4", "B) 5", "C) 6", "D) 7"]),
        written(choices=["(a) 4", "(b) 5", "(c) 6", "(d) 7"], ground_truth="(b) 5"),
        written(question_text=["Q?"]),
        written(ground_truth=" 5 "),
    ],
)
def test_the_last_valid_object_is_read(text: str) -> None:
    question = good(text)
    assert (question.text, question.choices, question.ground_truth) == ("Q?", ["4", "5", "6", "7"], "5")


def test_numbers_keep_their_digits_and_booleans_their_names() -> None:
    text = '{"question_text": "Q", "choices": [1.50, 2e3, true, false], "ground_truth": 1.50}'
    assert good(text).choices == ["1.50", "2e3", "True", "False"]


def test_case_decides_only_where_nothing_is_exact() -> None:
    assert good(written(choices=["Alpha", "b", "c", "d"], ground_truth=" alpha ")).ground_truth == "Alpha"
    assert good(written(choices=["mg", "Mg", "kg", "g"], ground_truth="Mg")).ground_truth == "Mg"
    assert reason(written(choices=["mg", "Mg", "kg", "g"], ground_truth="MG")) == "invalid_ground_truth"


def test_limits_of_the_number_of_choices_can_be_set() -> None:
    assert len(good(written(choices=["5", "6"]), min_choices=2, max_choices=2).choices) == 2


def test_reasoning_is_taken_from_the_first_field_that_has_any() -> None:
    assert good(written(self_test_solution="s", knowledge_and_reasoning_steps="k")).reasoning == "k"
    assert good(written(self_test_solution="s", reasoning="")).reasoning == "s"
    assert good(written()).reasoning == ""


@pytest.mark.parametrize("extra", [{}, {"choices": []}, {"benchmark_type": "qa_open", "answer_type": "integer"}])
def test_the_free_form_route_needs_no_choices(extra: dict[str, object]) -> None:
    text = json.dumps({"question_text": "Q", "ground_truth": "3", **extra})
    assert good(text, route="free_form") == ParsedQuestion(text="Q", choices=[], ground_truth="3", reasoning="")


@pytest.mark.parametrize("truth", ["The answer is three.", "n!^2", "<exact answer>", "your final answer", r"\boxed{3}"])
def test_a_free_form_answer_must_be_readable(truth: str) -> None:
    text = json.dumps({"question_text": "Q", "ground_truth": truth})
    assert reason(text, route="free_form") == "invalid_ground_truth"


def test_percent_signs_of_free_form_answers_become_hundredths() -> None:
    text = json.dumps({"question_text": "Q", "ground_truth": r"127.32\%"})
    assert good(text, route="free_form").ground_truth == r"\frac{127.32}{100}"


def test_the_answer_is_the_letter_of_the_text_not_a_letter_that_is_text() -> None:
    parsed = good(written(choices=["B", "A", "D", "C"], ground_truth="A"))
    question = to_question(parsed, rollout_id="d/0", document=document())
    assert (question.answer, question.verifier, question.domain, question.document_id) == (
        "B",
        "choice",
        "Physics",
        "d",
    )


def test_shuffling_depends_on_the_rollout_alone_and_keeps_the_answer() -> None:
    parsed = good(written())

    def ask(rollout: str) -> Question:
        return to_question(parsed, rollout_id=rollout, document=document(), choice_order="shuffled")

    orders = {tuple(ask(f"d/{n}").choices) for n in range(30)}
    assert len(orders) > 5
    assert ask("d/1") == ask("d/1")
    assert all((q := ask(f"d/{n}")).choices["ABCD".index(q.answer)] == "5" for n in range(30))


def test_question_ids_tell_questions_of_one_rollout_id_apart() -> None:
    first, second = (to_question(good(written(question_text=t)), rollout_id="d/0", document=document()) for t in "xy")
    assert first.question_id.startswith("d/0-") and first.question_id != second.question_id


def test_free_form_questions_keep_the_value() -> None:
    parsed = good(json.dumps({"question_text": "Q", "ground_truth": "n+1"}), route="free_form")
    question = to_question(parsed, rollout_id="d/0", document=document("free_form"), choice_order="shuffled")
    assert (question.answer, question.verifier, question.choices) == ("n+1", "math", [])


HOSTILE = ["{", "{}", "}", '{"', '{"a":', '{"a":"{', '{"a":"{","', '{"a":[{},', '"', "\\", '{"a":{"b":"', "{ ", '{"\\"']


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_braces_cost_linear_work(piece: str) -> None:
    text = piece * ((1_000_000 if piece == "{" else 200_000) // len(piece))
    # Quadratic work on this many characters would take hours.
    assert isinstance(parse(text), Malformed)


def test_deep_nesting_is_malformed_not_a_crash() -> None:
    assert reason('{"question_text":' * 100_000 + "1" + "}" * 100_000) == "invalid_json"


@given(st.text(alphabet='{}[]":,\\ an1</think>', max_size=60))
def test_any_text_gives_an_answer(text: str) -> None:
    spans, _ = find_objects(text)
    assert all(text[start] == "{" and text[end - 1] == "}" for start, end in spans)
    assert isinstance(parse(text), Malformed)
