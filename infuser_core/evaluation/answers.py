"""Answers of a model to one benchmark, and their scores: the tables that evaluation stages commit to the store."""

from collections.abc import Callable, Collection, Iterator, Sequence

from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation.evaluate import Ask, Key, ScoreSettings, grade
from infuser_core.evaluation.plan import ExamPlan, plan_of_answers
from infuser_core.evaluation.scores import question_scores, sheet_scores
from infuser_core.protocols import ChatModel, Progress, no_progress
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, Question, QuestionScore
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from infuser_core.system import fault_points as faults

Batches = Callable[[Sequence[Ask], Collection[Key]], Iterator[list[BenchmarkResponse]]]
"""Function that asks the questions not finished yet and yields batches of completely answered ones."""


def collect_responses(plan: ExamPlan, pieces: Pieces[BenchmarkResponse], batches: Batches) -> list[BenchmarkResponse]:
    """Collect the responses to every question, in order. Questions saved before a kill are not asked again."""
    finished = {(row.benchmark, row.question_id) for row in pieces.rows()}
    if len(finished) < len(plan.by_key()):
        for rows in batches(plan.asks(), finished):
            faults.point("respond:before_piece")
            pieces.add(rows)
            faults.point("respond:after_piece")
    places = {key: place for place, key in enumerate(plan.by_key())}
    return sorted(pieces.rows(), key=lambda row: (places[row.benchmark, row.question_id], row.sample_index))


def responses_outcome(
    label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse], **facts: str
) -> Outcome:
    """Outcome of a stage that samples responses: questions and responses; `facts` are added to its summary."""
    return Outcome(
        tables={
            "responses": Table(row_type=BenchmarkResponse, rows=responses),
            "asked_questions": Table(row_type=Question, rows=questions),
        },
        summary={
            "label": label,
            "responses": len(responses),
            "tokens": sum(row.response_tokens for row in responses),
            **facts,
        },
    )


def scores_outcome(
    store: Store,
    label: str,
    answers: ArtifactRef,
    settings: ScoreSettings,
    *,
    judge: ChatModel | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Grade saved answers into the outcome of a scoring stage; the judge, if any, breaks ties."""
    rows = store.rows(answers, "responses", BenchmarkResponse)
    plan = plan_of(store, label, answers, rows)
    verdicts = grade(rows, plan.by_key(), preset=settings.box, judge=judge, progress=progress)
    scores = question_scores(plan, rows, verdicts, too_long=settings.too_long)
    recipe = store.manifest(answers).recipe
    model = recipe["inputs"].get("solver") or str(recipe["config"].get("model", ""))
    (sheet_score,) = sheet_scores(plan, scores, checkpoint_id=model)
    score = sheet_score.score
    return Outcome(
        tables={
            "verdicts": Table(row_type=BenchmarkVerdict, rows=verdicts),
            "question_scores": Table(row_type=QuestionScore, rows=scores),
            "benchmark_scores": Table(row_type=BenchmarkScore, rows=[score]),
        },
        summary={"benchmark": label, "accuracy": score.accuracy, "low": score.low, "high": score.high},
    )


def plan_of(store: Store, label: str, answers: ArtifactRef, rows: Sequence[BenchmarkResponse]) -> ExamPlan:
    """Rebuild the plan of saved answers. Raises DamagedArtifactError for an answer to none of their questions."""
    plan = plan_of_answers(label, store.rows(answers, "asked_questions", Question), rows)
    asked_keys = plan.by_key()
    stranger = next((row for row in rows if (row.benchmark, row.question_id) not in asked_keys), None)
    if stranger is not None:
        raise DamagedArtifactError(
            f"{answers.key}: a response to {stranger.question_id} of {stranger.benchmark}, which was not asked",
            hint="the responses and the questions do not belong together",
        )
    return plan
