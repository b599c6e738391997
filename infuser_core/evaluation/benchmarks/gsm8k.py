"""Benchmark GSM8K: word problems of elementary arithmetic with whole numbers as answers."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question

MARK = "####"
"""Separates the worked solution from the answer."""


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Its answer is the number after the mark, with or without thousands separators."""
    text, solution = fields.read_text(row, "question"), fields.read_text(row, "answer")
    answer = solution.rpartition(MARK)[2].strip()
    if MARK not in solution or not answer:
        raise fields.refuse("answer", f"a solution that ends in {MARK} and the answer", solution)
    return make_question(place, f"gsm8k-{fields.row_tag(text)}", text, answer.replace(",", ""), domain="Word problems")


BENCHMARK = Benchmark(
    name="gsm8k",
    title="GSM8K",
    category="math",
    repos=("openai/gsm8k",),
    files=("main/test-*.parquet", "test.jsonl"),
    rows=1_319,
    verifier="math",
    fields=("question", "answer"),
    read_row=read_row,
)
