"""What both years of the AIME share: integers from 0 to 999, in data sets that agree on nothing else."""

import re

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Place, RowReader, question
from infuser_core.schemas import Question
from infuser_core.verifiers import integer
from infuser_core.verifiers.parts.grading import Grading

PROBLEM = "problem|Problem|question"
ANSWER = "answer|Answer"
_YEAR = re.compile(r"(?:^|[^\d])(20[012]\d)(?:[^\d]|$)")


def reader(name: str, year: int) -> RowReader:
    """A reader of that year's rows; rows of another year, where a row tells, are not part of the benchmark."""

    def read(row: fields.Row, place: Place) -> Question | None:
        told = fields.label(row, "year") or fields.label(row, "url") or fields.label(row, "ID")
        found = _YEAR.search(told)
        if found and int(found.group(1)) != year:
            return None
        text = fields.text(row, PROBLEM)
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
    written = fields.text(row, ANSWER)
    found = integer.value(written)
    if found is None:
        raise fields.refuse(ANSWER, "an integer from 0 to 999", written)
    return found
