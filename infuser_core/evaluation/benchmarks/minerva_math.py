"""Benchmark Minerva Math: problems of science courses at MIT; numbers, formulas and equations are compared exactly."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.extract import last_box


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Its answer may be given only in the LaTeX box of the solution."""
    text = fields.read_text(row, "problem")
    answer = fields.read_label(row, "answer") or last_box(fields.read_text(row, "solution"))
    if answer is None:
        raise fields.refuse("solution", "a boxed answer", row["solution"])
    return make_question(
        place,
        f"minerva-{fields.row_tag(text)}",
        text,
        fields.strip_dollars(answer),
        domain=fields.read_label(row, "type").partition(" (")[0] or "Science",
    )


BENCHMARK = Benchmark(
    name="minerva_math",
    title="Minerva Math",
    category="math",
    repos=("zwhe99/simplerl-minerva-math",),
    files=("data/test-*.parquet", "test.jsonl"),
    rows=272,
    verifier="math",
    fields=("problem", "answer|solution"),
    read_row=read_row,
)
