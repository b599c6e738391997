"""Settings for building a document pool: a run's configuration with command options, or defaults without a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import merge, validate
from infuser_core.config.run import BenchmarkSettings, RunConfig
from infuser_core.errors import InfuserError, UsageError
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of

_QUESTIONS = {"type": "nano", "size": 1}
_ROLE = {"learning_rate": 0.0, "advantage": "mean_centred"}
DEFAULTS: dict[str, Any] = {
    "name": "corpus",
    "anchor": {"type": "nano"},
    "data": {"dev": {**_QUESTIONS, "split": "dev"}, "validation": {**_QUESTIONS, "split": "validation"}},
    "corpus": {"judge": {"type": "rules"}, "chunk": {"tokenizer": {"type": "rules"}}},
    "cotrain": {"generator": _ROLE, "solver": _ROLE},
}
"""Configuration of a build without --config: only `corpus` is used, no anchor is loaded and no question is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Settings for building a document pool, and the data with which it is compared."""

    config: RunConfig
    """Configuration in which every source is a separate group, so that only changed sources are built again."""
    sets: frozenset[str]
    """The question sets among `dev` and `validation` with which the pool is compared."""
    absent: dict[str, str]
    """Question sets with which the pool should be compared but that are not available, with the reason."""
    audited: bool
    """Whether to audit the pool for overlaps; true if there is a configuration."""


def build_settings(config: RunConfig | None, *, judge: str = "") -> BuildSettings:
    """Make the settings of a build; without a configuration they are DEFAULTS, and `judge` overrides the judge.

    Raises UsageError for an unknown judge.
    """
    corpus: dict[str, Any] = {"group": 1}
    if judge:
        corpus["judge"] = judge_source(judge)
    values = config.model_dump(mode="json") if config else DEFAULTS
    merged = validate(merge(values, {"corpus": corpus}))
    if not config:
        return BuildSettings(config=merged, sets=frozenset(), absent={}, audited=False)
    return _without_absent_sets(merged)


def _without_absent_sets(config: RunConfig) -> BuildSettings:
    """Remove question sets that are not available from the settings, and list them for the report."""
    absent: dict[str, str] = {}
    benchmarks: list[BenchmarkSettings] = []
    for benchmark in config.evaluate.benchmarks:
        try:
            find_benchmark(benchmark.name)(benchmark)
            benchmarks.append(benchmark)
        except InfuserError as error:
            absent[f"benchmark {benchmark.label or benchmark.name}"] = error.message
    sets: set[str] = set()
    for name, source in (("dev", config.data.dev), ("validation", config.data.validation)):
        try:
            content_of(source, evaluated=benchmarks)
            sets.add(name)
        except InfuserError as error:
            absent[name] = error.message
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"benchmarks": benchmarks})})
    return BuildSettings(config=config, sets=frozenset(sets), absent=absent, audited=True)


def judge_source(text: str) -> dict[str, Any]:
    """Parse the option --judge (none, rules, openai:MODEL@URL, or a model's folder) into settings."""
    if text in ("none", "rules"):
        return {"type": text}
    if text.startswith("openai:"):
        from infuser_core.engines.endpoint import parse_address

        address = parse_address(text)
        return {"type": "endpoint", "model": address.model, "url": address.url}
    if (Path(text) / "config.json").is_file():
        return {"type": "folder", "path": text}
    raise UsageError(
        f"--judge {text}: unknown", hint="none, rules, openai:MODEL@http://host:port/v1, or a model folder"
    )
