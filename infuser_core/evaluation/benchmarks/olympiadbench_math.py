"""Benchmark OlympiadBench, mathematics: English problems without figures; answers may have units and tolerances."""

import re
import warnings

from infuser_core.errors import DataWarning
from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading

FIELDS = ("id", "subfield", "question", "final_answer", "is_multiple_answer", "unit", "answer_type", "error")
_TOLERANCE = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def read_row(row: fields.Row, place: RowPlace) -> Question:
    """Make a question from a mathematics or physics row. A context of several questions precedes each of them."""
    context, text = fields.read_label(row, "context"), fields.read_text(row, "question")
    multiple = row["is_multiple_answer"]
    if not isinstance(multiple, bool | str | int) and multiple is not None:
        raise fields.refuse("is_multiple_answer", "true or false", multiple)
    has_several = str(multiple).strip().lower() in ("true", "1")
    return make_question(
        place,
        fields.read_text(row, "id"),
        f"{context}\n\n{text}" if context else text,
        _read_answer(row, has_several=has_several),
        domain=fields.read_label(row, "subfield"),
        grading=Grading(
            answer_type=_trim_parts(fields.read_label(row, "answer_type").lower()),
            multiple=has_several,
            tolerance=_read_tolerance(place.benchmark.name, row),
            unit=fields.strip_dollars(fields.read_label(row, "unit")),
        ),
    )


def _read_answer(row: fields.Row, *, has_several: bool) -> str:
    """The answers of a row as one text: several are separated by commas, without misplaced dollar signs."""
    value = fields.first_value(row, "final_answer")
    items = value if isinstance(value, list | tuple) else [value] if value else []
    texts = [fields.strip_dollars(str(item)) for item in items]
    # If a row has several answers, `339,508` is two of them and no number.
    parts = [part for text in texts for part in (fields.split_commas(text, grouped=False) if has_several else [text])]
    answer = ", ".join(filter(None, parts))
    if not answer:
        raise fields.refuse("final_answer", "a list with the answer", value)
    return answer


def _read_tolerance(name: str, row: fields.Row) -> str:
    tolerance = _trim_parts(fields.read_label(row, "error"))
    if all(not part or _TOLERANCE.fullmatch(part) for part in tolerance.split(",")):
        return tolerance
    number = fields.read_label(row, "id")
    warnings.warn(f"{name}: question {number}: tolerance {tolerance!r} is no number: exact", DataWarning, stacklevel=2)
    return ""


def _trim_parts(text: str) -> str:
    return ",".join(part.strip() for part in text.split(","))


BENCHMARK = Benchmark(
    name="olympiadbench_math",
    title="OlympiadBench (Math)",
    category="math",
    repos=("Hothan/OlympiadBench",),
    split="train",
    files=("*OE_TO_maths_en_COMP*.parquet", "*OE_TO_maths_en_COMP*.json", "*OE_TO_maths_en_COMP*.jsonl"),
    rows=674,
    verifier="math",
    fields=FIELDS,
    read_row=read_row,
)
