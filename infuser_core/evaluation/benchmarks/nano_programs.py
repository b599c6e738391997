"""Benchmark of held-out program tasks from the wide micro-world: deduction, abduction and induction about functions."""

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.nano import programs
from infuser_core.schemas import Question

NUM_QUESTIONS = 200
BENCHMARK = Benchmark(
    name="nano_programs",
    title="Nano (programs)",
    category="nano",
    repos=(),
    rows=NUM_QUESTIONS,
    generated=True,
)


def load(settings: BenchmarkSettings, seed: int = 0) -> list[Question]:
    """Load 200 questions of the test split, a third of each task; `world` does not change them."""
    return programs.draw_questions("test", NUM_QUESTIONS, seed)
