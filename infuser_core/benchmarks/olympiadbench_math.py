"""OlympiadBench, mathematics: English competition problems without figures; answers with units and tolerances."""

import re
import warnings

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.errors import DataWarning
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading

FIELDS = ("id", "subfield", "question", "final_answer", "is_multiple_answer", "unit", "answer_type", "error")
_TOLERANCE = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def read(row: fields.Row, place: Place) -> Question:
    """A row of either half; what stands before several questions is part of each of them."""
    context, text = fields.label(row, "context"), fields.text(row, "question")
    return question(
        place,
        fields.text(row, "id"),
        f"{context}\n\n{text}" if context else text,
        _answer(row),
        domain=fields.label(row, "subfield"),
        grading=Grading(
            answer_type=_listed(fields.label(row, "answer_type").lower()),
            multiple=_several(row),
            tolerance=_tolerance(place.benchmark.name, row),
            unit=fields.without_dollars(fields.label(row, "unit")),
        ),
    )


def _answer(row: fields.Row) -> str:
    """Several answers are one text parted by commas, at times with marks of mathematics in the wrong places."""
    found = fields.value(row, "final_answer")
    written = [str(part) for part in found] if isinstance(found, list | tuple) else [found] if found else []
    answer = ", ".join(part for text in written for part in _clean(str(text), several=_several(row)))
    if not answer:
        raise fields.refuse("final_answer", "a list with the answer", found)
    return answer


def _clean(text: str, *, several: bool) -> list[str]:
    bare = fields.without_dollars(text)
    # Known to be several, `339,508` is no number.
    return fields.listed(bare, grouped=False) if several else [bare] if bare else []


def _several(row: fields.Row) -> bool:
    found = row["is_multiple_answer"]
    if not isinstance(found, bool | str | int) and found is not None:
        raise fields.refuse("is_multiple_answer", "true or false", found)
    return str(found).strip().lower() in ("true", "1")


def _tolerance(name: str, row: fields.Row) -> str:
    written = _listed(fields.label(row, "error"))
    if all(not part or _TOLERANCE.fullmatch(part) for part in written.split(",")):
        return written
    number = fields.label(row, "id")
    warnings.warn(f"{name}: question {number}: tolerance {written!r} is no number: exact", DataWarning, stacklevel=2)
    return ""


def _listed(text: str) -> str:
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
    read=read,
)
