"""Reasoning is no answer: marks of every family, closed, cut off, or opened by the prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import question

from infuser_core.engines.fake import ByteTokenizer
from infuser_core.prompts.reasoning import answer_of, reply_text, with_reasoning
from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.extract import PRESETS

FAMILIES = [
    ("<think>", "</think>"),
    ("<Thinking>", "</Thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis", "assistant<|channel|>final "),
    ("<|channel>thought\n", "<channel|>"),
]
OWN = [preset for preset in PRESETS if preset != "official"]


def verdict(response: str, preset: str, answer: str = "B") -> Verdict:
    return check_all([Job(response=response, question=question(answer, verifier="choice"))], preset=preset)[0].verdict


@pytest.mark.parametrize(("opens", "closes"), FAMILIES)
@pytest.mark.parametrize("preset", OWN)
def test_the_answer_after_the_reasoning_counts_alone(opens: str, closes: str, preset: str):
    draft = r"\boxed{A}? The answer is (A)."
    assert verdict(rf"{opens}{draft}{closes}\boxed{{B}}", preset) == Verdict.CORRECT
    # The prompt opened it.
    assert verdict(rf"{draft}{closes}\boxed{{B}}", preset) == Verdict.CORRECT
    assert verdict(f"{opens}{draft}{closes}I do not know", preset, answer="A") == Verdict.NO_ANSWER
    assert verdict(f"{opens}{draft} But wait", preset, answer="A") == Verdict.NO_ANSWER
    assert verdict(rf"\boxed{{B}} {opens}{draft}", preset) == Verdict.CORRECT


@pytest.mark.parametrize(("opens", "closes"), FAMILIES)
def test_reasoning_that_the_prompt_opens_is_none_of_the_answer(opens: str, closes: str):
    tokenizer, draft = ByteTokenizer(), r"\boxed{B}, or"

    def text(prompt: str) -> str:
        return reply_text(tokenizer, tokenizer.encode(prompt), tokenizer.encode(draft))

    assert verdict(text(f"Which?\nassistant: {opens}\n"), "paper") == Verdict.NO_ANSWER
    assert verdict(text(f"Which?\nassistant: {opens}\n") + rf"{closes}\boxed{{B}}", "paper") == Verdict.CORRECT
    # Closed again, or spelled by the question.
    assert text(f"Which?\nassistant: {opens}\n{closes}\n") == text(f"What is {opens}?\nassistant: ") == draft


def test_official_reads_reasoning_as_the_authors_do():
    assert verdict(r"<think>\boxed{B} But wait", "official") == Verdict.CORRECT


@given(st.lists(st.sampled_from(["x", "y ", *(mark for pair in FAMILIES for mark in pair)]), max_size=12))
def test_no_mark_is_left_and_parting_twice_changes_nothing(pieces: list[str]):
    found = answer_of("".join(pieces))
    assert answer_of(found) == found
    assert "think" not in found.lower() and "analysis" not in found


@given(st.text(alphabet="ab <>[]|/\\{}\n"), st.text(alphabet="ab <>[]|/\\{}\n"))
def test_text_without_marks_is_untouched_and_a_servers_parts_come_back(reasoning: str, answer: str):
    assert answer_of(answer) == answer
    assert answer_of(with_reasoning(reasoning, answer)).removeprefix("\n\n") == answer


@pytest.mark.parametrize("text", ["<think>" * 100_000, "<a_" * 200_000, "<" + "a_" * 200_000, "<|channel|>" * 50_000])
def test_no_text_takes_long(text: str):
    assert len(answer_of(text)) <= len(text)
