"""Benchmark HMMT: the final-answer problems of February 2025, November 2025 and February 2026."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Its identifier starts with the contest, because each contest numbers from 1."""
    answer = fields.strip_dollars(fields.read_text(row, "answer"))
    return make_question(
        place,
        f"{place.source}-{fields.read_text(row, 'problem_idx')}",
        fields.read_text(row, "problem"),
        answer,
        domain=fields.read_label(row, "problem_type"),
        subdomain=place.source,
        grading=Grading(multiple=len(fields.split_commas(answer)) > 1),
    )


BENCHMARK = Benchmark(
    name="hmmt",
    title="HMMT",
    category="math",
    repos=("MathArena/hmmt_feb_2025", "MathArena/hmmt_nov_2025", "MathArena/hmmt_feb_2026"),
    split="train",
    files=("data/train-*.parquet", "hmmt_*.parquet", "hmmt_*.jsonl"),
    # Three contests with 30 + 30 + 33 problems.
    rows=93,
    samples=32,
    verifier="math",
    fields=("problem_idx", "problem", "answer"),
    read_row=read_row,
)
