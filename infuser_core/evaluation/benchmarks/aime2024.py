"""Benchmark AIME 2024, parts I and II; its row reader also serves AIME 2025."""

import re

from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, RowPlace, make_question
from infuser_core.schemas import Question
from infuser_core.verifiers import integer

_PROBLEM = "problem|Problem|question"
_ANSWER = "answer|Answer"
_YEAR = re.compile(r"(?:^|[^\d])(20[012]\d)(?:[^\d]|$)")


def read_row(row: fields.Row, place: RowPlace) -> Question | None:
    r"""Make a question from a row; None for another year. Answers look like `33`, "033", "33.0" or `33^\circ`."""
    name = place.benchmark.name
    year = name.removeprefix("aime")
    dated = fields.read_label(row, "year") or fields.read_label(row, "url") or fields.read_label(row, "ID")
    match = _YEAR.search(dated)
    if match and match.group(1) != year:
        return None
    text, answer = fields.read_text(row, _PROBLEM), fields.read_text(row, _ANSWER)
    key = integer.parse_integer(answer)
    if key is None:
        raise fields.refuse(_ANSWER, "an integer from 0 to 999", answer)
    own = fields.read_label(row, "id|ID|problem_idx") if "ID" in row or "year" in row else ""
    return make_question(place, own or f"{name}-{fields.row_tag(text)}", text, str(key), domain="AIME", subdomain=year)


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
    read_row=read_row,
)
