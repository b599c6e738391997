"""Benchmark from a file in the layout of the paper's authors: a JSON list of rows that name their data source."""

from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import FileQuestions
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.schemas import Question

BENCHMARK = Benchmark(
    name="released",
    title="Released file",
    category="other",
    repos=(),
    fields=("question_id", "question_text", "ground_truth"),
)


def load(settings: BenchmarkSettings) -> list[Question]:
    """Load the questions of the file `settings.path`."""
    if not settings.path:
        raise ConfigError(f"benchmark {settings.label or settings.name}: no path", hint="name the benchmark's file")
    return load_questions(FileQuestions(type="file", path=settings.path, columns=settings.columns), seed=0)
