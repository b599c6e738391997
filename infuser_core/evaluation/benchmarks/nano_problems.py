"""Benchmark of held-out free-form problems from the wide micro-world."""

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.nano import world
from infuser_core.schemas import Question

NUM_QUESTIONS = 400
BENCHMARK = Benchmark(
    name="nano_problems",
    title="Nano (problems)",
    category="nano",
    repos=(),
    rows=NUM_QUESTIONS,
    generated=True,
    verifier="integer",
)


def load(settings: BenchmarkSettings, seed: int = 0) -> list[Question]:
    """Load 400 problems on operand pairs of the test split, answered by a number; `world` does not change them."""
    return world.draw_problems("test", NUM_QUESTIONS, seed)
