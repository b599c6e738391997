"""Plan of an evaluation: its settings, its benchmarks, and the identity that saved answers belong to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from infuser_core.config import overlays
from infuser_core.config.run import BenchmarkSettings, EngineSettings, RunConfig, SamplingSettings
from infuser_core.config.sources import Settings
from infuser_core.errors import ConfigError
from infuser_core.phases.answering import solver_templates, template_digest
from infuser_core.phases.respond import Ask, Key
from infuser_core.schemas import Question
from infuser_core.store.recipe import digest_of

FORMAT = 1
"""Raised when responses are made differently, so that old and new ones never mix."""


class ExamSettings(Settings):
    """How an examination is held; the defaults are the paper's (appendix: sampling hyperparameters)."""

    engine: EngineSettings = EngineSettings()
    prompts: str = "paper"
    """Prompt profile: a folder in `infuser_core/prompts`, or a path."""
    sampling: SamplingSettings = SamplingSettings(temperature=0.7, top_p=0.8, top_k=20)
    prompt_tokens: int = Field(default=4096, gt=0)
    max_tokens: int = Field(default=8192, gt=0)
    """Response limit of benchmarks that name none."""
    preset: Literal["paper", "official", "strict-last"] = "paper"
    too_long: Literal["wrong", "drop"] = "wrong"
    benchmarks: list[BenchmarkSettings] = Field(default=[])
    """Benchmarks by label, with their files; those left out of it are found by name."""
    seed: int = Field(default=42, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamQuestion(Question):
    """A question as it is saved with an examination."""

    benchmark: str
    """Benchmark label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One benchmark of an examination."""

    label: str
    """Name in tables and files."""
    name: str
    """Benchmark module."""
    title: str
    """Name for people."""
    category: str
    """math, general, medical, coding, nano, or empty."""
    samples: int
    """Responses per question."""
    max_tokens: int
    """Response limit, tokens."""
    num_available: int
    """Questions of the benchmark before a limit."""
    expected: int | None
    """Questions that the benchmark should have; None where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is asked."""

    sheets: list[Sheet]
    """Benchmarks in the order asked for."""
    questions: list[ExamQuestion]
    """Questions, benchmark by benchmark."""

    def asks(self) -> list[Ask]:
        """The questions with how often they are asked."""
        sheets = {sheet.label: sheet for sheet in self.sheets}
        return [
            Ask(
                benchmark=question.benchmark,
                question=question,
                samples=sheets[question.benchmark].samples,
                max_tokens=sheets[question.benchmark].max_tokens,
            )
            for question in self.questions
        ]

    def by_key(self) -> dict[Key, Question]:
        """Questions by (benchmark, question id)."""
        return {(question.benchmark, question.question_id): question for question in self.questions}


def exam_question(label: str, question: Question) -> ExamQuestion:
    """The question under its benchmark's label."""
    return ExamQuestion(benchmark=label, **{part.name: getattr(question, part.name) for part in fields(Question)})


def of_run(config: RunConfig) -> ExamSettings:
    """How a run evaluates."""
    return ExamSettings(
        engine=config.engine,
        prompts=config.prompts,
        sampling=config.evaluate.sampling,
        prompt_tokens=config.cotrain.prompt_tokens,
        max_tokens=config.cotrain.solver_tokens,
        preset=config.evaluate.box,
        too_long=config.evaluate.too_long,
        benchmarks=config.evaluate.benchmarks,
        seed=config.seed,
    )


def read_settings(path: Path, base: ExamSettings) -> ExamSettings:
    """Settings from YAML: a run's configuration, or keys of ExamSettings over `base`. Raises ConfigError."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="shipped ones lie in configs/") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML: {reason}", hint="a mapping of keys to values") from error
    if isinstance(values, dict) and "cotrain" in values:
        return of_run(overlays.load([path]))
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no settings", hint="a mapping of keys to values")
    return changed(base, values, where=str(path))


def changed(base: ExamSettings, values: Mapping[str, Any], *, where: str) -> ExamSettings:
    """The settings with some of them replaced. Raises ConfigError naming the key."""
    try:
        return ExamSettings.model_validate(overlays.merge(base.model_dump(), values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(ExamSettings.model_fields)
        raise ConfigError(f"{where}: {key} = {first['input']!r}: {first['msg']}", hint=f"keys: {known}") from None


def identity_of(model: str, settings: ExamSettings, plan: Plan, *, engine: str, limit: int | None) -> dict[str, Any]:
    """All that the responses are a function of, as JSON values; `model` is a digest of the model."""
    contents: dict[str, list[dict[str, Any]]] = {sheet.label: [] for sheet in plan.sheets}
    any_code = any(question.verifier == "code" for question in plan.questions)
    for question in plan.questions:
        contents[question.benchmark].append(asdict(question))
    return {
        "format": FORMAT,
        "model": model,
        "engine": engine,
        "seed": settings.seed,
        "prompts": template_digest(*solver_templates(settings.prompts, code=any_code)),
        "sampling": settings.sampling.model_dump(mode="json"),
        "prompt_tokens": settings.prompt_tokens,
        "limit": limit,
        "benchmarks": {
            sheet.label: {
                "name": sheet.name,
                "samples": sheet.samples,
                "max_tokens": sheet.max_tokens,
                "questions": len(contents[sheet.label]),
                "content": digest_of(contents[sheet.label]),
            }
            for sheet in plan.sheets
        },
    }


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two identities differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    return [] if old == new else [f"{where} is {old!r}, asked {new!r}"]
