"""Checks of generated questions: do they stand alone, is the key right, do they repeat each other?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.model_reply import ReplyProblem, ask
from infuser_core.engines.models import prompt_of
from infuser_core.engines.protocols import ChatModel
from infuser_core.evaluation.models import Examinee
from infuser_core.evaluation.plan import ExamSettings
from infuser_core.phases.answering import template_digest
from infuser_core.prompts.load import Template, render_question
from infuser_core.schemas import BenchmarkVerdict
from infuser_core.statistics.question_quality import CheckedQuestion, check_key, copies, points_at
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import digest_of
from tasks.examine import chat_of

REPLY_TOKENS = 512
"""Length limit of the judge's reply, tokens."""
TOGETHER = 32
"""Questions that a judge is asked before its replies are kept: what a kill can lose."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a judge says of one question."""

    question_id: str
    """Question."""
    usable: bool
    """Whether any of its replies could be read."""
    self_contained: bool
    """Whether it stands alone; meaningless without a usable reply."""
    missing: str
    """What it misses, in the judge's words."""
    reply: str
    """Last reply."""


def judge(questions: Sequence[Row], judge: Examinee, settings: ExamSettings, folder: Path) -> dict[str, Judged]:
    """A model's word on every question. What is kept below `folder` is not asked again, whoever asked it."""
    template = prompt_of("judge_question", settings.prompts)
    identity = digest_of([judge.digest, template_digest(template), REPLY_TOKENS])
    pieces = Pieces(folder / f"judge-{identity[:16]}", Judged)
    known = {row.question_id: row for row in pieces.rows()}
    left = [row for row in questions if row["question_id"] not in known]
    model = chat_of(judge, settings) if left else None
    for start in range(0, len(left), TOGETHER):
        assert model is not None
        rows = _asked(model, template, left[start : start + TOGETHER])
        pieces.add(rows)
        known |= {row.question_id: row for row in rows}
    return known


def _asked(model: ChatModel, template: Template, questions: Sequence[Row]) -> list[Judged]:
    names = [str(row["question_id"]) for row in questions]
    prompts = [template.messages(question=render_question(row["text"], list(row["choices"]))) for row in questions]
    found = ask(model, prompts, _read, task="judge_question", items=names, max_tokens=REPLY_TOKENS)
    last = {call.item: call.reply for call in found.calls}
    return [
        Judged(
            question_id=name,
            usable=value is not None,
            self_contained=value == "",
            missing=value or "",
            reply=last[name],
        )
        for name, value in zip(names, found.values, strict=True)
    ]


def _read(place: int, reply: dict[str, Any]) -> str:
    """What is missing; empty where the question stands alone."""
    verdict, missing = reply.get("self_contained"), reply.get("missing")
    if not isinstance(verdict, bool):
        raise ReplyProblem('"self_contained" is neither true nor false')
    said = " ".join(missing.split()) if isinstance(missing, str) else ""
    return "" if verdict else said or "something"


def checked(
    questions: Sequence[Row],
    *,
    judged: Mapping[str, Judged],
    verdicts: Mapping[str, Sequence[BenchmarkVerdict]],
    agreement: Mapping[str, Sequence[float]],
) -> list[CheckedQuestion]:
    """The questions of one iteration with every check; `verdicts` are those of the strongest solver."""
    repeated = copies({row["question_id"]: render_question(row["text"], list(row["choices"])) for row in questions})
    found = []
    for row in questions:
        name = str(row["question_id"])
        pointing = points_at(" ".join([row["text"], *row["choices"]]))
        said = judged.get(name)
        decided = said is not None and said.usable
        key = check_key(verdicts[name]) if verdicts.get(name) else None
        found.append(
            CheckedQuestion(
                iteration=row["iteration"],
                question_id=name,
                document_id=row["document_id"],
                text=row["text"],
                choices=list(row["choices"]),
                answer=row["answer"],
                copies=repeated[name],
                points_at=pointing,
                self_contained=said.self_contained if said is not None and decided else not pointing,
                decided_by="judge" if decided else "rules",
                missing=said.missing if said is not None and decided else "",
                key=key.finding if key else "",
                majority=key.answer if key else "",
                oracle=row["oracle"],
                agreement=list(agreement.get(name, [])),
            )
        )
    return found
