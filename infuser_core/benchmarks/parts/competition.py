"""Rows of the competition data sets: AIME's integers, and OlympiadBench's answers with units and tolerances."""

import re
import warnings

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import DataWarning, Place, RowReader, question
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


OLYMPIAD_FIELDS = ("id", "subfield", "question", "final_answer", "is_multiple_answer", "unit", "answer_type", "error")
_TOLERANCE = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def olympiad_reader(name: str) -> RowReader:
    """A reader of one half's rows."""

    def read(row: fields.Row, place: Place) -> Question:
        context, text = fields.label(row, "context"), fields.text(row, "question")
        answer = _answer(row)
        several = _several(row)
        return question(
            fields.text(row, "id"),
            f"{context}\n\n{text}" if context else text,
            answer,
            verifier="math",
            domain=fields.label(row, "subfield"),
            grading=Grading(
                route=name,
                answer_type=_listed(fields.label(row, "answer_type").lower()),
                multiple=several,
                tolerance=_tolerance(name, row),
                unit=fields.without_dollars(fields.label(row, "unit")),
            ),
        )

    return read


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
