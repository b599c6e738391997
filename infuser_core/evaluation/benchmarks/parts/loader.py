"""Find benchmarks by name: load their questions, and read what their modules declare."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from infuser_core.config.run import BenchmarkSettings, RunConfig
from infuser_core.errors import ConfigError, closest_names, did_you_mean
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.plugins import BENCHMARKS
from infuser_core.schemas import Question

Load = Callable[[BenchmarkSettings], list[Question]]
"""Function that loads a benchmark's questions."""
_LISTED = 40


def find_benchmark(name: str) -> Load:
    """The function that loads the benchmark called `name`: the questions of the domains that its settings name.

    Raises ConfigError listing what exists if there is none.
    """
    _, plugin = BENCHMARKS.find(name, "load", "BENCHMARK")
    load = cast(Load, getattr(plugin, "load", plugin))
    return lambda settings: only_domains(load(settings), settings)


def find_draw(settings: BenchmarkSettings) -> Callable[[int], list[Question]] | None:
    """The function that draws a generated benchmark's questions by seed, 0 for its own; None for other benchmarks."""
    spec = describe_benchmark(settings.name)
    _, load = BENCHMARKS.find(settings.name, "load", "BENCHMARK")
    return partial(load, settings) if spec and spec.generated else None


def only_domains(questions: Sequence[Question], settings: BenchmarkSettings) -> list[Question]:
    """The questions of the domains or subdomains that the settings name, or all.

    Raises ConfigError listing what there is for a name that no question has.
    """
    if not settings.only:
        return list(questions)
    requested = {name.casefold(): name for name in settings.only}
    available = {part.casefold(): part for row in questions for part in (row.domain, row.subdomain) if part}
    for folded, name in requested.items():
        if folded not in available:
            listed = ", ".join(sorted(available.values())[:_LISTED]) or "none at all"
            raise ConfigError(
                f"{settings.name} has no domain or subdomain {name!r}",
                hint=f"{did_you_mean(closest_names(name, available.values()))}there are {listed}",
            )
    return [row for row in questions if requested.keys() & {row.domain.casefold(), row.subdomain.casefold()}]


def describe_benchmark(name: str) -> Benchmark | None:
    """The description `BENCHMARK` in a benchmark's module, or None if it has none."""
    module, _ = BENCHMARKS.find(name, "load", "BENCHMARK")
    return cast(Benchmark | None, getattr(module, "BENCHMARK", None))


def longest_sequence(config: RunConfig) -> int:
    """Prompt and response tokens of the longest sequence that a run samples, its benchmarks included."""
    cotrain = config.cotrain
    limits = [cotrain.generator_tokens, cotrain.solver_tokens]
    for benchmark in config.evaluate.benchmarks:
        description = describe_benchmark(benchmark.name)
        limits.append(benchmark.max_tokens or (description.max_tokens if description else None) or 0)
    return cotrain.prompt_tokens + max(limits)
