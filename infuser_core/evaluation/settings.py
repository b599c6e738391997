"""Settings of an evaluation, merged from the model's own, a file's and the options'; and the engine they select."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateSyntaxError
from pydantic import Field, model_validator

from infuser_core.config import overlays, shipped
from infuser_core.config.corpus import EndpointModel
from infuser_core.config.engine import ClusterSettings, EngineSettings
from infuser_core.config.overlays import load as load_config
from infuser_core.config.retired import drop_retired
from infuser_core.config.run import (
    BenchmarkSettings,
    CotrainSettings,
    EvaluateSettings,
    RunConfig,
    SamplingSettings,
    TooLong,
)
from infuser_core.config.sources import FilePath, Seed, Settings, Tokens
from infuser_core.engines.configured import sampling_pool
from infuser_core.engines.pool import EnginePool
from infuser_core.errors import ConfigError
from infuser_core.evaluation.answering import OFF, OWN, Example, Phrasing
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.evaluation.models import EvaluatedModel, is_nano
from infuser_core.memory.sizes import CACHE_TOKENS
from infuser_core.protocols import ChatModel
from infuser_core.schemas import Box
from infuser_core.settings import store_root

_LABS = {"hard": "nano", "wide": "nano-wide"}
_RUN, _COTRAIN, _EXAM = RunConfig.model_fields, CotrainSettings.model_fields, EvaluateSettings()


class EvaluationSettings(Settings):
    """Settings of an evaluation; the defaults are those of a run (the paper's appendix: sampling hyperparameters)."""

    engine: EngineSettings = EngineSettings()
    cluster: ClusterSettings | None = None
    """A Ray cluster, all of whose machines sample."""
    prompts: FilePath = _RUN["prompts"].default
    """Prompt profile: a folder in `infuser_core/prompts`, or a path."""
    sampling: SamplingSettings = _EXAM.sampling
    prompt_tokens: Tokens = _COTRAIN["prompt_tokens"].default
    max_tokens: Tokens = _COTRAIN["solver_tokens"].default
    """Response limit of benchmarks without one, tokens."""
    preset: Box = _EXAM.box
    too_long: TooLong = _EXAM.too_long
    benchmarks: list[BenchmarkSettings] = Field(default=[])
    """Benchmarks by label, with their files; others are found by name."""
    seed: Seed = _RUN["seed"].default
    system: str | None = None
    """System turn in place of the prompt profile's; empty for none."""
    chat: str = OWN
    """Chat template: the model's own, `off` for plain text, or a file in Jinja."""
    examples: FilePath | None = None
    """Worked examples for few-shot prompts: JSON lines, or a folder with `NAME.jsonl` for every benchmark."""
    shots: int | None = Field(default=None, ge=0, le=1000)
    """Number of examples, the first of the file; all when null."""
    batch_tokens: int = Field(default=CACHE_TOKENS, gt=0, le=1_000_000_000)
    """Prompt and response tokens of one batch. It changes no answer."""
    concurrency: int = Field(default=EndpointModel.model_fields["concurrency"].default, gt=0, le=4096)
    """Concurrent requests to a model at an address. It changes no answer."""

    _drop_retired = model_validator(mode="before")(drop_retired)


def phrasing_of(settings: EvaluationSettings, benchmark: str) -> Phrasing:
    """Examples, system turn and chat template of a benchmark. Raises ConfigError or DocumentError naming the file."""
    if settings.shots and settings.examples is None:
        raise ConfigError(f"shots = {settings.shots}, and there are no examples", hint="--examples FILE has them")
    chat = settings.chat
    if chat not in (OWN, OFF):
        chat = _read_template(Path(chat))
    examples = tuple(_read_examples(Path(settings.examples), benchmark)) if settings.examples else ()
    if settings.shots is not None and len(examples) < settings.shots:
        raise ConfigError(
            f"shots = {settings.shots}, and {settings.examples} has {len(examples)} examples", hint="lower --shots"
        )
    return Phrasing(system=settings.system, examples=examples[: settings.shots], chat=chat)


def _read_template(path: Path) -> str:
    """Text of a chat template, checked before a model is loaded."""
    try:
        text = path.read_text(encoding="utf-8")
        Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False).parse(text)
    except OSError as error:
        raise ConfigError(f"chat = {path}: {error.strerror}", hint="own, off, or a file with a template") from error
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"chat = {path}, line {error.lineno}: {error.message}", hint="Jinja, see chat_template"
        ) from error
    return text


