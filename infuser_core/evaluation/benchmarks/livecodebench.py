"""Benchmark LiveCodeBench: contest problems from May 2023 to January 2025 (files v1 to v5 of the lite set)."""

import re

from infuser_core.evaluation.benchmarks.parts import fields, program_tests
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, cache_folder, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.code_tests import store_tests
from infuser_core.verifiers.parts.grading import Grading

FIRST, LAST = "2023-05-01", "2025-01-31"
"""First and last contest day, both included: with bounds at midnight, the last day would be lost."""
_STARTED = "{}\n\nWrite Python that starts from this code and keeps its names:\n\n```python\n{}\n```"
_PROGRAM = "{}\n\nWrite a Python program that reads standard input and writes the answer to standard output."


def read_row(row: fields.Row, place: RowPlace) -> Question | None:
    """Make a question from a row and write its tests to a file; None for a contest outside of the benchmark's days."""
    day = fields.read_text(row, "contest_date")[:10]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        raise fields.refuse("contest_date", "a date like 2024-05-31", day)
    if not FIRST <= day <= LAST:
        return None
    path, sha256 = store_tests(program_tests.tests_from_livecode(row), cache_folder("livecodebench"))
    text, starter = fields.read_text(row, "question_content"), fields.read_label(row, "starter_code")
    return make_question(
        place,
        fields.read_text(row, "question_id"),
        _STARTED.format(text, starter) if starter else _PROGRAM.format(text),
        "",
        domain=fields.read_label(row, "platform"),
        subdomain=fields.read_label(row, "difficulty"),
        grading=Grading(tests=str(path), tests_sha256=sha256),
    )


BENCHMARK = Benchmark(
    name="livecodebench",
    title="LiveCodeBench",
    category="coding",
    repos=("livecodebench/code_generation_lite",),
    revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    # 4.35 GB in five files; the sixth has later contests.
    files=("test.jsonl test[2-5].jsonl",),
    rows=880,
    samples=2,
    max_tokens=16_384,
    verifier="code",
    fields=("question_id", "question_content", "contest_date", "public_test_cases", "private_test_cases", "metadata"),
    cached=True,
    read_row=read_row,
)
