"""Example of a benchmark: multiple-choice questions, one JSON object per line: question, choices, answer letter."""

import json
from pathlib import Path

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.schemas import Question

BENCHMARK = Benchmark(name="my_benchmark", title="My questions", category="other", repos=(), verifier="choice")


def load(settings: BenchmarkSettings) -> list[Question]:
    """The questions of the file that the configuration names."""
    lines = Path(settings.path).read_text(encoding="utf-8").splitlines()
    return [_question(number, json.loads(line)) for number, line in enumerate(lines)]


def _question(number: int, row: dict[str, str | list[str]]) -> Question:
    return Question(
        question_id=f"my-{number}",
        text=str(row["question"]),
        choices=list(row["choices"]),
        answer=str(row["answer"]),
        verifier="choice",
        domain="",
        subdomain="",
    )
