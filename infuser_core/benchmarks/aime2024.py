"""AIME 2024, parts I and II, as one data set; and the reader of every year's rows."""

import re

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, RowReader, question
from infuser_core.schemas import Question
from infuser_core.verifiers import integer
from infuser_core.verifiers.parts.grading import Grading

AIME_PROBLEM = "problem|Problem|question"
AIME_ANSWER = "answer|Answer"
_YEAR = re.compile(r"(?:^|[^\d])(20[012]\d)(?:[^\d]|$)")


def aime_reader(name: str, year: int) -> RowReader:
    """A reader of that year's rows; rows of another year, where a row tells, are not part of the benchmark."""

    def read(row: fields.Row, place: Place) -> Question | None:
        told = fields.label(row, "year") or fields.label(row, "url") or fields.label(row, "ID")
        found = _YEAR.search(told)
        if found and int(found.group(1)) != year:
            return None
        text = fields.text(row, AIME_PROBLEM)
        own = fields.label(row, "id|ID|problem_idx") if "ID" in row or "year" in row else ""
        return question(
            own or f"{name}-{fields.tag(text)}",
            text,
            str(_whole(row)),
            verifier="integer",
            domain="AIME",
            subdomain=str(year),
            grading=Grading(route=name),
        )

    return read


def _whole(row: fields.Row) -> int:
    r"""The key as a number: it comes as `33`, "033", "33.0" or `33^\circ`."""
    written = fields.text(row, AIME_ANSWER)
    found = integer.value(written)
    if found is None:
        raise fields.refuse(AIME_ANSWER, "an integer from 0 to 999", written)
    return found


BENCHMARK = Benchmark(
    name="aime2024",
    title="AIME2024",
    category="math",
    repos=("HuggingFaceH4/aime_2024",),
    split="train",
    revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    files=("data/train-*.parquet", "aime_2024_problems.parquet", "*.jsonl"),
    rows=30,
    samples=32,
    verifier="integer",
    fields=(AIME_PROBLEM, AIME_ANSWER),
    read=aime_reader("aime2024", 2024),
)
