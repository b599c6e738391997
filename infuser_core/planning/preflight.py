"""Preflight checks before a run: files, templates, plug-ins and models must exist. Imports torch only for adapters."""

import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.optimizers import options_class
from infuser_core.config.roles import ALL_LINEAR
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import (
    FileQuestions,
    FolderAnchor,
    HubAnchor,
    MixQuestions,
    QuestionSource,
)
from infuser_core.cotrain.phases.parts.few_shot import AIM_TEMPLATE
from infuser_core.cotrain.reward import find_reward
from infuser_core.cotrain.route import find_route, generator_templates, main_routes, needs_documents, runs_programs
from infuser_core.errors import ConfigError
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.planning.split import load_sets, require_apart
from infuser_core.plugins import MAIN_ROUTE, find_object, require_extra
from infuser_core.prompts.templates import load_template
from infuser_core.results.trackers.parts.follow import find_tracker
from infuser_core.system.hub import fetch_address
from infuser_core.verifiers.parts.batch import CHOICES, prompt_name
from infuser_core.verifiers.sandbox import run as sandbox


def missing_for_corpus(config: RunConfig) -> list[ConfigError]:
    """Errors for everything that building the corpus needs and this machine lacks; empty without a corpus."""
    if not needs_documents(config):
        return []
    if config.corpus.pool:
        exists = fetch_address(config.corpus.pool).exists()
        absent = ConfigError(
            f"corpus.pool = {config.corpus.pool!r}: no such file or folder",
            hint="name a pool of `infuser corpus build`, or a documents.json",
        )
        return [*([] if exists else [absent]), *_missing_references(config)]
    return [*_missing_models(config), *_missing_marker(config), *_missing_references(config)]


def _missing_models(config: RunConfig) -> Iterator[ConfigError]:
    corpus = config.corpus
    model_settings = {
        "corpus.catalogue.model": corpus.catalogue.model,
        "corpus.chunk.tokenizer": corpus.chunk.tokenizer,
        "corpus.judge": corpus.judge,
    }
    yield from _invalid_model_folders(model_settings)
    judge = corpus.judge
    if judge is None or judge.type not in ("rules", "none"):
        try:
            load_template("judge_chunk", profile=config.prompts)
        except ConfigError as error:
            yield error


def _invalid_model_folders(models: Mapping[str, object]) -> Iterator[ConfigError]:
    """An error for each setting that names a model folder without a config.json."""
    for key, source in models.items():
        if isinstance(source, FolderAnchor) and not (Path(source.path) / "config.json").is_file():
            message = f"{key}.path = {source.path!r}: no config.json there"
            yield ConfigError(message, hint="name a model folder in Hugging Face layout")


def _missing_marker(config: RunConfig) -> Iterator[ConfigError]:
    """An error if the external PDF converter Marker is configured but missing, unless the store has a pool already."""
    words = shlex.split(settings.marker_command())
    if config.corpus.convert.type != "marker" or (words and shutil.which(words[0])):
        return
    if not any((settings.store_root() / "artifacts" / "pool").glob("*")):
        yield ConfigError(
            f"corpus.convert.type = 'marker': no command {settings.marker_command()!r} is installed",
            hint="install marker-pdf in a separate environment and name its marker_single in INFUSER_MARKER; or "
            "--set corpus.convert.type=auto",
        )


def _missing_references(config: RunConfig) -> Iterator[ConfigError]:
    overlap = config.corpus.overlap
    for key, paths in (("references", overlap.references), ("mixture", overlap.mixture)):
        for number, path in enumerate(paths):
            if not Path(path).exists():
                yield ConfigError(
                    f"corpus.overlap.{key}.{number} = {path!r}: no such file or folder",
                    hint=f"fetch the data set, correct the path, or --set 'corpus.overlap.{key}=[]'",
                )


