"""Stages of studies on questions, generated or from files: judge them, check them, and score their influence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.model_reply import ReplyProblem, ask_model
from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import dev_gradient, score_influence
from infuser_core.evaluation.answering import template_digest
from infuser_core.evaluation.generated import GeneratedSet, Judged
from infuser_core.evaluation.statistics.question_quality import CheckedQuestion
from infuser_core.prompts.templates import Template, load_or_shipped, render_question
from infuser_core.protocols import ChatModel, Progress
from infuser_core.schemas import Gradient, InfluenceScore, Question, Role, Rollout
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system.sealed import digest_of
from tasks.evaluation import Judge
from tasks.rollouts import answers_of
from tasks.run import Execution, Run
from tasks.stage import stage
from tasks.work import Work, add_not_finite

VERSION = 1
REPLY_TOKENS = 512
"""Maximum length of the judge's reply, tokens."""
BATCH = 32
"""Questions judged before the replies are saved: at most this work is lost in a crash."""


def judge_questions(run: Execution, questions: GeneratedSet, judge: Judge, prompts: str) -> Work:
    """Let a model decide whether each question is self-contained. A restart continues with the missing questions."""
    template = load_or_shipped("judge_question", profile=prompts)
    names = [str(row["question_id"]) for row in questions.rows]
    values = {
        "judge": judge.digest,
        "template": template_digest(template),
        "reply_tokens": REPLY_TOKENS,
        "questions": digest_of(names),
    }
    inputs = {"questions": questions.ref}
    recipe = run.recipe("judge_questions", VERSION, values, inputs, iteration=questions.iteration)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        pieces = Pieces(run.store.partial(recipe), Judged)
        finished = {row.question_id for row in pieces.rows()}
        missing = [row for row in questions.rows if row["question_id"] not in finished]
        model = judge.load() if missing else None
        for start in range(0, len(missing), BATCH):
            assert model is not None
            pieces.add(_judge_batch(model, template, missing[start : start + BATCH]))
            progress(len(finished) + min(start + BATCH, len(missing)), len(names), 0)
        verdicts = {row.question_id: row for row in pieces.rows()}
        rows = [verdicts[name] for name in names]
        self_contained = sum(row.usable and row.self_contained for row in rows)
        return Outcome(
            tables={"judged_questions": Table(row_type=Judged, rows=rows)},
            summary={"questions": len(rows), "self_contained": self_contained},
        )

    return Work(recipe=recipe, produce=produce)


def _judge_batch(model: ChatModel, template: Template, questions: Sequence[Mapping[str, Any]]) -> list[Judged]:
    names = [str(row["question_id"]) for row in questions]
    prompts = [template.messages(question=render_question(row["text"], list(row["choices"]))) for row in questions]
    values, calls = ask_model(
        model, prompts, _missing_context, task="judge_question", items=names, max_tokens=REPLY_TOKENS
    )
    last = {call.item: call.reply for call in calls}
    return [
        Judged(
            question_id=name,
            usable=value is not None,
            self_contained=value == "",
            missing=value or "",
            reply=last[name],
        )
        for name, value in zip(names, values, strict=True)
    ]


def _missing_context(place: int, reply: dict[str, Any]) -> str:
    """Parse the judge's reply: the context that the question lacks, empty if it is self-contained."""
    verdict, missing = reply.get("self_contained"), reply.get("missing")
    if not isinstance(verdict, bool):
        raise ReplyProblem('"self_contained" is neither true nor false')
    text = " ".join(missing.split()) if isinstance(missing, str) else ""
    return "" if verdict else text or "something"


def quality(
    run: Execution, facts: Mapping[str, Any], rows: Sequence[CheckedQuestion], inputs: Mapping[str, ArtifactRef]
) -> Work:
    """Store the quality of a run's questions: `facts` as a JSON file, and a row per question."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        text = json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False)
        (workspace / "quality.json").write_text(f"{text}\n", encoding="utf-8")
        return Outcome(
            tables={"checked_questions": Table(row_type=CheckedQuestion, rows=rows)},
            summary={"run": facts["run"], "questions": len(rows)},
        )

    return Work(recipe=run.recipe("quality", VERSION, {"found": digest_of(facts)}, inputs), produce=produce)


@stage("given_questions")
def given_questions(run: Run, questions: Sequence[Question], *, table: str = "questions") -> Work:
    """Store questions from files or from memory, each with a unique id, in the table of generated ones or another."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        return Outcome(
            tables={table: Table(row_type=Question, rows=list(questions))}, summary={"valid": len(questions)}
        )

    content = digest_of([recorded(replace(row, question_id="")) | {"id": row.question_id} for row in questions])
    return Work(recipe=run.recipe("given_questions", VERSION, {table: content}, {}), produce=produce)


@stage("score_given")
def score_given(
    run: Run, questions: ArtifactRef, rollouts: ArtifactRef, gradient: ArtifactRef, solver: ArtifactRef
) -> Work:
    """Compute the influence of every given question on the solver (eq:estimated_influence_score)."""
    settings = score_influence.settings_of(run.config, iteration=0, probe=True)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        (facts,) = run.store.rows(gradient, "gradients", Gradient)
        checkpoint = run.checkpoint(solver, Role.SOLVER)
        scored = score_influence.score_influence(
            run.store.rows(questions, "questions", Question),
            run.store.rows(rollouts, "rollouts", Rollout),
            run.pool.trainer(checkpoint),
            settings,
            reference=run.store.path(gradient, dev_gradient.FILE),
            reference_norm=facts.norm,
            workspace=workspace,
            dev=answers_of(run.store, gradient) if settings.step else (),
            checkpoint=checkpoint,
            include_carried=True,
            progress=progress,
        )
        outcome = Outcome(
            tables={"scores": Table(row_type=InfluenceScore, rows=scored.scores)},
            summary={"questions": len(scored.scores)},
        )
        return add_not_finite(outcome, scored.not_finite)

    inputs = {"questions": questions, "rollouts": rollouts, "gradient": gradient, "solver": solver}
    return Work(recipe=run.recipe("score_given", score_influence.VERSION, settings, inputs), produce=produce)
