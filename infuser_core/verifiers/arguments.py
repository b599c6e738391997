"""Verify arguments of a function: correct if it returns the same value for them as for the reference arguments.

The function is `program` in the question's grading facts and runs in the sandbox. The boxed arguments are
comma-separated Python literals, with or without the call around them. Presets choose the box as in `literal.py`.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from infuser_core.schemas import Question
from infuser_core.verifiers import code
from infuser_core.verifiers.literal import boxed_literal, value_of
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.code_tests import same_value
from infuser_core.verifiers.parts.grading import Finding, correct, grading_of, no_answer, unverified, wrong
from infuser_core.verifiers.sandbox.program import Case, Limits, Program, SandboxError, Status
from infuser_core.verifiers.sandbox.run import run

RUNS_PROGRAMS = True
LIMITS = Limits(seconds=2.0, total_seconds=5.0, memory_mb=256, output_bytes=64 << 10, value_bytes=64 << 10, disk_mb=4)
"""Limits of calls of a question's function."""
_CALL = re.compile(r"f\s*\((.*)\)", re.DOTALL)


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if its arguments give the same value as the reference. Raises SandboxUnavailable."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """Verify responses: one finding per job, in order; equal answers to one question are run once."""
    answers = [boxed_literal(job.response, preset=preset) for job in jobs]
    keys = [(job.question.grading, job.question.answer, answer) for job, answer in zip(jobs, answers, strict=True)]
    trouble = code.canary() if any(answer is not None for answer in answers) else ""
    questions = {key: job.question for key, job in zip(keys, jobs, strict=True)}
    with ThreadPoolExecutor(max_workers=code.WORKERS) as pool:
        check = partial(_check_one, trouble=trouble)
        findings = dict(zip(questions, pool.map(check, [key[2] for key in questions], questions.values()), strict=True))
    return [findings[key] for key in keys]


def _check_one(answer: str | None, question: Question, *, trouble: str) -> Finding:
    if answer is None:
        return no_answer()
    call = _CALL.fullmatch(answer)
    args = value_of(f"({call.group(1) if call else answer},)")
    if not isinstance(args, tuple):
        return wrong("no literals", answer)
    reference = value_of(f"({question.answer},)")
    if trouble or not isinstance(reference, tuple):
        return unverified(f"sandbox canary: {trouble}" if trouble else "unreadable reference", answer)
    program = Program(source=grading_of(question).program, kind="call", entry="f")
    try:
        reference_outcome, outcome = run(program, [Case(args=reference), Case(args=args)], LIMITS)
    except SandboxError as error:
        return unverified(f"sandbox: {error.message}", answer)
    if reference_outcome.status != Status.RETURNED:
        return unverified("reference failed", answer)
    if outcome.status != Status.RETURNED:
        return wrong("no value", answer)
    equal = same_value(outcome.value, reference_outcome.value)
    return correct("equal value", answer) if equal else wrong("other value", answer)
