"""Benchmark HumanEval+: complete a Python function; every base test and every added test must pass."""

from infuser_core.evaluation.benchmarks.parts import fields, program_tests
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, cache_folder, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.code_tests import store_tests
from infuser_core.verifiers.parts.grading import Grading

_TASK = "Complete this Python function. Give the whole function, with the imports that it needs.\n\n```python\n{}\n```"


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Rows of the hub have results; those of EvalPlus get the reference solution's."""
    has_results = fields.first_value(row, "base_input") is None
    tests = program_tests.tests_from_hf(row) if has_results else program_tests.tests_from_evalplus(row)
    path, sha256 = store_tests(tests, cache_folder("humaneval_plus"))
    return make_question(
        place,
        fields.read_text(row, "task_id"),
        _TASK.format(str(row["prompt"]).rstrip()),
        fields.read_text(row, "prompt") + "\n" + str(row["canonical_solution"]),
        domain="Python",
        grading=Grading(tests=str(path), tests_sha256=sha256),
    )


BENCHMARK = Benchmark(
    name="humaneval_plus",
    title="HumanEval+",
    category="coding",
    repos=("evalplus/humanevalplus",),
    revision="aa0d916268b1c17e84e881e9bd460508dd2fd308",
    # The data set has its one split in two formats.
    files=("data/test-*.parquet", "test.jsonl", "HumanEvalPlus*.jsonl"),
    rows=164,
    samples=8,
    max_tokens=16_384,
    verifier="code",
    fields=("task_id", "prompt", "canonical_solution", "entry_point", "test|base_input"),
    cached=True,
    read_row=read_row,
)
