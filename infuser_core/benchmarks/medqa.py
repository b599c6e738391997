"""MedQA: questions of the United States medical licensing examination with four options."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question


def read(row: fields.Row, place: Place) -> Question:
    """The set with five options has as many rows and is refused."""
    text = fields.text(row, "question")
    choices = fields.options(row, "options", fewest=4, most=4)
    letter = fields.letter(row, "answer_idx", choices)
    fields.agree(row, "answer", choices, letter)
    return question(
        place,
        f"medqa-{fields.tag(text, *choices)}",
        text,
        letter,
        choices=choices,
        domain=fields.label(row, "meta_info"),
    )


BENCHMARK = Benchmark(
    name="medqa",
    title="MedQA",
    category="medical",
    repos=("GBaker/MedQA-USMLE-4-options",),
    revision="0fb93dd23a7339b6dcd27e241cb9b5eca62d4d18",
    files=("phrases_no_exclude_test.jsonl", "data/test-*.parquet"),
    rows=1_273,
    verifier="choice",
    fields=("question", "options", "answer_idx"),
    repeats=True,
    read=read,
)
