"""Held-out programs of the wide micro-world: expressions whose value depends on the order of operations."""

from infuser_core.benchmarks.parts.spec import Benchmark
from infuser_core.config.run import BenchmarkSettings
from infuser_core.nano import programs
from infuser_core.schemas import Question

NUM_QUESTIONS = 200
BENCHMARK = Benchmark(
    name="nano_programs",
    title="Nano (programs)",
    category="nano",
    repos=(),
    rows=NUM_QUESTIONS,
    verifier="integer",
)


def load(settings: BenchmarkSettings) -> list[Question]:
    """200 expressions of the test split, answered by their value; the same whatever `world` says."""
    return programs.questions("test", NUM_QUESTIONS, 0)
