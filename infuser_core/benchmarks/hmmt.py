"""HMMT: the final-answer problems of February 2025, November 2025 and February 2026."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading


def read(row: fields.Row, place: Place) -> Question:
    """Problems are numbered anew in every contest: the identifier starts with the contest."""
    answer = fields.without_dollars(fields.text(row, "answer"))
    return question(
        place,
        f"{place.source}-{fields.text(row, 'problem_idx')}",
        fields.text(row, "problem"),
        answer,
        domain=fields.label(row, "problem_type"),
        subdomain=place.source,
        grading=Grading(multiple=len(fields.listed(answer)) > 1),
    )


BENCHMARK = Benchmark(
    name="hmmt",
    title="HMMT",
    category="math",
    repos=("MathArena/hmmt_feb_2025", "MathArena/hmmt_nov_2025", "MathArena/hmmt_feb_2026"),
    split="train",
    files=("data/train-*.parquet", "hmmt_*.parquet", "hmmt_*.jsonl"),
    # 30 + 30 + 33.
    rows=93,
    samples=32,
    verifier="math",
    fields=("problem_idx", "problem", "answer"),
    read=read,
)
