"""AIME 2024, parts I and II, as one data set; and the reader of every year's rows."""

import re

from infuser_core.benchmarks.parts import fields
from infuser_core.benchmarks.parts.spec import Benchmark, Place, question
from infuser_core.schemas import Question
from infuser_core.verifiers import integer

_PROBLEM = "problem|Problem|question"
_ANSWER = "answer|Answer"
_YEAR = re.compile(r"(?:^|[^\d])(20[012]\d)(?:[^\d]|$)")


def read(row: fields.Row, place: Place) -> Question | None:
    r"""A row of the benchmark's year, or None where it tells another; its key is `33`, "033", "33.0" or `33^\circ`."""
    name = place.benchmark.name
    year = name.removeprefix("aime")
    told = fields.label(row, "year") or fields.label(row, "url") or fields.label(row, "ID")
    found = _YEAR.search(told)
    if found and found.group(1) != year:
        return None
    text, written = fields.text(row, _PROBLEM), fields.text(row, _ANSWER)
    key = integer.parse_integer(written)
    if key is None:
        raise fields.refuse(_ANSWER, "an integer from 0 to 999", written)
    own = fields.label(row, "id|ID|problem_idx") if "ID" in row or "year" in row else ""
    return question(place, own or f"{name}-{fields.tag(text)}", text, str(key), domain="AIME", subdomain=year)


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
    fields=(_PROBLEM, _ANSWER),
    read=read,
)