def _read_examples(path: Path, benchmark: str) -> Iterator[Example]:
    """Examples in the columns of question files, with `reply`; by default the reply is the answer in a box."""
    source = path / f"{benchmark}.jsonl" if path.is_dir() else path
    if not source.is_file():
        raise ConfigError(
            f"examples: no file {source}", hint="one row each: question_text, choices, ground_truth, reply"
        )
    for number, row in enumerate(rows_of(source), 1):
        question = question_of(row, f"{source}, row {number}", name=str(number))
        yield Example(question=question, reply=str(row.get("reply") or rf"\boxed{{{question.answer}}}"))


def settings_of_run(config: RunConfig) -> EvaluationSettings:
    """Evaluation settings of a run."""
    return EvaluationSettings(
        engine=config.engine,
        cluster=config.cluster,
        prompts=config.prompts,
        sampling=config.evaluate.sampling,
        prompt_tokens=config.cotrain.prompt_tokens,
        max_tokens=config.cotrain.solver_tokens,
        preset=config.evaluate.box,
        too_long=config.evaluate.too_long,
        benchmarks=config.evaluate.benchmarks,
        seed=config.seed,
    )


def lab_config(model: EvaluatedModel) -> Path:
    """The shipped configuration of a nano model's micro-world."""
    return shipped.path_of(_LABS.get(model.world, "nano-basic"))


def settings_for(model: EvaluatedModel, config: Path | None, overrides: dict[str, Any]) -> EvaluationSettings:
    """Merge the model's own settings (its run's, the nano lab's, else the paper's), the file's and the options'."""
    if model.config is not None:
        base = settings_of_run(model.config)
    elif is_nano(model):
        base = settings_of_run(load_config([lab_config(model)]))
    else:
        base = EvaluationSettings()
    base = read_settings(config, base) if config is not None else base
    return with_options(base, overrides)


def with_options(base: EvaluationSettings, options: Mapping[str, Any]) -> EvaluationSettings:
    """Replace settings by a command's options; None leaves a setting unchanged. Raises ConfigError."""
    return replace_settings(
        base, {name: value for name, value in options.items() if value is not None}, where="options"
    )


def read_settings(path: Path, base: EvaluationSettings) -> EvaluationSettings:
    """Read settings from YAML: a run's configuration, or keys of EvaluationSettings over `base`. Raises ConfigError."""
    values = shipped.read_settings_file(path)
    values = {} if values is None else values
    if isinstance(values, dict) and "cotrain" in values:
        return settings_of_run(overlays.load([path]))
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no settings", hint="a mapping of keys to values")
    return replace_settings(base, values, where=str(path))


def replace_settings(base: EvaluationSettings, values: Mapping[str, Any], *, where: str) -> EvaluationSettings:
    """Replace some of the settings. Raises ConfigError naming the key."""
    return overlays.parse_settings(EvaluationSettings, overlays.merge(base.model_dump(), values), where=where)


def engine_name(model: EvaluatedModel, settings: EvaluationSettings) -> str:
    """Name of the engine with the options that change responses; `endpoint` for a model at an address."""
    engine = settings.engine
    arguments = f" {json.dumps(engine.vllm, sort_keys=True)}" if engine.vllm else ""
    return "endpoint" if model.folder is None else f"{engine.sampler_key} {engine.dtype}{arguments}"


def chat_of(judge: EvaluatedModel, settings: EvaluationSettings) -> ChatModel:
    """Chat interface of the judging model, for single replies."""
    if judge.folder is not None:
        return pool_of(settings).chat(judge.checkpoint())
    from infuser_core.engines.endpoint import Endpoint, parse_address

    return Endpoint(parse_address(judge.digest), concurrency=settings.concurrency)


def pool_of(settings: EvaluationSettings) -> EnginePool:
    """Engine pool with the sampler of an evaluation, not started yet."""
    tokens, seals = settings.batch_tokens, store_root() / "tested"
    return sampling_pool(settings.engine, settings.cluster, cache_tokens=tokens, seals=seals)
