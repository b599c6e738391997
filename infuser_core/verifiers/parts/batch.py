"""Verify batches of responses, and optionally let a language model judge answers that the rules cannot decide surely.

That judge is off by default. The paper ("Training and Evaluation Protocol") mentions an optional judge for MATH500.
Here it sees only answers that a fallible stage found wrong or unverified, never correct ones, and the rules' findings
are stored with its verdicts. A reply other than one digit changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, cast

from infuser_core.errors import ConfigError
from infuser_core.plugins import VERIFIERS
from infuser_core.prompts.reasoning import answer_of
from infuser_core.prompts.templates import load_template
from infuser_core.protocols import ChatModel, Progress, no_progress
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts.grading import Finding, Stage, grading_of

CHOICES, SHORT_ANSWER = "solve_mcq", "solve_free_form"
"""Prompt templates of questions with lettered choices, and of others whose verifier declares none."""


REPORT_EVERY = 500
"""Jobs between two reports of progress: a few hundredths of a second of text comparison."""
_WORST_TO_BEST = (Verdict.NO_ANSWER, Verdict.WRONG, Verdict.UNVERIFIED, Verdict.CORRECT)


class Verifier(Protocol):
    """Interface of a verifier, shipped or of another package; a method `check_many(jobs, preset=...)` is optional."""

    def check(self, response: str, question: Question, *, preset: str = "paper") -> Finding:
        """Extract the response's answer and compare it with `question.answer`.

        Never raises for any response; raises ConfigError for a preset that is not in PRESETS.
        """
        ...


@cache
def verifier_prompt(name: str) -> str:
    """Prompt template of a verifier's questions. Raises ConfigError, listing the verifiers, for an unknown name."""
    return str(getattr(VERIFIERS.find(name)[0], "PROMPT", SHORT_ANSWER))


def prompt_name(question: Question) -> str:
    """Name of a question's prompt template: that for lettered choices, or its verifier's."""
    return CHOICES if question.choices else verifier_prompt(question.verifier)


def find_verifier(name: str) -> Verifier:
    """The verifier called `name`. Raises ConfigError, listing the verifiers, if there is none."""
    _, plugin = VERIFIERS.find(name)
    if not callable(getattr(plugin, "check", None)):
        raise ConfigError(f"verifier {name!r} has no check", hint="see infuser_core/verifiers/exact.py")
    return cast(Verifier, plugin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A response to verify; `question.verifier` selects the verifier."""

    response: str
    question: Question


def check_all(jobs: Sequence[Job], *, preset: str = "paper", progress: Progress = no_progress) -> list[Finding]:
    """Verify responses: one finding per job, in order. A verifier with `check_many` gets all of its jobs in one call.

    Verifiers get the response without its reasoning, except under `official`, whose extractors are the authors'. If a
    question has several correct answers, the best finding counts. Raises ConfigError for an unknown preset or verifier.
    """
    if preset != "official":
        jobs = [replace(job, response=answer_of(job.response)) for job in jobs]
    alternatives = [
        (index, replace(job, question=replace(job.question, answer=answer)))
        for index, job in enumerate(jobs)
        for answer in grading_of(job.question).also_right
    ]
    count, jobs = len(jobs), [*jobs, *(job for _, job in alternatives)]
    indices_by_verifier: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        indices_by_verifier.setdefault(job.question.verifier, []).append(index)
    verifiers = {name: find_verifier(name) for name in sorted(indices_by_verifier)}
    findings: dict[int, Finding] = {}
    for name, verifier in verifiers.items():
        check_many = getattr(verifier, "check_many", None)
        # `check_many` shares workers or sandboxes among all jobs; the other verifiers are cheap and report progress.
        step = max(1, len(indices_by_verifier[name])) if check_many is not None else REPORT_EVERY
        for start in range(0, len(indices_by_verifier[name]), step):
            indices = indices_by_verifier[name][start : start + step]
            batch = [jobs[index] for index in indices]
            if check_many is not None:
                batch_findings = check_many(batch, preset=preset)
            else:
                batch_findings = [verifier.check(job.response, job.question, preset=preset) for job in batch]
            findings.update(zip(indices, batch_findings, strict=True))
            progress(len(findings), len(jobs), 0)
    for number, (index, _) in enumerate(alternatives, count):
        findings[index] = max(
            findings[index], findings[number], key=lambda finding: _WORST_TO_BEST.index(finding.verdict)
        )
    return [findings[index] for index in range(count)]


PROMPT = "judge_answer"
MAX_ANSWER = 512
"""Longest answer that the judge sees, characters."""
MAX_TOKENS = 16
"""Longest reply, tokens: one digit and what a chat template adds."""
MAY_ERR: frozenset[str] = frozenset(
    [Stage.SYMBOLIC, Stage.OPEN, Stage.WORDS, Stage.UNREADABLE, Stage.REFERENCE, Stage.LIMIT, Stage.TIME, Stage.CRASH]
)
"""Stages that can err in "wrong" or "unverified". The judge does not see decisions by exact values, tolerances, units,
structure or relations."""


def break_ties(jobs: Sequence[Job], findings: Sequence[Finding], model: ChatModel) -> dict[int, Verdict]:
    """Let a model judge undecided answers. Returns its verdicts that differ from the rules', by index of the job."""
    undecided = [
        index
        for index, finding in enumerate(findings)
        if finding.verdict in (Verdict.WRONG, Verdict.UNVERIFIED)
        and finding.reason in MAY_ERR
        and finding.extracted is not None
        and len(finding.extracted) <= MAX_ANSWER
    ]
    template = load_template(PROMPT, profile="paper")
    prompts = []
    for index in undecided:
        question, answer = jobs[index].question, findings[index].extracted or ""
        reference = " or ".join([question.answer, *grading_of(question).also_right])
        prompts.append(template.messages(question=question.text, reference=reference, answer=answer))
    replies = model.complete(prompts, max_tokens=MAX_TOKENS) if prompts else []
    verdicts = {"1": Verdict.CORRECT, "0": Verdict.WRONG}
    changes = {}
    for index, reply in zip(undecided, replies, strict=True):
        verdict = verdicts.get(answer_of(reply).strip())
        if verdict and verdict != findings[index].verdict:
            changes[index] = verdict
    return changes
