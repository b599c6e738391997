"""MedXpertQA, the text subset: expert-level medicine with ten options."""

import re

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question

_LISTED = re.compile(r"\s*Answer Choices:\s*\(A\)(?:(?!Answer Choices:).)*\Z", re.DOTALL)


def read(row: fields.Row, place: Place) -> Question:
    """Some texts end with the list of options, which the prompt adds itself: it is cut off."""
    choices = fields.options(row, "options", fewest=2)
    return question(
        place,
        fields.text(row, "id"),
        _LISTED.sub("", fields.text(row, "question")),
        fields.letter(row, "label", choices),
        choices=choices,
        domain=fields.label(row, "medical_task"),
        subdomain=fields.label(row, "body_system"),
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
    read=read,
)
