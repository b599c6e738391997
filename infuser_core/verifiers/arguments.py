"""Arguments of a function: right where the function, run in the sandbox, returns for them what it returns for the key.

The boxed arguments are Python literals with commas between them, with or without the call around them. The function is
`program` of the question's grading; presets choose the box as in `literal.py`.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from infuser_core.sandbox.program import Case, Limits, Program, SandboxError, Status
from infuser_core.sandbox.run import run
from infuser_core.schemas import Question
from infuser_core.verifiers import code
from infuser_core.verifiers.literal import value_of, written
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.code_tests import same_value
from infuser_core.verifiers.parts.grading import Finding, correct, grading_of, no_answer, unverified, wrong

RUNS_PROGRAMS = True
LIMITS = Limits(seconds=2.0, total_seconds=5.0, memory_mb=256, output_bytes=64 << 10, value_bytes=64 << 10, disk_mb=4)
"""Limits of a function that is called for a question or an answer."""
_CALL = re.compile(r"f\s*\((.*)\)", re.DOTALL)


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Correct when the boxed arguments lead to the value that the reference leads to. Raises SandboxUnavailable."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """One finding per job, in order; answers that several jobs share are run once."""
    answers = [written(job.response, preset=preset) for job in jobs]
    keys = [(job.question.grading, job.question.answer, found) for job, found in zip(jobs, answers, strict=True)]
    trouble = code.canary() if any(found is not None for found in answers) else ""
    different = {key: job.question for key, job in zip(keys, jobs, strict=True)}
    with ThreadPoolExecutor(max_workers=code.WORKERS) as pool:
        one = partial(_check, trouble=trouble)
        findings = dict(zip(different, pool.map(one, [key[2] for key in different], different.values()), strict=True))
    return [findings[key] for key in keys]


def _check(found: str | None, question: Question, *, trouble: str) -> Finding:
    if found is None:
        return no_answer()
    inner = _CALL.fullmatch(found)
    args = value_of(f"({inner.group(1) if inner else found},)")
    if not isinstance(args, tuple):
        return wrong("no literals", found)
    reference = value_of(f"({question.answer},)")
    if trouble or not isinstance(reference, tuple):
        return unverified(f"sandbox canary: {trouble}" if trouble else "unreadable reference", found)
    program = Program(source=grading_of(question).program, kind="call", entry="f")
    try:
        wanted, got = run(program, [Case(args=reference), Case(args=args)], LIMITS)
    except SandboxError as error:
        return unverified(f"sandbox: {error.message}", found)
    if wanted.status != Status.RETURNED:
        return unverified("reference failed", found)
    if got.status != Status.RETURNED:
        return wrong("no value", found)
    return correct("equal value", found) if same_value(got.value, wanted.value) else wrong("other value", found)
