"""Benchmark of held-out test questions on the target topics of a micro-world."""

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.nano import world
from infuser_core.schemas import Question

NUM_QUESTIONS = 400
BENCHMARK = Benchmark(
    name="nano_target",
    title="Nano (target)",
    category="nano",
    repos=(),
    rows=NUM_QUESTIONS,
    generated=True,
    verifier="choice",
)


def load(settings: BenchmarkSettings, seed: int = 0) -> list[Question]:
    """Load 400 questions on operand pairs that no textbook, dev or validation question uses."""
    micro_world = world.world_of(settings.world)
    return world.draw_questions("test", micro_world.target, NUM_QUESTIONS, seed, micro_world)
