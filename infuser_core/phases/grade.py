"""Saved responses are scored: needs no model, and gives the same verdicts as often as it is asked."""

from collections.abc import Mapping, Sequence

from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.phases.respond import TOO_LONG, Key
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, Verdict
from infuser_core.verifiers.parts.batch import Job, Ruling, break_ties, check_all
from infuser_core.verifiers.parts.grading import Finding

UNASKED = Finding(verdict=Verdict.NO_ANSWER, extracted=None, reason="prompt too long")
"""Finding for a question that did not fit: no answer, which counts as wrong."""


def grade(
    responses: Sequence[BenchmarkResponse],
    questions: Mapping[Key, Question],
    *,
    preset: str = "paper",
    judge: ChatModel | None = None,
    progress: Progress = no_progress,
) -> list[BenchmarkVerdict]:
    """One verdict per response, in order. `questions` holds at least those that were answered.

    A judge, where there is one, breaks ties that a fallible rule left; its verdicts are marked as its own.
    """
    asked = [row for row in responses if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.response, question=questions[row.benchmark, row.question_id]) for row in asked]
    found = check_all(jobs, preset=preset, progress=progress)
    settled = iter(_ruled(found) if judge is None else break_ties(jobs, found, judge))
    unasked = _ruled([UNASKED])[0]
    return [_verdict(row, unasked if row.finish_reason == TOO_LONG else next(settled), preset) for row in responses]


def _ruled(findings: Sequence[Finding]) -> list[Ruling]:
    """Findings that nobody else was asked about."""
    return [Ruling(finding=finding, decided_by="verifier", rule=finding, reply="") for finding in findings]


def _verdict(row: BenchmarkResponse, ruling: Ruling, preset: str) -> BenchmarkVerdict:
    finding, rule = ruling.finding, ruling.rule
    judged = ruling.decided_by == "judge"
    return BenchmarkVerdict(
        benchmark=row.benchmark,
        question_id=row.question_id,
        sample_index=row.sample_index,
        preset=preset,
        verdict=finding.verdict.value,
        extracted=finding.extracted or "",
        reason=f"judge, where the rule said {rule.verdict.value}: {rule.reason}" if judged else str(finding.reason),
        decided_by=ruling.decided_by,
    )