def preflight(config: RunConfig) -> None:
    """Check a configuration before a run. Raises ConfigError or SandboxUnavailable for the first problem."""
    settings.phase_seconds("")
    settings.track_seconds()
    for name in config.track:
        find_tracker(name)
    for key, source in _sources(config):
        if isinstance(source, FileQuestions):
            _must_exist(f"{key}.path", source.path)
    for number, benchmark in enumerate(config.evaluate.benchmarks):
        if benchmark.path:
            _must_exist(f"evaluate.benchmarks.{number}.path", benchmark.path)
    # Read the questions now, so that a damaged file is reported before training.
    sets = load_sets(config)
    require_apart(config, sets)
    questions = [question for each in sets for question in each.questions]
    prompts = _generator_prompts(config)
    reward = find_reward(config.cotrain.reward.name)
    if config.cotrain.budget.mode == "bandit" and not reward.needs_influence:
        raise ConfigError(
            f"cotrain.budget.mode bandit: the reward {reward.name} measures no influence to follow",
            hint="choose a reward that does, e.g. influence, or mode shares",
        )
    for key in ("labeller", "oracle"):
        if name := getattr(config.cotrain.question, key):
            find_object(name, key=f"cotrain.question.{key}")
    for prompt in (*prompts, CHOICES, "judge_chunk", *sorted({prompt_name(question) for question in questions})):
        load_template(prompt, profile=config.prompts)
    if runs_programs(config, questions):
        sandbox.find_containment()
    roles = {
        "anchor": config.anchor,
        "cotrain.generator.model": config.cotrain.generator.model,
        "cotrain.key_solver": config.cotrain.key_solver,
    }
    for error in _invalid_model_folders(roles):
        raise error
    for error in missing_for_corpus(config):
        raise error
    adapter = config.cotrain.adapter
    if adapter is not None and adapter.base == "nf4":
        require_extra("cotrain.adapter.base nf4", "bitsandbytes")
    if extra := options_class(config.cotrain.optimizer.name).extra:
        require_extra(f"cotrain.optimizer.name {config.cotrain.optimizer.name}", extra)
    # The layers of a model that is only on the hub are unknown here.
    if adapter is not None and adapter.targets != ALL_LINEAR and not isinstance(config.anchor, HubAnchor):
        # Imported here: torch takes seconds and is rarely needed.
        from infuser_core.engines.hf.adapters import target_layers
        from infuser_core.engines.hf.causal_lm import build_meta_model, read_config

        target_layers(build_meta_model(read_config(anchor_folder(config.anchor))), adapter.targets)


def _generator_prompts(config: RunConfig) -> list[str]:
    """Names of the generator's templates. Raises ConfigError if problems, or templates for an update, are missing."""
    route = find_route(config.cotrain.route or MAIN_ROUTE)
    problems = [find_route(each.route) for each in config.data.problems]
    if route.carry and not any(other.carry for other in problems):
        raise ConfigError(
            f"cotrain.route = {route.name!r} trains on given problems, and data.problems lists none",
            hint="name them, with their count, under data.problems",
        )
    if config.cotrain.generator.update and not generator_templates(config):
        raise ConfigError(
            f"cotrain.route = {route.name!r} has nothing to write for a generator",
            hint="set cotrain.generator.update to false",
        )
    example_prompts = (
        {each.examples_template for each in main_routes(config)} - {""} if config.cotrain.examples else set[str]()
    )
    return sorted({*generator_templates(config), *example_prompts, *([AIM_TEMPLATE] if config.cotrain.aims else [])})


def _sources(config: RunConfig) -> list[tuple[str, QuestionSource]]:
    """Every source of questions with its configuration key; a mixed source is listed part by part."""
    data = config.data
    sources: list[tuple[str, QuestionSource]] = [("data.dev", data.dev), ("data.validation", data.validation)]
    sources += [(f"data.problems.{number}.source", each.source) for number, each in enumerate(data.problems)]
    examples = config.cotrain.examples
    sources += [("cotrain.examples.source", examples.source)] if examples and examples.source else []
    parts: list[tuple[str, QuestionSource]] = []
    for key, source in sources:
        if isinstance(source, MixQuestions):
            parts += [(f"{key}.parts.{number}.source", part.source) for number, part in enumerate(source.parts)]
        else:
            parts.append((key, source))
    return parts


def _must_exist(key: str, path: str) -> None:
    if not shipped.find_data_file(path).exists():
        source = "the paper's authors publish it (docs/reproduce.md): put it there" if path.startswith("data/") else ""
        hint = f"{source or 'correct the path'}, or --set {key}=FILE; relative paths start where you run"
        raise ConfigError(f"{key} = {path!r}: no such file", hint=hint)
