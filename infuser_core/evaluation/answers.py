"""Answers of a model to one benchmark, and their scores: the tables that evaluation stages commit to the store."""

from collections.abc import Callable, Collection, Iterator, Sequence

from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation.evaluate import Ask, Key, ScoreSettings, grade
from infuser_core.evaluation.plan import Plan, of_answers
from infuser_core.evaluation.scores import question_scores, sheet_scores
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, Question, QuestionScore
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from infuser_core.system import fault_points as faults

Batches = Callable[[Sequence[Ask], Collection[Key]], Iterator[list[BenchmarkResponse]]]
"""Asks what is not finished yet, complete questions at a time."""


def collect(plan: Plan, kept: Pieces[BenchmarkResponse], batches: Batches) -> list[BenchmarkResponse]:
    """The responses to every question, in order. What was kept before a kill is not asked again."""
    finished = {(row.benchmark, row.question_id) for row in kept.rows()}
    if len(finished) < len(plan.by_key()):
        for rows in batches(plan.asks(), finished):
            faults.point("respond:before_piece")
            kept.add(rows)
            faults.point("respond:after_piece")
    places = {key: place for place, key in enumerate(plan.by_key())}
    return sorted(kept.rows(), key=lambda row: (places[row.benchmark, row.question_id], row.sample_index))


def answered(label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse], **said: str) -> Outcome:
    """The outcome of a stage that asks: the questions as they were asked, and every response."""
    return Outcome(
        tables={
            "responses": Table(row_type=BenchmarkResponse, rows=responses),
            "asked_questions": Table(row_type=Question, rows=questions),
        },
        summary={
            "label": label,
            "responses": len(responses),
            "tokens": sum(row.response_tokens for row in responses),
            **said,
        },
    )


def scored(
    store: Store,
    label: str,
    answers: ArtifactRef,
    settings: ScoreSettings,
    *,
    judge: ChatModel | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """The outcome of a stage that scores saved answers; a judge, where there is one, breaks ties."""
    rows = store.rows(answers, "responses", BenchmarkResponse)
    plan = plan_of(store, label, answers, rows)
    verdicts = grade(rows, plan.by_key(), preset=settings.box, judge=judge, progress=progress)
    scores = question_scores(plan, rows, verdicts, too_long=settings.too_long)
    recipe = store.manifest(answers).recipe
    model = recipe["inputs"].get("solver") or str(recipe["config"].get("model", ""))
    (found,) = sheet_scores(plan, scores, checkpoint_id=model)
    score = found.score
    return Outcome(
        tables={
            "verdicts": Table(row_type=BenchmarkVerdict, rows=verdicts),
            "question_scores": Table(row_type=QuestionScore, rows=scores),
            "benchmark_scores": Table(row_type=BenchmarkScore, rows=[score]),
        },
        summary={"benchmark": label, "accuracy": score.accuracy, "low": score.low, "high": score.high},
    )


def plan_of(store: Store, label: str, answers: ArtifactRef, rows: Sequence[BenchmarkResponse]) -> Plan:
    """Questions that these answers belong to. Raises DamagedArtifactError for an answer that belongs to none."""
    plan = of_answers(label, store.rows(answers, "asked_questions", Question), rows)
    known = plan.by_key()
    stranger = next((row for row in rows if (row.benchmark, row.question_id) not in known), None)
    if stranger is not None:
        raise DamagedArtifactError(
            f"{answers.key}: a response to {stranger.question_id} of {stranger.benchmark}, which was not asked",
            hint="the responses and the questions do not belong together",
        )
    return plan
