"""What must be there before anything runs: files, templates, plug-ins, a writable store. Costs no torch."""

from importlib import import_module
from pathlib import Path

from infuser_core import settings
from infuser_core.anchors import anchor_folder
from infuser_core.benchmarks.find import load as load_benchmark
from infuser_core.config import BenchmarkQuestions, FileQuestions, FolderAnchor, MixQuestions, QuestionSource, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.phases.examples import TEMPLATE as WITH_EXAMPLES
from infuser_core.preflight_corpus import missing
from infuser_core.prompts.load import load as load_prompt
from infuser_core.questions import load_questions
from infuser_core.rewards.find import load as load_reward
from infuser_core.routes.find import MAIN_ROUTE, templates
from infuser_core.routes.find import load as load_route
from infuser_core.schemas import Question


def preflight(config: RunConfig) -> None:
    """Raise the first thing that would stop the run later, as a ConfigError or StoreError."""
    settings.writable_store_root()
    asked = [question for key, source in _sources(config) for question in _questions(key, source, config)]
    for number, benchmark in enumerate(config.evaluate.benchmarks):
        load = load_benchmark(benchmark.name)
        if benchmark.path:
            _must_exist(f"evaluate.benchmarks.{number}.path", benchmark.path)
        # Read here once: a damaged file must not be found out after the training.
        asked += load(benchmark)
    asking = _generator_prompts(config)
    reward = load_reward(config.cotrain.reward.name)
    if config.cotrain.budget.mode == "bandit" and not reward.needs_influence:
        raise ConfigError(
            f"cotrain.budget.mode bandit: the reward {reward.name} measures no influence to follow",
            hint="choose a reward that does, e.g. influence, or mode shares",
        )
    for key in ("labeller", "oracle"):
        _must_import(f"cotrain.question.{key}", getattr(config.cotrain.question, key))
    for prompt in (*asking, "solve_mcq", "judge_chunk", *_answer_prompts(asked)):
        load_prompt(prompt, profile=config.prompts)
    for model in (config.anchor, config.cotrain.generator.model):
        if isinstance(model, FolderAnchor):
            anchor_folder(model)
    for error in missing(config):
        raise error


def _generator_prompts(config: RunConfig) -> list[str]:
    """What a generator is asked with. Raises ConfigError where a run of given problems has none, or a generator."""
    own = load_route(config.cotrain.route or MAIN_ROUTE)
    problems = [load_route(each.route) for each in config.data.problems]
    if own.given and not any(route.given for route in problems):
        raise ConfigError(
            f"cotrain.route = {own.name!r} trains on problems that are given, and data.problems lists none",
            hint="name them, with their count, under data.problems",
        )
    if config.cotrain.generator.update and not templates(config):
        raise ConfigError(
            f"cotrain.route = {own.name!r} has nothing to write for a generator",
            hint="set cotrain.generator.update to false",
        )
    shown = {WITH_EXAMPLES} if config.cotrain.examples else set[str]()
    return sorted({*templates(config), *shown})


def _sources(config: RunConfig) -> list[tuple[str, QuestionSource]]:
    """Every set of questions with its key; the parts of a mixed set one by one."""
    data = config.data
    given: list[tuple[str, QuestionSource]] = [("data.dev", data.dev), ("data.validation", data.validation)]
    given += [(f"data.problems.{number}.source", each.source) for number, each in enumerate(data.problems)]
    examples = config.cotrain.examples
    given += [("cotrain.examples.source", examples.source)] if examples and examples.source else []
    found: list[tuple[str, QuestionSource]] = []
    for key, source in given:
        if isinstance(source, MixQuestions):
            found += [(f"{key}.parts.{number}.source", part.source) for number, part in enumerate(source.parts)]
        else:
            found.append((key, source))
    return found


def _questions(key: str, source: QuestionSource, config: RunConfig) -> list[Question]:
    """The questions of a source; those of files are read when they are needed."""
    if isinstance(source, FileQuestions):
        _must_exist(f"{key}.path", source.path)
    if isinstance(source, BenchmarkQuestions):
        return load_questions(source, seed=config.seed, evaluated=config.evaluate.benchmarks)
    return []


def _answer_prompts(questions: list[Question]) -> list[str]:
    """Further templates that questions without choices are put with."""
    verifiers = {question.verifier for question in questions if not question.choices}
    return [*(["solve_code"] if "code" in verifiers else []), *(["solve_free_form"] if verifiers - {"code"} else [])]


def _must_import(key: str, name: str) -> None:
    module, _, attribute = name.partition(":")
    try:
        if name:
            getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key} = {name!r}: {error}", hint="expected package.module:name of a function") from error


def _must_exist(key: str, path: str) -> None:
    if not Path(path).exists():
        raise ConfigError(f"{key} = {path!r}: no such file", hint="correct the path; relative ones start where you run")
