"""The answer in a response: boxes, phrases, reasoning, real responses of models."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA
from verifier_cases import question

from infuser_core.engines.fake import ByteTokenizer
from infuser_core.prompts.reasoning import answer_of, reply_text, with_reasoning
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import choice, integer, math
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.extract import PRESETS, announced_letter, announced_text

PIECES = ["\\boxed{", "\\boxed", " ", "{", "}", "\\", "\\{", "\\}", "A", "\\text{", "\n"]
written = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def plain_boxes(response: str) -> list[str]:
    """The rule without cleverness: for every box, its first balanced end; then those inside no other, and visible."""
    spans = []
    for opening in re.finditer(r"\\boxed\s*\{", response):
        before = response[: opening.start()]
        backslashes = len(before) - len(before.rstrip("\\"))
        depth, place = 1, opening.end()
        while place < len(response) and depth:
            if response[place] == "\\":
                # A run of backslashes escapes what follows it, unless `boxed{` does, or it pairs up.
                run = len(response[place:]) - len(response[place:].lstrip("\\"))
                box = re.compile(r"boxed\s*\{").match(response, place + run)
                depth += 1 if box else 0
                place = box.end() if box else place + run + run % 2
                continue
            depth += {"{": 1, "}": -1}.get(response[place], 0)
            place += 1
        if not depth:
            spans.append((opening.start() - backslashes, opening.end(), place - 1))
    outer = [span for span in spans if not any(o[1] <= span[0] and span[2] < o[2] for o in spans)]
    contents = [response[start:end] for _, start, end in outer]
    return [content.strip() for content in contents if is_visible(content)]


def is_visible(content: str) -> bool:
    """Whether there is more than braces and spaces, escaped or not."""
    place = 0
    while place < len(content):
        step = 2 if content[place] == "\\" else 1
        if not content[place : place + step][-1].isspace() and content[place] not in "{}":
            return True
        place += step
    return False


@given(written)
def test_one_pass_with_a_stack_equals_the_plain_rule(response: str):
    assert extract.boxes(response) == plain_boxes(response)


@pytest.mark.parametrize(
    "blank", [r"\phantom{00}", r"\phantom{\frac{1}{2}}", r"\ ", r"~\quad", r"\hspace{1cm}", "{}", r"\,\hphantom{9} "]
)
def test_a_box_that_prints_nothing_is_no_answer(blank: str):
    response = rf"For which number in \boxed{{{blank}}} is it true? For \boxed{{4}}. That was \boxed{{{blank}}}."
    assert extract.boxes(response) == ["4"]
    for visible in (rf"{blank}3", r"\{\}", r"\quadratic"):
        assert extract.boxes(rf"\boxed{{{visible}}}") == [visible.strip()]


@given(written, st.text(alphabet="a }{\\", max_size=8))
def test_text_before_the_first_box_changes_nothing(response: str, reasoning: str):
    assert extract.boxes(f"{reasoning} {response}") == extract.boxes(response)


@given(written, written)
def test_the_paper_reads_nothing_after_the_first_closed_box(before: str, after: str):
    closed = f"\\boxed{{A}} {before}"
    assert extract.first_box(closed) == extract.first_box(f"{closed} {after}") == "A"


@given(st.lists(st.sampled_from(["\\text{", "\\boxed {", "}", "{", "B", "\\", " "]), max_size=12).map("".join))
def test_unwrapping_equals_taking_off_one_wrapper_after_the_other(text: str):
    plain = text.strip()
    while True:
        opening = re.match(r"\\(?:text|boxed)\s*\{", plain)
        if opening is None or plain_closing(plain, opening.end()) != len(plain) - 1:
            break
        plain = plain[opening.end() : -1].strip()
    assert extract.unwrap(text) == plain


def plain_closing(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`, or -1."""
    depth = 1
    for token in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return start + token.start()
    return -1


