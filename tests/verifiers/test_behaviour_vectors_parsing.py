"""Observed behaviour of the authors' code, questions from files and from generators, and where ours differ.

The authors' result stands beside ours only where they differ; a KEEP row has one result.
"""

import json

import pytest

from infuser_core.benchmarks.parts.question_sets import question_of
from infuser_core.errors import DocumentError
from infuser_core.phases.parsing import Malformed, ParsedQuestion, parse, to_question
from infuser_core.prompts.load import render_question
from infuser_core.schemas import Document

GOOD = {"question_text": "Q", "choices": ["4", "5", "6", "7"], "ground_truth": "5"}
OPEN = {"question_text": "Q", "ground_truth": "3", "benchmark_type": "qa_open"}


def letter_of(choices: list[object], truth: object) -> str:
    """Letter of the reference answer in a row of a question file."""
    return question_of({**GOOD, "question_id": "q", "choices": choices, "ground_truth": truth}, "here").answer


def written(**fields: object) -> str:
    return json.dumps({**GOOD, **fields})


def outcome(text: str, route: str = "mcq") -> ParsedQuestion | str:
    """The question, or the reason why there is none."""
    result = parse(text, route="free_form" if route == "free_form" else "mcq")
    return result.reason if isinstance(result, Malformed) else result


def good(text: str, route: str = "mcq") -> ParsedQuestion:
    result = outcome(text, route)
    assert isinstance(result, ParsedQuestion), result
    return result


# --- multiple choice as shown ----------------------------------------------------------------------------------------


def test_choices_are_lettered_below_the_question():
    shown = render_question("Q", ["4", "5", "6", "7"])
    assert shown.splitlines()[1:] == ["A) 4", "B) 5", "C) 6", "D) 7"]
    assert shown.splitlines()[0].endswith("Q")


@pytest.mark.parametrize("truth", ["5", 1, "B"])
def test_human_made_references_may_be_text_index_or_letter(truth: object):
    assert letter_of([4, 5, 6, 7], truth) == "B"


DIFFERENT_LETTERS = [
    # choices, reference, the authors' letter, ours
    (["B", "A", "D", "C"], "A", "A", "B"),
    (["mg", "Mg", "kg", "g"], "Mg", "A", "B"),
]


@pytest.mark.parametrize(("choices", "truth", "theirs", "ours"), DIFFERENT_LETTERS)
def test_exact_text_comes_first(choices: list[object], truth: str, theirs: str, ours: str):
    assert letter_of(choices, truth) == ours != theirs
    generated = good(written(choices=choices, ground_truth=truth))
    assert to_question(generated, rollout_id="r", document=DOCUMENT).answer == ours


def test_generated_choices_that_repeat_are_refused():
    assert outcome(written(choices=["1", "2", "1", "3"], ground_truth="1")) == "duplicate_choices"


DOCUMENT = Document(
    document_id="d", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="",
    prompt_type="mcq",
)  # fmt: skip

# --- escapes, as a model writes them between the quotes --------------------------------------------------------------

LATEX = [
    r"\frac{1}{2}", r"\beta", r"\theta \to \tau \times \text", r"\nabla", r"\rightarrow", r"\sum_{k=1}^n k", r"\sqrt",
    r"\(", r"\frac{\beta}{\theta}",
]  # fmt: skip


def question_text(inside: str) -> str:
    return good(written(question_text="HERE").replace("HERE", inside)).text


@pytest.mark.parametrize("text", LATEX)
def test_latex_with_single_backslashes_is_unchanged(text: str):
    assert question_text(text) == text
    assert not any(ord(character) < 32 for character in question_text(text))


ESCAPES = [
    (r"\\frac", r"\frac"),
    (r"L1\n then", "L1\n then"),
    (r"L1\n2", "L1\n2"),
]


@pytest.mark.parametrize(("inside", "text"), ESCAPES)
def test_json_escapes_are_kept(inside: str, text: str):
    assert question_text(inside) == text


DIFFERENT_ESCAPES = [
    # between the quotes, the authors' text, ours
    (r"L1\nthen", r"L1\nthen", "L1\nthen"),
    (r"caf\u00e9", r"caf\u00e9", "caf\u00e9"),
]


@pytest.mark.parametrize(("inside", "theirs", "ours"), DIFFERENT_ESCAPES)
def test_line_breaks_and_characters_are_decoded(inside: str, theirs: str, ours: str):
    assert question_text(inside) == ours != theirs


# --- structure of a reply --------------------------------------------------------------------------------------------

REPLIES = [
    # reply, reason; None for a question
    ("", "empty_response"),
    (f"<think>{written()}</think>", "no_json_content"),
    ("text without a brace", "no_json_object"),
    ('{"a":', "truncated_json"),
    ("{a}", "invalid_json"),
    ('{"question_text": "Q", "choices": ["a", "b", "c", "d"]}', "missing_required_fields"),
    (f"```json\n{written()}\n```", None),
    (f"[{written()}]", None),
    (f"<think>{written()}", None),
]


