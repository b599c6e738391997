"""The folder is the registry: whatever file lies in it is a verifier that keeps the promises of all, and its own."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, WRONG, question

from infuser_core.cotrain.phases.parsing import ParsedQuestion, parse, to_question
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.plugins import VERIFIERS
from infuser_core.schemas import Document, Question, Verdict
from infuser_core.verifiers import bbeh, choice, exact, integer
from infuser_core.verifiers.parts.batch import find_verifier
from infuser_core.verifiers.parts.extract import PRESETS
from infuser_core.verifiers.parts.grading import Reason

TEXTUAL = (choice, exact, integer, bbeh)
"""Verifiers that compare text in this process, so that any response can be tried on them."""


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", VERIFIERS.names())
def test_every_verifier_says_when_there_is_no_answer(name: str, preset: str):
    verifier = find_verifier(name)
    for silent in ("", "no box", "no closed \\boxed{"):
        finding = verifier.check(silent, question("1", verifier=name), preset=preset)
        assert (finding.verdict, finding.extracted) == (NO_ANSWER, None)
        assert finding.reason


@pytest.mark.parametrize("name", VERIFIERS.names())
def test_every_verifier_refuses_an_unknown_preset(name: str):
    for response in ("no box", r"\boxed{1}"):
        with pytest.raises(ConfigError, match=r"'lucky'.*paper, official, strict-last"):
            find_verifier(name).check(response, question("1", verifier=name), preset="lucky")


anything = st.text(alphabet=st.characters(exclude_categories=()), max_size=80)
mathematical = st.text(alphabet="\\boxed{}()[]$.,:'\"?*^% \n0123456789-+eABCIisnaf\u0130\u0131\ud800\x00", max_size=40)
PARTS = [
    "\\boxed{", "}", "{", "\\text{", "answer is ", "Answer: ", "Final Answer: ", "option ", "(A)", "B", ". ", "1e999",
    "nan", "-inf", "1,000", "\n", "^\\circ", "**", "\\",
]  # fmt: skip
responses = st.one_of(
    anything,
    mathematical,
    anything.map(r"\boxed{{{}}}".format),
    mathematical.map(r"\boxed{{{}}}".format),
    st.lists(st.sampled_from(PARTS), max_size=10).map("".join),
)
references = st.sampled_from(["A", "7", "unknown", "", "inf", "1,000"])
routes = st.sampled_from(["", "mmlu_pro", "medqa"])


@given(responses, references, routes)
def test_no_response_makes_a_verifier_raise(response: str, reference: str, route: str):
    asked = question(reference, route=route)
    for verifier in TEXTUAL:
        for preset in PRESETS:
            finding = verifier.check(response, asked, preset=preset)
            assert finding.verdict in Verdict
            assert (finding.extracted is None) == (finding.verdict == NO_ANSWER)
            assert verifier.check(response, asked, preset=preset) == finding


HOSTILE = [
    "{", "}", "\\", "\\boxed{", "\\boxed{A}", "\\text{", "$", "(", "[", "'", " ", "\n", "a) ", "answer ", "0", "0,",
    "^ ", "A", "A:", "final answer is ", "Answer: ", "\u0130", "\ud800", "\x00", "1,000",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_run_of_anything_is_read_in_one_pass(piece: str):
    run = piece * (25_000 // len(piece))
    for response in (run, f"\\boxed{{{run}}}", f"\\boxed{{A. {run}x}}", f"\\boxed{{option {run}x}}"):
        for route in ("", "mmlu_pro", "medqa"):
            asked = question("5", route=route)
            for verifier in TEXTUAL if not route else (choice,):
                assert all(verifier.check(response, asked, preset=preset).verdict in Verdict for preset in PRESETS)


@given(st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10), st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10))
def test_the_match_has_no_direction(left: str, right: str):
    assert bbeh.agreement(left, right) == bbeh.agreement(right, left)
    assert bbeh.agreement(left, left) == Reason.TEXT


@given(st.integers(-(10**30), 10**30))
def test_thousands_separators_do_not_change_a_number(number: int):
    assert exact.parse_number(f"{number:,}") == exact.parse_number(str(number)) == Fraction(number)


@given(st.text(max_size=12), st.text(max_size=12))
def test_equality_has_no_direction(left: str, right: str):
    assert exact.agreement(left, left)
    assert exact.agreement(left, right) == exact.agreement(right, left)


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 4), st.integers(0, 3))
def test_leading_and_trailing_zeros_alone_do_not_matter(found: int, reference: int, zeros: int, decimals: int):
    text = "0" * zeros + str(found) + ("." + "0" * decimals if decimals else "")
    verdict = integer.check(rf"\boxed{{{text}}}", question(str(reference))).verdict
    assert verdict == (CORRECT if found == reference else WRONG)


@given(st.text(alphabet="ABab.():,$ or", max_size=10))
def test_what_paper_reads_strict_last_reads_as_well(content: str):
    response = rf"\boxed{{{content}}}"
    found = choice.check(response, question("B"))
    if found.verdict != NO_ANSWER and found.reason != Reason.NO_LETTER:
        assert choice.check(response, question("B"), preset="strict-last") == found


@given(st.text(alphabet="abcdABCD.():,$ orn", max_size=12))
def test_no_box_is_right_for_two_letters(content: str):
    for preset in ("paper", "strict-last"):
        verdicts = [choice.check(rf"\boxed{{{content}}}", question(letter), preset=preset).verdict for letter in "ABCD"]
        assert verdicts.count(CORRECT) <= 1


def row(**fields: object) -> Question:
    return question_of({"question_id": "q", "question_text": "Q", **fields}, "here")


DISPATCHED = [
    # row of a question file, response, what was extracted, verdict: the same under every preset
    ({"choices": ["x", "y", "z"], "ground_truth": "B"}, r"\boxed{\text{B}}", "B", CORRECT),
    ({"choices": ["x", "y", "z"], "ground_truth": "A"}, r"\boxed{C}", "C", WRONG),
    ({"choices": ["4", "5", "6", "7"], "ground_truth": "5"}, r"\boxed{B}", "B", CORRECT),
    ({"choices": [4, 5, 6, 7], "ground_truth": 5}, r"\boxed{B}", "B", CORRECT),
    ({"ground_truth": "proved"}, "no box", None, NO_ANSWER),
    ({"ground_truth": "42", "data_source": "aime"}, r"\boxed{042}", "042", CORRECT),
    ({"ground_truth": "42", "data_source": "aime"}, "no box", None, NO_ANSWER),
]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("fields", "response", "extracted", "verdict"), DISPATCHED)
def test_a_row_finds_its_verifier(
    fields: dict[str, object], response: str, extracted: str | None, verdict: str, preset: str
):
    asked = row(**fields)
    finding = find_verifier(asked.verifier).check(response, asked, preset=preset)
    assert (finding.extracted, finding.verdict) == (extracted, verdict)


@pytest.mark.parametrize("source", ["mmlu_pro", "medqa", "aime", "no such benchmark"])
@pytest.mark.parametrize(("prompt_type", "verifier"), [("mcq", "choice"), ("free_form", "math")])
def test_a_data_source_that_a_model_wrote_chooses_nothing(source: str, prompt_type: str, verifier: str):
    written = {"question_text": "Q", "choices": list("wxyz"), "ground_truth": "x", "data_source": source}
    route = "mcq" if prompt_type == "mcq" else "free_form"
    parsed = parse(json.dumps({**written, "benchmark_type": source}), route=route)
    assert isinstance(parsed, ParsedQuestion)
    document = Document(
        document_id="d", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="",
        prompt_type=prompt_type,
    )  # fmt: skip
    asked = to_question(parsed, rollout_id="r", document=document)
    assert (asked.verifier, asked.grading) == (verifier, "")
    assert choice.check("the answer is B", asked, preset="official").verdict == NO_ANSWER
