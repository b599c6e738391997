"""Batches of responses, grouped by verifier, and the optional language model as tie-breaker.

The tie-breaker is off by default. The paper ("Training and Evaluation Protocol") mentions an optional judge for
MATH500. Here it sees only what a fallible stage left wrong or undecided, never what the rules called correct, and what
the rules said stays beside its word. A reply that is not one digit changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core import plugins
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.prompts.load import load
from infuser_core.reasoning import answer_of
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts.grading import Finding, Stage, grading_of

REPORT_EVERY = 500
"""Jobs between two reports of progress: a few hundredths of a second of text comparison."""

_BEST = (Verdict.NO_ANSWER, Verdict.WRONG, Verdict.UNVERIFIED, Verdict.CORRECT)
"""Verdicts by what they say for an answer: one that a limit left open may be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One response to verify."""

    response: str
    """The whole model output."""
    question: Question
    """The question it answers; `question.verifier` alone chooses the verifier."""


def check_all(jobs: Sequence[Job], *, preset: str = "paper", progress: Progress = no_progress) -> list[Finding]:
    """One finding per job, in order. Verifiers that offer `check_many` get all of their jobs in one call.

    Reasoning answers nothing: verifiers get the response without it, save under `official`, whose readers are fixed.
    Where a question has several right answers, the best finding counts. Raises ConfigError for an unknown preset or
    verifier.
    """
    if preset != "official":
        jobs = [replace(job, response=answer_of(job.response)) for job in jobs]
    others = [
        (place, replace(job, question=replace(job.question, answer=answer)))
        for place, job in enumerate(jobs)
        for answer in grading_of(job.question).also_right
    ]
    count, jobs = len(jobs), [*jobs, *(job for _, job in others)]
    places: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        places.setdefault(job.question.verifier, []).append(place)
    verifiers = {name: plugins.verifier(name) for name in sorted(places)}
    found: dict[int, Finding] = {}
    for name, verifier in verifiers.items():
        together = getattr(verifier, "check_many", None)
        # A verifier with machinery of its own gets its jobs whole; the others are cheap and report as they go.
        step = max(1, len(places[name])) if together is not None else REPORT_EVERY
        for start in range(0, len(places[name]), step):
            mine = places[name][start : start + step]
            own = [jobs[place] for place in mine]
            if together is not None:
                findings = together(own, preset=preset)
            else:
                findings = [verifier.check(job.response, job.question, preset=preset) for job in own]
            found.update(zip(mine, findings, strict=True))
            progress(len(found), len(jobs), 0)
    for number, (place, _) in enumerate(others, count):
        found[place] = max(found[place], found[number], key=lambda finding: _BEST.index(finding.verdict))
    return [found[place] for place in range(count)]


PROMPT = "judge_answer"
MAX_ANSWER = 512
"""Longest answer that is shown to the judge, characters."""
MAX_TOKENS = 16
"""Reply limit, tokens: one digit, with room for what a chat template adds."""
MAY_ERR: frozenset[str] = frozenset(
    [Stage.SYMBOLIC, Stage.OPEN, Stage.WORDS, Stage.UNREADABLE, Stage.REFERENCE, Stage.LIMIT, Stage.TIME, Stage.CRASH]
)
"""Stages whose "wrong" or "unverified" is no proof. Exact values, tolerances, units, structure and relations are
decided: a judge could only undo them."""


def break_ties(jobs: Sequence[Job], findings: Sequence[Finding], model: ChatModel) -> dict[int, Verdict]:
    """The model's verdicts by place among the jobs, where they are others than those of the rules."""
    asked = [
        place
        for place, found in enumerate(findings)
        if found.verdict in (Verdict.WRONG, Verdict.UNVERIFIED)
        and found.reason in MAY_ERR
        and found.extracted is not None
        and len(found.extracted) <= MAX_ANSWER
    ]
    template = load(PROMPT, profile="paper")
    prompts = []
    for place in asked:
        question, answer = jobs[place].question, findings[place].extracted or ""
        reference = " or ".join([question.answer, *grading_of(question).also_right])
        prompts.append(template.messages(question=question.text, reference=reference, answer=answer))
    replies = model.complete(prompts, max_tokens=MAX_TOKENS) if prompts else []
    verdicts = {"1": Verdict.CORRECT, "0": Verdict.WRONG}
    said = {place: verdicts.get(answer_of(reply).strip()) for place, reply in zip(asked, replies, strict=True)}
    return {place: verdict for place, verdict in said.items() if verdict and verdict != findings[place].verdict}
