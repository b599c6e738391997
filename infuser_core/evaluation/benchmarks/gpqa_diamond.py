"""Benchmark GPQA, the Diamond subset: expert-written questions; the order of options is drawn per question."""

import random

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import Question

_ANSWERS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def answer_order(name: str, *, count: int = len(_ANSWERS)) -> list[int]:
    """Random order of a question's answers (0 is the right one), seeded by its identifier alone, as by the authors."""
    places = list(range(count))
    random.Random(f"None:{name}").shuffle(places)
    return places


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. The right answer is tracked by position: two answers may have the same text."""
    text = _clean(row, "Question")
    name = fields.read_text(row, "Record ID") if fields.first_value(row, "Record ID") else fields.row_tag(text)
    places = answer_order(name)
    return make_question(
        place,
        name,
        text,
        LETTERS[places.index(0)],
        choices=[_clean(row, _ANSWERS[number]) for number in places],
        domain=fields.read_label(row, "High-level domain"),
        subdomain=fields.read_label(row, "Subdomain"),
    )


def _clean(row: fields.Row, name: str) -> str:
    return fields.read_text(row, name).replace(" [title]", ". ").strip()


BENCHMARK = Benchmark(
    name="gpqa_diamond",
    title="GPQA-Diamond",
    category="general",
    repos=("Idavidrein/gpqa",),
    split="train",
    files=("gpqa_diamond.csv", "gpqa_diamond/*.parquet", "gpqa_diamond*.parquet", "gpqa_diamond*.jsonl"),
    gated=True,
    rows=198,
    samples=5,
    verifier="choice",
    fields=("Question", *_ANSWERS),
    read_row=read_row,
)
