"""SuperGPQA: multiple choice over 285 graduate disciplines; the dev set is 800 of its Science questions."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question


def read(row: fields.Row, place: Place) -> Question:
    """The key is the letter; the written answer must be the text of that option."""
    choices = fields.options(row, "options", fewest=2)
    letter = fields.letter(row, "answer_letter", choices)
    fields.agree(row, "answer", choices, letter)
    return question(
        place,
        fields.text(row, "uuid"),
        fields.text(row, "question"),
        letter,
        choices=choices,
        domain=fields.label(row, "discipline"),
        subdomain=fields.label(row, "field"),
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
    read=read,
)
