"""MATH500: five hundred competition problems with LaTeX answers."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question


def read(row: fields.Row, place: Place) -> Question:
    r"""The answer stays as it is written: text, matrices, bases, `10,\!080`, `\$18.90` are the verifier's."""
    return question(
        place,
        fields.text(row, "unique_id"),
        fields.text(row, "problem"),
        fields.text(row, "answer"),
        domain=fields.label(row, "subject"),
        subdomain=f"level {fields.label(row, 'level')}",
    )


BENCHMARK = Benchmark(
    name="math500",
    title="MATH500",
    category="math",
    repos=("HuggingFaceH4/MATH-500",),
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    files=("test.jsonl", "data/test-*.parquet"),
    rows=500,
    samples=4,
    verifier="math",
    fields=("problem", "answer", "subject", "level", "unique_id"),
    read=read,
)
