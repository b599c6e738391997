"""Benchmark MATH500: five hundred competition problems with LaTeX answers."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question


def read_row(row: fields.Row, place: RowPlace) -> Question:
    r"""Make a question from a row. Its answer stays raw: the verifier reads bases, matrices, `10,\!080`, `\$18.90`."""
    return make_question(
        place,
        fields.read_text(row, "unique_id"),
        fields.read_text(row, "problem"),
        fields.read_text(row, "answer"),
        domain=fields.read_label(row, "subject"),
        subdomain=f"level {fields.read_label(row, 'level')}",
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
    read_row=read_row,
)