@pytest.mark.parametrize("piece", [r"\boxed{", "{", "}", r"\boxed{\text{", "\\"])
def test_a_megabyte_of_open_boxes_holds_no_answer(piece: str):
    response = piece * (1_000_000 // len(piece)) + " "
    assert [extract.boxed(response, preset=preset) for preset in extract.PRESETS] == [None] * 4


@pytest.mark.parametrize(("opening", "closing"), [("\\boxed{", "}"), ("\\text{", "}"), ("\\mathbf{ ", " }")])
def test_a_megabyte_of_nested_wrappers_is_peeled_in_one_pass(opening: str, closing: str):
    depth = 1_000_000 // (len(opening) + len(closing))
    response = f"\\boxed{{{opening * depth}B{closing * depth}}}"
    found = extract.last_box(response)
    assert found is not None and extract.unwrap(found) == "B"


# Answers that are announced by a phrase and stand in no box: preset `phrase`


def problem(verifier: str, answer: str, *, choices: int = 0) -> Question:
    return Question(
        question_id="q", text="?", choices=["x"] * choices, answer=answer, verifier=verifier, domain="", subdomain="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("so the answer is (C).", "C"), ("**Final Answer:** B", "B"), ("**Answer**: C) the third", "C"),
        ("Answer: **D**", "D"), ("the correct answer is option (e)", "E"), ("The answer is:\n\nB", "B"),
        ("The answer is (A). No: the answer is (B).", "B"), (r"the answer is \text{(B)}", "B"),
        ("the answer is $C$", "C"), ("the answer is C because", "C"), (r"\boxed{D}. The answer is (A).", "D"),
        (r"it is \boxed{17}, so the answer is (F).", "F"),
        ("The answer is closest to 3", None), ("the answer is 100 degrees F", None), ("the answer is incorrect", None),
        ("The answer is A natural number", None), ("the answer is not (A)", None), ("the answer is (A, C)", None),
        ("the answers are (A)", None), ("answer is a", None),
    ],
)  # fmt: skip
def test_the_last_phrase_that_names_a_letter_counts(response: str, letter: str | None):
    found = choice.check(response, problem("choice", letter or "A", choices=10), preset="phrase")
    assert (found.verdict, found.extracted) == (Verdict.CORRECT if letter else Verdict.NO_ANSWER, letter)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("The answer is 42.", "42"), ("Final answer: $x^2$.", "x^2"), ("the answer is **3.5** apples", "3.5"),
        ("The answer is 1,250.", "1250"), ("The answer is 1. Or rather, the answer is 2.", "2"),
        (r"\boxed{7} and the answer is 8", "7"), (r"The answer is $\$5$.", "5"), (r"The answer is $$\$5$$", r"\$5"),
        (r"The answer is **$\$1,234.50$**.", "1234.5"), (r"The answer is $x = \$5$.", "5"),
        (r"It is \$5. Answer: \$6.", "6"), ("The answer is $5.", "5"), ("Answer: $5 dollars", r"\$5"),
        ("Answer: $ 5 $", "5"), (r"The answer is $\$5$.", r"5\text{ dollars}"),
        (r"The answer is $\{1,2\}$.", r"\{1,2\}"),
        ("So 18 eggs. #### 18", "18"), ("#### $1,250\n\nQuestion: 3", "1250"), ("The answer is 4.\n#### 5.", "5"),
        ("The answer is 4.\n#### 2. Check", "4"), ("The answer is 4.\n##### 7", "4"), ("#### Answer: 6", "6"),
    ],
)  # fmt: skip
def test_other_answers_are_the_formula_or_the_rest_of_the_sentence(response: str, answer: str):
    assert math.check(response, problem("math", answer), preset="phrase").verdict == Verdict.CORRECT
    assert (
        math.check("no " + re.split("nswer|####", response)[0], problem("math", "x"), preset="phrase").verdict
        != "correct"
    )


