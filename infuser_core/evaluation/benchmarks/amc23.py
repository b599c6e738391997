"""Benchmark AMC 2023: the forty problems of AMC 12 A and B, answered by a number instead of a letter."""

import re

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question

_WHOLE = re.compile(r"-?\d+(\.0+)?")


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row; its answer is a whole number, written as `27.0`."""
    text, key = fields.read_text(row, "question|problem"), fields.read_text(row, "answer")
    if not _WHOLE.fullmatch(key):
        raise fields.refuse("answer", "a whole number", key)
    return make_question(
        place, f"amc23-{fields.row_tag(text)}", text, key.partition(".")[0], domain="AMC", subdomain="2023"
    )


BENCHMARK = Benchmark(
    name="amc23",
    title="AMC2023",
    category="math",
    repos=("zwhe99/amc23",),
    files=("data/test-*.parquet", "test.jsonl"),
    rows=40,
    samples=32,
    verifier="math",
    fields=("question|problem", "answer"),
    read_row=read_row,
)
