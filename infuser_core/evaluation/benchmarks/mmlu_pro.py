"""Benchmark MMLU-Pro: graduate-level multiple choice with up to ten options."""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import Question

PADDING = "N/A"
"""Option that some revisions fill short lists with."""


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row whose letter and index agree. Padding is removed; the letter moves with its option."""
    choices = fields.read_choices(row, "options", fewest=2)
    letter = fields.read_letter(row, "answer", choices)
    index = row["answer_index"]
    if index != LETTERS.index(letter):
        raise fields.refuse("answer_index", f"{LETTERS.index(letter)}, as the answer is {letter}", index)
    real = [number for number, choice in enumerate(choices) if choice != PADDING or number == index]
    if len(real) < 2:
        raise fields.refuse("options", "at least 2 real choices", choices)
    return make_question(
        place,
        fields.read_text(row, "question_id"),
        fields.read_text(row, "question"),
        LETTERS[real.index(index)],
        choices=[choices[number] for number in real],
        domain=fields.read_label(row, "category"),
    )


BENCHMARK = Benchmark(
    name="mmlu_pro",
    title="MMLU-Pro",
    category="general",
    repos=("TIGER-Lab/MMLU-Pro",),
    # The revision with 12,032 rows; an earlier one has 12,187.
    revision="3373e0b32277875b8db2aa555a333b78a08477ea",
    files=("data/test-*.parquet",),
    rows=12_032,
    verifier="choice",
    fields=("question_id", "question", "options", "answer", "answer_index", "category"),
    read_row=read_row,
)