@pytest.mark.parametrize(("reply", "reason"), REPLIES)
def test_replies_are_read_or_refused_with_a_reason(reply: str, reason: str | None):
    found = outcome(reply)
    assert found == reason if reason else isinstance(found, ParsedQuestion)


NO_QUESTION = [
    json.dumps({"outer": GOOD}),
    written()[:-1] + ",}",
    written().replace('"', "'"),
    written()[:-1],
]


@pytest.mark.parametrize("reply", NO_QUESTION)
def test_anything_but_strict_output_is_no_question(reply: str):
    assert isinstance(outcome(reply), str)


def test_the_object_after_a_closed_thought_counts():
    assert good(f"<think>{written(question_text='thought')}</think>{written(question_text='said')}").text == "said"


def test_the_last_of_two_objects_counts():
    assert good(written(question_text="first") + written(question_text="last")).text == "last"


def test_a_stray_quote_costs_nothing_however_long_the_preamble():
    # The authors' recovery ends beyond 16,384 characters or 8 braces.
    assert good('a " quote ' + "{" * 9 + "x" * 20_000 + written()).text == "Q"


# --- fields ----------------------------------------------------------------------------------------------------------

CHOICES = [
    # what the model wrote, choices; None for no question
    (["4", "5", "6"], None),
    (["4", "5", "6", "7"], ["4", "5", "6", "7"]),
    (["5", *"abcdefg"], ["5", *"abcdefg"]),
    (["5", *"abcdefgh"], None),
    ({"A": "4", "B": "5", "C": "6", "D": "7"}, ["4", "5", "6", "7"]),
    ([{"A": "4"}, {"B": "5"}, {"C": "6"}, {"D": "7"}], ["4", "5", "6", "7"]),
    (["4", "5", "6", None], None),
    ([4, 5, True, False], ["4", "5", "True", "False"]),
]


@pytest.mark.parametrize(("choices", "expected"), CHOICES)
def test_choices(choices: object, expected: list[str] | None):
    found = outcome(written(choices=choices))
    assert (found.choices if isinstance(found, ParsedQuestion) else None) == expected


REFUSED = [
    (written(ground_truth="B"), "invalid_ground_truth"),
    (written(ground_truth=""), "invalid_ground_truth"),
    (written(question_text=""), "empty_question"),
    (written(ground_truth=["5"]), "invalid_ground_truth"),
    (json.dumps({"question_text": "Q", "ground_truth": "5"}), "missing_required_fields"),
]


@pytest.mark.parametrize(("reply", "reason"), REFUSED)
def test_questions_without_a_usable_answer_are_refused(reply: str, reason: str):
    assert outcome(reply) == reason


DIFFERENT_FIELDS = [
    # accepted by the authors' code
    (written(choices=["4", "5", "4", "7"]), "duplicate_choices"),
    (written(choices=["4", "5", "", "7"]), "empty_choice"),
]


@pytest.mark.parametrize(("reply", "reason"), DIFFERENT_FIELDS)
def test_repeated_and_empty_choices_are_refused(reply: str, reason: str):
    assert outcome(reply) == reason


def test_prefixes_of_choices_are_taken_off():
    assert good(written(choices=["A) 4", "B) 5", "C) 6", "D) 7"])).choices == ["4", "5", "6", "7"]


def test_a_list_of_text_is_joined():
    assert good(written(question_text=["one", "two"])).text == "one two"


def test_an_answer_takes_the_spelling_of_its_choice():
    assert good(written(choices=["Alpha", "b", "c", "d"], ground_truth=" alpha ")).ground_truth == "Alpha"


@pytest.mark.parametrize("fields", [{}, {"choices": []}])
def test_the_free_form_route_needs_no_choices(fields: dict[str, object]):
    parsed = good(json.dumps({**OPEN, **fields}), "free_form")
    assert (parsed.ground_truth, parsed.choices) == ("3", [])


@pytest.mark.parametrize(("truth", "accepted"), [("3", True), ("n!^2", False), ("The answer is three.", False)])
def test_free_form_references_must_be_readable(truth: str, accepted: bool):
    found = outcome(json.dumps({**OPEN, "ground_truth": truth}), "free_form")
    assert isinstance(found, ParsedQuestion) if accepted else found == "invalid_ground_truth"


def test_each_reply_of_a_batch_stands_alone():
    replies = [(written(), "mcq"), (json.dumps(OPEN), "free_form"), ('{"question_text": "Q", "choices": []}', "mcq")]
    assert [isinstance(outcome(reply, route), ParsedQuestion) for reply, route in replies] == [True, True, False]


def test_type_and_source_that_a_model_wrote_are_ignored():
    plain = good(written())
    assert good(written(benchmark_type="mcq", data_source="mmlu_pro")) == plain
    assert to_question(plain, rollout_id="r", document=DOCUMENT).verifier == "choice"


def test_a_file_with_an_answer_outside_its_choices_is_refused():
    with pytest.raises(DocumentError, match="none of the choices"):
        letter_of(["1", "2", "3"], "4")
