"""Settings of a corpus build: a run's configuration with the command's options, or defaults that need no model."""

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
    "corpus": {"judge": {"type": "none"}, "chunk": {"tokenizer": {"type": "rules"}}},
    "cotrain": {"generator": _ROLE, "solver": _ROLE},
}
"""A configuration of which a build without one uses the corpus alone: no anchor is loaded, no question is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Settings of a pool's build."""

    config: RunConfig
    """The configuration; every source is a group of its own, so that a changed one is done alone."""
    sets: frozenset[str]
    """Of `dev` and `validation`, those that the pool is compared with."""
    absent: dict[str, str]
    """Question sets that the pool should be compared with and that cannot be had, with the reason."""
    audited: bool
    """Whether a configuration asks for an overlap audit."""


def build_settings(config: RunConfig | None, *, judge: str = "") -> BuildSettings:
    """The settings of a build; `judge` wins over the configuration.

    Raises UsageError for a judge that is none.
    """
    corpus: dict[str, Any] = {"group": 1}
    if judge:
        corpus["judge"] = judge_source(judge)
    own = config.model_dump(mode="json") if config else DEFAULTS
    merged = validate(merge(own, {"corpus": corpus}))
    return _present(merged) if config else BuildSettings(config=merged, sets=frozenset(), absent={}, audited=False)


def _present(config: RunConfig) -> BuildSettings:
    """Without the question sets that cannot be had: they are named in the report, and not compared with."""
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
    """A judge as a command names it: none, rules, openai:MODEL@URL, or a model's folder."""
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
