"""Benchmark MedQA: questions of the United States medical licensing examination with four options."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row of the version with four options; rows of the version with five are refused."""
    text = fields.read_text(row, "question")
    choices = fields.read_choices(row, "options", fewest=4, most=4)
    letter = fields.read_letter(row, "answer_idx", choices)
    fields.check_answer_text(row, "answer", choices, letter)
    return make_question(
        place,
        f"medqa-{fields.row_tag(text, *choices)}",
        text,
        letter,
        choices=choices,
        domain=fields.read_label(row, "meta_info"),
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
    read_row=read_row,
)
