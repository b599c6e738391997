"""Benchmark BIG-Bench Extra Hard: 23 tasks with free-form answers, whose form each input prescribes.

Inputs of several tasks are longer than the prompt limit of 4,096 tokens; they count as wrong answers, unless
`evaluate.too_long` leaves them out. If a question has options, they are part of the input's text.
"""

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question

LETTERED, OPEN = "lettered", "open"
"""`subdomain` of questions whose target is a bracketed letter, and of all others."""


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. Its `domain` is the task: a column of the mirror, or the folder of `task.json`."""
    text, target = fields.read_text(row, "input"), fields.read_text(row, "target")
    task = (fields.read_label(row, "task") or place.source).removeprefix("bbeh_").replace(" ", "_")
    return make_question(
        place,
        f"{task}-{fields.row_tag(text, target)}",
        text,
        target,
        domain=task,
        subdomain=LETTERED if target.startswith("(") else OPEN,
    )


BENCHMARK = Benchmark(
    name="bbeh",
    title="BBEH",
    category="general",
    repos=("BBEH/bbeh",),
    split="train",
    files=("bbeh_*/task.json", "data/train-*.parquet", "*.parquet", "*.jsonl", "*.csv"),
    # 22 tasks of 200 and one of 120. The paper's numbers fit 4,494: probably without the inputs that are too long.
    rows=4_520,
    verifier="bbeh",
    fields=("input", "target"),
    repeats=True,
    read_row=read_row,
)
