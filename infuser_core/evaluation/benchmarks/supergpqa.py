"""Benchmark SuperGPQA: multiple choice over 285 graduate disciplines; the dev set is 800 of its Science questions."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Its answer is a letter; the written answer must be the text of that option."""
    choices = fields.read_choices(row, "options", fewest=2)
    letter = fields.read_letter(row, "answer_letter", choices)
    fields.check_answer_text(row, "answer", choices, letter)
    return make_question(
        place,
        fields.read_text(row, "uuid"),
        fields.read_text(row, "question"),
        letter,
        choices=choices,
        domain=fields.read_label(row, "discipline"),
        subdomain=fields.read_label(row, "field"),
    )


BENCHMARK = Benchmark(
    name="supergpqa",
    title="SuperGPQA",
    category="general",
    repos=("m-a-p/SuperGPQA",),
    split="train",
    files=("SuperGPQA-all.jsonl", "data/train-*.parquet"),
    rows=26_529,
    verifier="choice",
    fields=("uuid", "question", "options", "answer", "answer_letter", "discipline", "field"),
    repeats=True,
    read_row=read_row,
)
