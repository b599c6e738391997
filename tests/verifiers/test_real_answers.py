"""Ends of real model answers with their published verdicts, and our ruling wherever the two differ.

The extracts are from the published outputs of four models in TIGER-AI-Lab/MMLU-Pro, used under the Apache License 2.0;
each row names its source.
"""

import json
from typing import Any

from places import DATA

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import choice
from infuser_core.verifiers.parts.extract import announced_letter

ROWS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "real_answers.jsonl").read_text().splitlines()]


def question(row: dict[str, Any]) -> Question:
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
        found = choice.check(row["response"], question(row), preset="phrase")
        assert (found.verdict == Verdict.CORRECT) == (row["phrase"] == row["gold"]), row


def test_presets_that_read_boxes_find_no_letter_in_them():
    for preset in ("paper", "strict-last"):
        verdicts = {choice.check(row["response"], question(row), preset=preset).verdict for row in ROWS}
        assert verdicts <= {Verdict.NO_ANSWER, Verdict.WRONG}
