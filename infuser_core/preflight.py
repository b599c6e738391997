"""What must be there before anything runs: files, templates, plug-ins, a writable store. Costs no torch."""

from importlib import import_module
from pathlib import Path

from infuser_core import settings
from infuser_core.anchors import anchor_folder
from infuser_core.benchmarks.find import load as load_benchmark
from infuser_core.config import BenchmarkQuestions, FileQuestions, FolderAnchor, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.preflight_corpus import missing
from infuser_core.prompts.load import load as load_prompt
from infuser_core.questions import load_questions
from infuser_core.rewards.find import load as load_reward
from infuser_core.schemas import Question


def preflight(config: RunConfig) -> None:
    """Raise the first thing that would stop the run later, as a ConfigError or StoreError."""
    settings.writable_store_root()
    asked = [question for part in ("dev", "validation") for question in _source(part, config)]
    for number, benchmark in enumerate(config.evaluate.benchmarks):
        load = load_benchmark(benchmark.name)
        if benchmark.path:
            _must_exist(f"evaluate.benchmarks.{number}.path", benchmark.path)
        # Read here once: a damaged file must not be found out after the training.
        asked += load(benchmark)
    load_reward(config.cotrain.reward.name)
    for key in ("labeller", "oracle"):
        _must_import(f"cotrain.question.{key}", getattr(config.cotrain.question, key))
    for prompt in ("generate_mcq", "solve_mcq", "judge_chunk", *_answer_prompts(asked)):
        load_prompt(prompt, profile=config.prompts)
    if isinstance(config.anchor, FolderAnchor):
        anchor_folder(config.anchor)
    for error in missing(config):
        raise error


def _source(part: str, config: RunConfig) -> list[Question]:
    """The questions of `data.<part>`; those of files are read when they are needed."""
    source = getattr(config.data, part)
    if isinstance(source, FileQuestions):
        _must_exist(f"data.{part}.path", source.path)
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
