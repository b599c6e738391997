"""Question sets: from the micro-world, or from files in the layout of the published dev and benchmark sets."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infuser_core.config import FileQuestions, NanoQuestions
from infuser_core.errors import DocumentError
from infuser_core.nano import world
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question


def load_questions(source: NanoQuestions | FileQuestions, *, seed: int) -> list[Question]:
    """The questions of a source. `seed` shapes micro-world sets alone.

    Raises DocumentError naming the file and the row when a field is missing or the answer is no choice.
    """
    if isinstance(source, NanoQuestions):
        chosen = world.WORLDS[source.world]
        topics = world.TARGET if source.topics == "target" else chosen.transfer
        return world.questions(source.split, topics, source.size, seed, chosen)
    rows = read_rows(Path(source.path))
    if source.size is not None and source.size != len(rows):
        raise DocumentError(f"{source.path} has {len(rows)} questions, expected {source.size}", hint="correct `size`")
    questions = [question_of(row, f"{source.path}, row {number}") for number, row in enumerate(rows, 1)]
    _refuse_duplicates(questions, source.path)
    return questions


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Objects of a JSON list or of a JSONL file."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}", hint="correct the path in `data`") from error
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path} is not JSON: {error}", hint="a list of objects, or one object per line") from error
    if not all(isinstance(row, dict) for row in rows):
        raise DocumentError(f"{path} holds something else than objects", hint="one object per question")
    return rows


def question_of(row: dict[str, Any], where: str) -> Question:
    """One row in the published layout: question_id, question_text, choices, ground_truth, optional labels.

    The answer is matched by text first, then as a letter or an index: choices may themselves be letters.
    """
    missing = [name for name in ("question_id", "question_text", "ground_truth") if row.get(name) in (None, "")]
    if missing:
        raise DocumentError(f"{where}: no {missing[0]}", hint="needed: question_id, question_text, ground_truth")
    listed = row.get("choices") or []
    choices = [str(choice) for choice in (listed.values() if isinstance(listed, dict) else listed)]
    return Question(
        question_id=str(row["question_id"]),
        text=str(row["question_text"]),
        choices=choices,
        answer=_letter(row["ground_truth"], choices, where) if choices else str(row["ground_truth"]),
        verifier="choice" if choices else _free_form_verifier(row),
        domain=str(row.get("field") or row.get("domain") or ""),
        subdomain=str(row.get("subfield") or row.get("subdomain") or ""),
        document_id="",
        rollout_id="",
        reasoning="",
    )


def _letter(truth: Any, choices: Sequence[str], where: str) -> str:
    if len(choices) > len(LETTERS):
        raise DocumentError(f"{where}: {len(choices)} choices", hint=f"at most {len(LETTERS)}")
    if str(truth) in choices:
        return LETTERS[choices.index(str(truth))]
    if isinstance(truth, int) and 0 <= truth < len(choices):
        return LETTERS[truth]
    if isinstance(truth, str) and truth in LETTERS[: len(choices)] and len(truth) == 1:
        return truth
    raise DocumentError(f"{where}: the answer {truth!r} is none of the choices", hint="give the text of a choice")


def _free_form_verifier(row: dict[str, Any]) -> str:
    return "integer" if row.get("data_source") == "aime" else "math"


def _refuse_duplicates(questions: Sequence[Question], path: str) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.question_id in seen:
            raise DocumentError(f"{path}: question_id {question.question_id} twice", hint="identifiers are unique")
        seen.add(question.question_id)
