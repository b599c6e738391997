"""Scores from verdicts: one row per question, then one per benchmark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation.plan import Plan, Sheet
from infuser_core.phases.evaluate import TOO_LONG, Key
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, QuestionScore, Verdict
from infuser_core.statistics.bootstrap import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetScore:
    """One benchmark of an evaluation under one preset."""

    sheet: Sheet
    """The benchmark."""
    score: BenchmarkScore
    """Accuracy and what belongs to it."""
    num_too_long: int
    """Questions that did not fit the prompt limit."""
    cut: float
    """Share of asked responses that ended at the length limit."""


def question_scores(
    plan: Plan,
    responses: Sequence[BenchmarkResponse],
    verdicts: Sequence[BenchmarkVerdict],
    *,
    too_long: str,
) -> list[QuestionScore]:
    """One row per question, in the order of the plan, from responses and their verdicts in the same order.

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
    known = plan.by_key()
    missing = [key for key in known if key not in counts]
    if missing:
        raise DamagedArtifactError(
            f"{len(missing)} questions have no saved response, first {missing[0][1]} of {missing[0][0]}",
            hint="run `infuser eval` to its end first",
        )
    return [
        _row(label, question.question_id, question.domain, counts[label, question.question_id])
        for (label, _), question in known.items()
    ]


def _row(benchmark: str, question_id: str, domain: str, counts: Mapping[str, int]) -> QuestionScore:
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


def scores_of(plan: Plan, questions: Iterable[QuestionScore], *, checkpoint_id: str) -> list[SheetScore]:
    """One score per benchmark, in the order of the plan."""
    by_label: dict[str, list[QuestionScore]] = {sheet.label: [] for sheet in plan.sheets}
    for question in questions:
        by_label[question.benchmark].append(question)
    return [_sheet_score(sheet, by_label[sheet.label], checkpoint_id) for sheet in plan.sheets]


def _sheet_score(sheet: Sheet, rows: Sequence[QuestionScore], checkpoint_id: str) -> SheetScore:
    counted = [row for row in rows if row.num_samples]
    total = sum(row.num_samples for row in counted)
    asked = [row for row in counted if not row.too_long]
    num_asked = max(1, sum(row.num_samples for row in asked))
    accuracy = _share([row.num_correct / row.num_samples for row in counted])
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
        mean_response_tokens=sum(row.mean_response_tokens * row.num_samples for row in asked) / num_asked,
    )
    too_long = sum(row.too_long for row in rows)
    cut = sum(row.num_cut for row in asked) / num_asked
    return SheetScore(sheet=sheet, score=score, num_too_long=too_long, cut=cut)


def _share(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
