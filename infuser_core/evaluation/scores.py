"""Scores of an evaluation: one row per question, one per benchmark, and all results as one JSON object."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation.evaluate import TOO_LONG, Key
from infuser_core.evaluation.plan import ExamPlan, Sheet
from infuser_core.evaluation.record import EvaluationRecord
from infuser_core.evaluation.statistics.averages import mean_of
from infuser_core.evaluation.statistics.bootstrap import wilson
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, QuestionScore, Verdict

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetScore:
    """Score of one benchmark of an evaluation under one preset."""

    sheet: Sheet
    score: BenchmarkScore
    num_too_long: int
    """Questions that did not fit the prompt limit."""
    share_at_limit: float
    """Share of the responses that ended at the length limit, of questions that fit the prompt limit."""


def question_scores(
    plan: ExamPlan,
    responses: Sequence[BenchmarkResponse],
    verdicts: Sequence[BenchmarkVerdict],
    *,
    too_long: str,
) -> list[QuestionScore]:
    """Count verdicts by question, in the order of the plan; responses and verdicts must be in the same order.

    Raises DamagedArtifactError for a question without responses.
    """
    counts: dict[Key, dict[str, int]] = {}
    for response, verdict in zip(responses, verdicts, strict=True):
        own = counts.setdefault((response.benchmark, response.question_id), {})
        dropped = too_long == "drop" and response.finish_reason == TOO_LONG
        names = [response.finish_reason] if dropped else ["samples", verdict.verdict, response.finish_reason]
        for name in names:
            own[name] = own.get(name, 0) + 1
        own["tokens"] = own.get("tokens", 0) + response.response_tokens
    questions = plan.by_key()
    missing = [key for key in questions if key not in counts]
    if missing:
        raise DamagedArtifactError(
            f"{len(missing)} questions have no saved response, first {missing[0][1]} of {missing[0][0]}",
            hint="run `infuser eval` to its end first",
        )
    return [
        _question_score(label, question.question_id, question.domain, counts[label, question.question_id])
        for (label, _), question in questions.items()
    ]


def _question_score(benchmark: str, question_id: str, domain: str, counts: Mapping[str, int]) -> QuestionScore:
    samples = counts.get("samples", 0)
    return QuestionScore(
        benchmark=benchmark,
        question_id=question_id,
        domain=domain,
        num_samples=samples,
        num_correct=counts.get(Verdict.CORRECT, 0),
        num_no_answer=counts.get(Verdict.NO_ANSWER, 0),
        num_unverified=counts.get(Verdict.UNVERIFIED, 0),
        num_cut=counts.get("length", 0),
        too_long=TOO_LONG in counts,
        mean_response_tokens=counts["tokens"] / samples if samples else 0.0,
    )


def sheet_scores(plan: ExamPlan, questions: Iterable[QuestionScore], *, checkpoint_id: str) -> list[SheetScore]:
    """Compute one score per benchmark, in the order of the plan."""
    by_label: dict[str, list[QuestionScore]] = {sheet.label: [] for sheet in plan.sheets}
    for question in questions:
        by_label[question.benchmark].append(question)
    return [_sheet_score(sheet, by_label[sheet.label], checkpoint_id) for sheet in plan.sheets]


def _sheet_score(sheet: Sheet, rows: Sequence[QuestionScore], checkpoint_id: str) -> SheetScore:
    counted = [row for row in rows if row.num_samples]
    total = sum(row.num_samples for row in counted)
    fitting = [row for row in counted if not row.too_long]
    num_fitting = max(1, sum(row.num_samples for row in fitting))
    shares = [row.num_correct / row.num_samples for row in counted]
    accuracy = sum(shares) / len(shares) if shares else 0.0
    low, high = wilson(accuracy, len(counted))
    score = BenchmarkScore(
        benchmark=sheet.label,
        checkpoint_id=checkpoint_id,
        num_questions=len(counted),
        num_samples=max((row.num_samples for row in counted), default=0),
        accuracy=accuracy,
        low=low,
        high=high,
        answered=1 - sum(row.num_no_answer for row in counted) / max(1, total),
        unverified=sum(row.num_unverified for row in counted),
        mean_response_tokens=sum(row.mean_response_tokens * row.num_samples for row in fitting) / num_fitting,
    )
    return SheetScore(
        sheet=sheet,
        score=score,
        num_too_long=sum(row.too_long for row in rows),
        share_at_limit=sum(row.num_cut for row in fitting) / num_fitting,
    )


def average_accuracies(scores: Sequence[SheetScore]) -> dict[str, float]:
    """Unweighted means of the benchmarks of each category and, last, of all; empty for a single benchmark."""
    if len(scores) < 2:
        return {}
    groups: dict[str, list[float]] = {}
    for each in scores:
        groups.setdefault(each.sheet.category or "other", []).append(each.score.accuracy)
    means = {name: float(mean_of(values)) for name, values in groups.items()}
    return means | {"overall": float(mean_of([each.score.accuracy for each in scores]))}


def results_of(
    record: EvaluationRecord,
    scores: Sequence[SheetScore],
    *,
    preset: str,
    too_long: str,
    judge: str = "",
    verdicts: Sequence[BenchmarkVerdict] = (),
) -> JSON:
    """Results of an evaluation as JSON values, without times or paths: equal answers give equal text.

    `judge` is the name of the model that broke ties among the `verdicts`, if any.
    """
    identity = record.identity
    by_judge = Counter(row.benchmark for row in verdicts if judge and row.decided_by == "judge")
    # Only evaluations with other prompts than the profile's have `shots` in their identity.
    shots = {label: {"shots": facts["shots"]} for label, facts in identity["benchmarks"].items() if "shots" in facts}
    notes = _score_notes(scores, limit=identity["limit"], seed=identity["seed"])
    notes += [f"{label}: {facts['shots']} worked examples" for label, facts in shots.items() if facts["shots"]]
    if identity.get("system") is not None:
        notes.append(f"system turn: {identity['system'] or 'none'}")
    if identity.get("chat", "own") != "own":
        notes.append(f"chat template: {identity['chat']}")
    notes += [f"{label}: {count:,} verdicts are the judge's ({judge})" for label, count in by_judge.items()]
    return {
        "model": record.model,
        "model_digest": identity["model"],
        "preset": preset,
        "too_long": too_long,
        "judge": judge,
        "seed": identity["seed"],
        "sampling": identity["sampling"],
        "prompt_tokens": identity["prompt_tokens"],
        "limit": identity["limit"],
        "benchmarks": {
            label: _facts(each) | {"judged": by_judge[label]} | shots.get(label, {})
            for each in scores
            for label in [each.sheet.label]
        },
        "categories": average_accuracies(scores),
        "notes": [*notes, *record.notes],
    }


def _facts(each: SheetScore) -> JSON:
    sheet, score = each.sheet, each.score
    return {
        "name": sheet.name,
        "title": sheet.title,
        "category": sheet.category,
        "questions": score.num_questions,
        "available": sheet.num_available,
        "expected": sheet.expected,
        "samples": score.num_samples,
        "accuracy": score.accuracy,
        "low": score.low,
        "high": score.high,
        "answered": score.answered,
        "unverified": score.unverified,
        "prompt_too_long": each.num_too_long,
        "mean_response_tokens": score.mean_response_tokens,
        "cut": each.share_at_limit,
        "max_tokens": sheet.max_tokens,
    }


def _score_notes(scores: Sequence[SheetScore], *, limit: int | None, seed: int) -> list[str]:
    """Caveats for readers who compare the scores."""
    notes = []
    for each in scores:
        sheet = each.sheet
        if limit is not None and limit < sheet.num_available:
            part = f"{limit:,} of {sheet.num_available:,} questions"
            notes.append(f"{sheet.label}: limited to {part}, stratified by domain, seed {seed}")
        if each.num_too_long:
            notes.append(f"{sheet.label}: {each.num_too_long:,} questions did not fit the prompt limit")
        if each.score.unverified:
            notes.append(
                f"{sheet.label}: {each.score.unverified:,} responses could not be verified; they count as wrong"
            )
    return notes
