"""Shipped files are read by the code that people run them with, and pages and `init` state their values."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from places import CONFIGS, ROOT

from flows.cli.main import app
from infuser_core.config.corpus import OverlapSettings
from infuser_core.config.overlays import load
from infuser_core.config.roles import AdapterSettings
from infuser_core.config.run import KeepSettings, RunConfig
from infuser_core.config.sources import FileQuestions, NanoAnchor
from infuser_core.cotrain.phases.parsing import ParsedQuestion, parse
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions
from infuser_core.nano.lab import anchor_path
from infuser_core.planning.preflight import preflight
from infuser_core.prompts import templates as prompts
from infuser_core.prompts.templates import render_question
from infuser_core.schemas import Question
from infuser_core.verifiers.choice import check

FILES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
DEPLOYMENTS = ["prefect.yaml"]
BASES = [name for name in FILES if "/" not in name and name not in DEPLOYMENTS]
OVERLAYS = [name for name in FILES if "/" in name and not name.startswith("sweep/")]


@pytest.mark.parametrize("name", BASES)
def test_a_base_is_complete(name: str):
    config = load([CONFIGS / name])
    assert config.name == name.removesuffix(".yaml")
    assert config.variant == ""


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("base", ["nano.yaml", "qwen3-8b.yaml"])
def test_an_overlay_changes_a_few_lines_of_any_base(base: str, name: str):
    config = load([CONFIGS / base, CONFIGS / name])
    assert config != load([CONFIGS / base])
    assert load([CONFIGS / base, CONFIGS / name, CONFIGS / name]) == config
    lines = [line for line in (CONFIGS / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 12, "an overlay of more than twelve lines is another base"


@pytest.mark.parametrize("name", [name for name in OVERLAYS if name.startswith("ablation/")])
def test_an_ablation_names_its_variant(name: str):
    config = load([CONFIGS / "nano.yaml", CONFIGS / name])
    assert config.variant == Path(name).stem.replace("_", "-")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_starts_the_pipeline_by_its_module(name: str):
    (deployment,) = yaml.safe_load((CONFIGS / name).read_text())["deployments"]
    assert (deployment["name"], deployment["entrypoint"]) == ("full-pipeline", "flows.full_pipeline:infuser")
    assert all((ROOT / path).is_file() for path in deployment["parameters"]["configs"])
    module, _, flow = deployment["entrypoint"].partition(":")
    found = getattr(importlib.import_module(module), flow)
    assert f"{found.name}/{deployment['name']}" == "infuser/full-pipeline"
    assert set(deployment["parameters"]) <= set(found.parameters.properties)


@pytest.mark.parametrize(
    ("name", "generator_rate"), [("qwen3-4b.yaml", 6e-6), ("qwen3-8b.yaml", 4e-6), ("olmo3-7b-sft.yaml", 4e-6)]
)
def test_the_papers_settings_are_the_papers(name: str, generator_rate: float):
    config = load([CONFIGS / name])
    cotrain, optimizer = config.cotrain, config.cotrain.optimizer
    assert (cotrain.iterations, cotrain.documents, cotrain.group_size, cotrain.validate_every) == (100, 128, 8, 5)
    assert (cotrain.generator.minibatch, cotrain.solver.minibatch) == (32, 32)
    assert (cotrain.generator.learning_rate, cotrain.solver.learning_rate) == (generator_rate, 2e-6)
    assert (cotrain.generator.advantage, cotrain.solver.advantage) == ("dugrpo", "mean_centred")
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay) == (0.9, 0.999, 1e-8, 0.01)
    assert (cotrain.sampling.temperature, cotrain.prompt_tokens, cotrain.solver_tokens) == (0.7, 4096, 8192)
    assert (cotrain.loss.tis_cap, cotrain.reward.name, cotrain.reward.invalid) == (2.0, "influence", 0.0)
    assert config.data.dev.size == 800


NAME = "smollm2"
SETS = ("dev", "validation", "problems", "exam")


def questions(name: str) -> list[Question]:
    return load_questions(FileQuestions(type="file", path=f"configs/smollm2/{name}.jsonl"), seed=0)


def test_it_starts_in_any_folder_that_has_the_model_and_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/smollm2").symlink_to(anchor_path("basic"))
    Path("books/hmmer").mkdir(parents=True)
    preflight(load([Path(NAME)], []))


def test_a_file_of_ones_own_comes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = FileQuestions(type="file", path="configs/smollm2/dev.jsonl")
    monkeypatch.chdir(tmp_path)
    shipped = content_of(source)
    own = tmp_path / source.path
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / source.path).read_text().splitlines()[0])
    assert len(load_questions(source, seed=0)) == 1 and content_of(source) != shipped


def test_no_question_stands_in_two_sets():
    texts = [question.text for name in SETS for question in questions(name)]
    assert len(texts) == len(set(texts)) == 48


@pytest.mark.parametrize("name", SETS)
def test_the_right_answer_has_every_place(name: str):
    assert {question.answer for question in questions(name)} == {"A", "B", "C", "D"}


def test_the_examples_of_the_generators_prompt_are_valid_questions():
    rules = load([Path(NAME)], []).cotrain.question
    template = prompts.load_template("generate_mcq", profile="small")
    shown = re.findall(r"```json\n(.*?)\n```", template.user)
    parsed = [parse(text, min_choices=rules.min_choices, max_choices=rules.max_choices) for text in shown]
    assert [isinstance(each, ParsedQuestion) for each in parsed] == [True, True, False], "the last one is the form"


def test_the_examples_of_the_solvers_prompt_look_like_questions_and_count_as_answers():
    template = prompts.load_template("solve_mcq", profile="small")
    first, second, *_ = re.split(r"The correct answer is ", template.user)
    example = Question(
        question_id="q", text=first.splitlines()[0], choices=["the dog", "the eagle", "the horse", "the cat"],
        answer="B", verifier="choice", domain="", subdomain="",
    )  # fmt: skip
    assert render_question(example.text, example.choices) == first.strip()
    assert check(f"The correct answer is {second}", example).verdict == "correct"


def test_the_judges_examples_are_json():
    template = prompts.load_template("judge_chunk", profile="small")
    found = re.findall(r"^JSON: (.*)$", template.user, re.M)
    assert [json.loads(text)["keep"] for text in found] == [True, False]


STATED = re.compile(r"^( *)(\w+): ([^#\n]*?) *#.*the paper's(?: for 8B)?: ([^;\n]+)", re.M)
"""Indent, name and value of a setting, and the paper's values of it or of its first parts."""


