"""MMLU-Pro: graduate-level multiple choice with up to ten options."""

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question

PADDING = "N/A"
"""Option that some revisions fill short lists with."""


def read(row: fields.Row, place: Place) -> Question:
    """Letter and index must agree; only then the padding goes, and the letter moves with its option."""
    choices = fields.options(row, "options", fewest=2)
    letter = fields.letter(row, "answer", choices)
    index = row["answer_index"]
    if index != LETTERS.index(letter):
        raise fields.refuse("answer_index", f"{LETTERS.index(letter)}, as the answer is {letter}", index)
    real = [number for number, choice in enumerate(choices) if choice != PADDING or number == index]
    if len(real) < 2:
        raise fields.refuse("options", "at least 2 real choices", choices)
    return question(
        place,
        fields.text(row, "question_id"),
        fields.text(row, "question"),
        LETTERS[real.index(index)],
        choices=[choices[number] for number in real],
        domain=fields.label(row, "category"),
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
    read=read,
)
