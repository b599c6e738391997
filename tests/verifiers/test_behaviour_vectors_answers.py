"""Observed behaviour of the authors' code, comparing answers: what preset `official` repeats, and where ours differ.

One row per observation. Two different verdicts in a row mean that ours differ on purpose.
"""

import json

import pytest
from verifier_cases import CORRECT, NO_ANSWER, UNVERIFIED, WRONG, question

from infuser_core import plugins
from infuser_core.benchmarks.parts.question_sets import question_of
from infuser_core.phases.parsing import ParsedQuestion, parse, to_question
from infuser_core.schemas import Document, Question
from infuser_core.verifiers import bbeh, choice, exact, integer
from infuser_core.verifiers.parts import extract

OURS = ("paper", "strict-last")

LETTERS = [("A", "A", CORRECT), ("a", "A", CORRECT), ("B", "A", WRONG)]


@pytest.mark.parametrize("preset", ["official", *OURS])
@pytest.mark.parametrize(("found", "reference", "verdict"), LETTERS)
def test_letters(found: str, reference: str, verdict: str, preset: str):
    assert choice.check(rf"\boxed{{{found}}}", question(reference), preset=preset).verdict == verdict


GENERAL = [
    # found, reference, official, ours
    ("Proved", "proved", CORRECT, CORRECT),
    (" x ", "x", CORRECT, CORRECT),
    ("42.0", "42", CORRECT, CORRECT),
    ("proved", "disproved", WRONG, WRONG),
    ("10.50", "10.5", CORRECT, CORRECT),
    ("100", "1e2", CORRECT, CORRECT),
    ("1,000", "1000", WRONG, CORRECT),
    # The authors' code raises here; a verifier never does, so `official` says that it could not decide.
    ("inf", "5", UNVERIFIED, WRONG),
    ("nan", "5", WRONG, WRONG),
    ("nan", "nan", CORRECT, CORRECT),
]


@pytest.mark.parametrize(("found", "reference", "theirs", "ours"), GENERAL)
def test_general_text(found: str, reference: str, theirs: str, ours: str):
    response = rf"\boxed{{{found}}}"
    assert exact.check(response, question(reference), preset="official").verdict == theirs
    assert [exact.check(response, question(reference), preset=preset).verdict for preset in OURS] == [ours] * 2


INTEGERS = [
    # found, official, ours; the reference is 42
    ("42", CORRECT, CORRECT),
    ("042", CORRECT, CORRECT),
    ("42.0", CORRECT, CORRECT),
    ("  42  ", CORRECT, CORRECT),
    ("41", WRONG, WRONG),
    ("abc", WRONG, WRONG),
    ("", NO_ANSWER, NO_ANSWER),
    ("42.7", CORRECT, WRONG),
    ("42.9", CORRECT, WRONG),
    (r"\frac{84}{2}", WRONG, WRONG),
]


@pytest.mark.parametrize(("found", "theirs", "ours"), INTEGERS)
def test_competition_integers(found: str, theirs: str, ours: str):
    response = rf"\boxed{{{found}}}"
    assert integer.check(response, question("42"), preset="official").verdict == theirs
    assert [integer.check(response, question("42"), preset=preset).verdict for preset in OURS] == [ours] * 2


BBEH = [
    ("disproved", "disproved"),
    ("2, 3, 4", "2,3,4"),
    ("25", "25.0"),
    ("(A)", "a"),
    ("a", "(A)"),
    ("'alpha'", "alpha"),
    ("[unknown]", "unknown"),
    ("unknown?", "unknown"),
]


@pytest.mark.parametrize("preset", ["official", *OURS])
@pytest.mark.parametrize(("found", "reference"), BBEH)
def test_big_bench_extra_hard(found: str, reference: str, preset: str):
    assert bbeh.check(rf"\boxed{{{found}}}", question(reference), preset=preset).verdict == CORRECT
    assert bbeh.check(found, question("other"), preset=preset).verdict == NO_ANSWER


BBEH_EXTRACTED = [
    (r"Final Answer: 3, but \boxed{2}", "2"),
    ("x\nFinal Answer: 2, 3", "2, 3"),
    ("**Final Answer:** disproved", "disproved"),
    ("The answer is: yes", "yes"),
    ("Answer: foo\n\nbar", "foo"),
    ("nothing", None),
]


@pytest.mark.parametrize(("response", "found"), BBEH_EXTRACTED)
def test_big_bench_extra_hard_reads_phrases_under_official(response: str, found: str | None):
    assert extract.bbeh(response) == found
    finding = bbeh.check(response, question(found or "x"), preset="official")
    assert finding.verdict == (CORRECT if found else NO_ANSWER)


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


@pytest.mark.parametrize("preset", ["official", *OURS])
@pytest.mark.parametrize(("fields", "response", "extracted", "verdict"), DISPATCHED)
def test_a_row_finds_its_verifier(
    fields: dict[str, object], response: str, extracted: str | None, verdict: str, preset: str
):
    asked = row(**fields)
    finding = plugins.verifier(asked.verifier).check(response, asked, preset=preset)
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