def test_the_first_file_states_the_papers_values():
    text, paper = (CONFIGS / "start.yaml").read_text(), load([CONFIGS / "qwen3-8b.yaml"])
    found = list(STATED.finditer(text))
    assert len(found) == text.count("the paper's") > 10
    for match in found:
        indent, name, value, stated = match.groups()
        part: Any = paper
        if indent:
            section = re.findall(r"^(\w+):", text[: match.start()], re.M)[-1]
            part = getattr(part, section)
        part, own = getattr(part, name), yaml.safe_load(value)
        wanted = [getattr(part, key) for key in own] if isinstance(own, dict) else [part]
        words = stated.strip().split(", ")
        assert [type(each)(word) for each, word in zip(wanted, words, strict=False)] == wanted[: len(words)], match[0]


def test_the_first_file_states_the_retention_of_gc():
    (stated,) = re.findall(r"keep: null +# (\{.*\})", (CONFIGS / "start.yaml").read_text())
    assert yaml.safe_load(stated) == KeepSettings().model_dump()


def test_the_page_of_configurations_states_the_defaults_of_adapters():
    (stated,) = re.findall(r"`cotrain\.adapter: (\{.*?\})`", (ROOT / "docs" / "configurations.md").read_text())
    assert yaml.safe_load(stated) == AdapterSettings().model_dump()


OPTIONS = {
    "corpus audit --mode": OverlapSettings().mode,
    "nano build --world": NanoAnchor().world,
    "quickstart --seed": RunConfig.model_fields["seed"].default,
    "score --seed": RunConfig.model_fields["seed"].default,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_has_the_default_of_its_setting(option: str):
    command: Any = typer.main.get_command(app)
    *names, flag = option.split()
    for name in names:
        command = command.commands[name]
    (found,) = [each for each in command.params if flag in each.opts]
    assert found.default == OPTIONS[option]
