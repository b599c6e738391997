"""Minerva Math: problems of science courses at MIT; answers are numbers, formulas and equations, compared exactly."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.extract import last_box


def read(row: fields.Row, place: Place) -> Question:
    """Some copies have the answer in its solution's box alone."""
    text = fields.text(row, "problem")
    answer = fields.label(row, "answer") or last_box(fields.text(row, "solution"))
    if answer is None:
        raise fields.refuse("solution", "a boxed answer", row["solution"])
    return question(
        place,
        f"minerva-{fields.tag(text)}",
        text,
        fields.without_dollars(answer),
        domain=fields.label(row, "type").partition(" (")[0] or "Science",
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
    read=read,
)
