"""Benchmark MedXpertQA, the text subset: expert-level medical questions with ten options."""

import re

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question

_LISTED = re.compile(r"\s*Answer Choices:\s*\(A\)(?:(?!Answer Choices:).)*\Z", re.DOTALL)


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a row. A list of options at the end of its text is removed: the prompt adds it."""
    choices = fields.read_choices(row, "options", fewest=2)
    return make_question(
        place,
        fields.read_text(row, "id"),
        _LISTED.sub("", fields.read_text(row, "question")),
        fields.read_letter(row, "label", choices),
        choices=choices,
        domain=fields.read_label(row, "medical_task"),
        subdomain=fields.read_label(row, "body_system"),
    )


BENCHMARK = Benchmark(
    name="medxpertqa",
    title="MedXpertQA",
    category="medical",
    repos=("TsinghuaC3I/MedXpertQA",),
    revision="7e7c465a68eb2b866926bfa59c8c9d17a8daba65",
    files=("Text/test.jsonl", "Text/test-*.parquet"),
    rows=2_450,
    verifier="choice",
    fields=("id", "question", "options", "label", "medical_task", "body_system"),
    read_row=read_row,
)