def test_other_presets_read_no_phrase():
    for preset in ("paper", "strict-last"):
        assert choice.check("the answer is (C).", problem("choice", "C"), preset=preset).verdict == Verdict.NO_ANSWER
    assert integer.check("the answer is 42.", problem("integer", "42"), preset="phrase").verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    "text",
    [
        "the answer is " * 50_000,
        "answer: **" * 50_000,
        r"answer is $\$" * 20_000,
        "answer is (" * 50_000,
        "*" * 500_000,
    ],
)
def test_no_text_takes_long(text: str):
    assert choice.check(text, problem("choice", "C"), preset="phrase").verdict == Verdict.NO_ANSWER
    assert len(announced_text(text) or "") <= 513


@pytest.mark.parametrize(
    ("written", "answer", "verdict"),
    [
        (r"\displaystyle 204", "204", Verdict.CORRECT), ("m+n = 42", "42", Verdict.CORRECT),
        (r"42 \text{ minutes}", "42", Verdict.CORRECT), ("41=42", "42", Verdict.WRONG),
        ("m+n=41+1=42", "42", Verdict.WRONG), (r"42\text{ million}", "42", Verdict.WRONG),
        ("42.7", "42", Verdict.WRONG),
    ],
)  # fmt: skip
def test_an_integer_may_stand_beside_a_name_or_a_unit(written: str, answer: str, verdict: Verdict):
    for preset in ("paper", "strict-last"):
        assert integer.check(rf"\boxed{{{written}}}", problem("integer", answer), preset=preset).verdict == verdict


@pytest.mark.parametrize("written", [r"\textbf{(B)}\ 12", r"\text{B. }12", r"\mathrm{(B)}~12"])
def test_a_letter_that_is_set_in_words_is_read_with_its_text(written: str):
    assert (
        choice.check(rf"\boxed{{{written}}}", problem("choice", "B", choices=5), preset="strict-last").extracted == "B"
    )


def test_a_box_without_braces_holds_the_number_or_letter_behind_it():
    assert math.check(r"so \boxed 7.", problem("math", "7")).verdict == Verdict.CORRECT
    assert math.check(r"so \boxed 204 it is", problem("math", "2")).verdict == Verdict.WRONG
    assert choice.check(r"so \boxed B", problem("choice", "B", choices=4)).verdict == Verdict.CORRECT
    assert choice.check(r"put it in a \boxed Answer", problem("choice", "A", choices=4)).verdict == Verdict.NO_ANSWER


# Ends of real model answers with their published verdicts, and our ruling wherever the two differ


ROWS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "real_answers.jsonl").read_text().splitlines()]


def question_of(row: dict[str, Any]) -> Question:
    return Question(
        question_id=row["question_id"], text="?", choices=["x"] * row["choices"], answer=row["gold"], verifier="choice",
        domain="", subdomain="",
    )  # fmt: skip


def test_every_answer_is_read_as_recorded_and_every_difference_has_a_ruling():
    assert len(ROWS) == 64 and len({row["model"] for row in ROWS}) == 4
    assert [row for row in ROWS if announced_letter(row["response"]) != row["phrase"]] == []
    assert [row for row in ROWS if (row["published"] != row["phrase"]) != ("ruling" in row)] == []


def test_a_letter_is_correct_exactly_where_it_is_the_gold():
    for row in ROWS:
        found = choice.check(row["response"], question_of(row), preset="phrase")
        assert (found.verdict == Verdict.CORRECT) == (row["phrase"] == row["gold"]), row


def test_presets_that_read_boxes_find_no_letter_in_them():
    for preset in ("paper", "strict-last"):
        verdicts = {choice.check(row["response"], question_of(row), preset=preset).verdict for row in ROWS}
        assert verdicts <= {Verdict.NO_ANSWER, Verdict.WRONG}


# Reasoning is no answer: marks of every family, closed, cut off, or opened by the prompt


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
def test_no_reasoning_takes_long(text: str):
    assert len(answer_of(text)) <= len(text)
