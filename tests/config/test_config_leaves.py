"""Changing a setting computes again exactly the stages that depend on it, and nothing else.

The real stages are asked for their recipes, against a store that claims to have everything. The golden table holds,
for every leaf of the configuration, the stages whose own recipe changes when the leaf does; what is made from their
artifacts follows by the artifacts' ids.
"""

import json
import os
import typing
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import places
import pytest
from everything_stored import base_of, changed, recipes
from pydantic import BaseModel

from infuser_core.config.overlays import merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from infuser_core.nano.lab import anchor_path

GOLDEN = places.GOLDEN / "config_leaves.json"


def leaves(values: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, (*path, key))
    elif isinstance(values, list) and values and isinstance(values[0], dict):
        for number, value in enumerate(values):
            yield from leaves(value, (*path, number))
    else:
        yield path


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)


TOGETHER: dict[str, dict[str, Any]] = {
    "prompts": {"prompts": "paper"},
    "track": {"track": ["tensorboard"]},
    "store.keep": {"store": {"keep": {"full": 1, "weights_every": 0}}},
    "cluster": {"cluster": {"address": "head:6379"}},
    "corpus.convert.type": {"corpus": {"convert": {"type": "pdfium"}}},
    "corpus.convert.helper": {"corpus": {"convert": {"helper": "docling"}}},
    "corpus.convert.url": {"corpus": {"convert": {"url": "http://127.0.0.1:9/"}}},
    "corpus.catalogue.type": {"corpus": {"catalogue": {"type": "local", "url": "http://127.0.0.1:1"}}},
    "corpus.catalogue.licences": {"corpus": {"catalogue": {"licences": ["CC0-1.0"]}}},
    "corpus.catalogue.languages": {"corpus": {"catalogue": {"languages": ["en"]}}},
    "corpus.catalogue.robots_exempt": {"corpus": {"catalogue": {"robots_exempt": ["https://x/"]}}},
    "engine.ranks": {"engine": {"trainer": "deepspeed", "ranks": 2}},
    "engine.vllm": {"engine": {"sampler": "vllm", "vllm": {"quantization": "fp8"}}},
    "engine.offload": {"engine": {"trainer": "deepspeed", "offload": "optimizer"}},
    "corpus.exclude.sources": {"corpus": {"exclude": {"sources": ["s1"]}}},
    "corpus.exclude.documents": {"corpus": {"exclude": {"documents": ["d1"]}}},
    "cotrain.exclude_questions": {"cotrain": {"exclude_questions": ["0/d1/0-ab"]}},
    "cotrain.route": {"prompts": "paper", "cotrain": {"route": "free_form"}},
    "cotrain.mid_eos_penalty": {"cotrain": {"mid_eos_penalty": -0.5}},
    "data.allow_overlap": {"data": {"allow_overlap": True}},
    "data.problems": {"data": {"problems": [{"source": {"type": "nano", "split": "dev", "size": 4}, "count": 8}]}},
    "cotrain.budget.mode": {"cotrain": {"budget": {"mode": "bandit"}}},
    "cotrain.budget.shares": {"cotrain": {"budget": {"mode": "shares", "shares": {"": 1.0}}}},
    "cotrain.dev_only": {"cotrain": {"dev_only": True, "generator": {"update": False}}},
    "cotrain.solver.accuracy_band": {"cotrain": {"solver": {"accuracy_band": [0.25, 0.75]}}},
    "cotrain.examples": {"prompts": "paper", "cotrain": {"examples": {"count": 2}}},
    "cotrain.aims": {"prompts": "paper", "cotrain": {"aims": [0.5]}},
    "cotrain.turns": {"cotrain": {"turns": {"generator": 1, "solver": 1}}},
    "cotrain.solver.accuracy_quantiles": {"cotrain": {"solver": {"accuracy_quantiles": [0.3, 0.7]}}},
    "cotrain.optimizer.name": {"cotrain": {"optimizer": {"name": "sgd"}}},
    "cotrain.optimizer.momentum": {"cotrain": {"optimizer": {"name": "sgd", "momentum": 0.5}}},
    "cotrain.optimizer.constants": {"cotrain": {"optimizer": {"name": "outside.lion", "constants": {"blend": 0.5}}}},
    "cotrain.optimizer.nesterov": {"cotrain": {"optimizer": {"name": "sgd", "nesterov": True}}},
    "cotrain.adapter": {"cotrain": {"adapter": {"rank": 4}}},
    "cotrain.loss.dual_clip": {"cotrain": {"loss": {"dual_clip": 3.0}}},
    "cotrain.loss.tis_form": {"cotrain": {"loss": {"tis_form": "current_over_sampler"}}},
    "cotrain.loss.length_norm": {"cotrain": {"loss": {"length_norm": "token_mean"}}},
    "cotrain.loss.sigma_b": {"cotrain": {"loss": {"sigma_b": "nonzero"}}},
    "cotrain.loss.single_row": {"cotrain": {"loss": {"single_row": "unit"}}},
    "cotrain.loss.batch_std": {"cotrain": {"loss": {"batch_std": "batch_pooled_std"}}},
    "cotrain.loss.partial_minibatch": {"cotrain": {"loss": {"partial_minibatch": "nominal"}}},
    "cotrain.loss.mid_eos_verdicts": {"cotrain": {"loss": {"mid_eos_verdicts": ["unverified"]}}},
    "cotrain.question.min_choices": {"cotrain": {"question": {"min_choices": 3}}},
    "cotrain.question.labeller": {"cotrain": {"question": {"labeller": ""}}},
    "cotrain.question.oracle": {"cotrain": {"question": {"oracle": "infuser_core.nano.lab:perfect_key"}}},
    "cotrain.reward.name": {"cotrain": {"reward": {"name": "uncertainty"}}},
    "evaluate.benchmarks.0.name": {"evaluate": {"benchmarks": [{"name": "nano_target", "label": "exam"}]}},
}
"""Leaves that no rule of thumb can change, or only together with others."""


def special(world: Path) -> dict[str, dict[str, Any]]:
    """All such leaves, with those whose values are files of the world."""
    other_model = {"type": "folder", "path": str(world / "model")}
    return TOGETHER | {
        "anchor.type": {"anchor": other_model},
        "anchor.world": {"anchor": other_model},
        "data.dev.type": {"data": {"dev": {"type": "file", "path": str(world / "exam.json")}}},
        "data.validation.type": {"data": {"validation": {"type": "file", "path": str(world / "exam.json")}}},
        "corpus.catalogue.model": {"corpus": {"catalogue": {"model": other_model}}},
        "corpus.pool": {"corpus": {"pool": str(world / "pool.parquet")}},
        "corpus.chunk.tokenizer": {"corpus": {"chunk": {"tokenizer": other_model}}},
        "corpus.overlap.references": {"corpus": {"overlap": {"references": [str(world / "reference.jsonl")]}}},
        "corpus.overlap.mixture": {"corpus": {"overlap": {"mixture": [str(world / "reference.jsonl")]}}},
        "corpus.judge": {"corpus": {"judge": other_model}},
        "cotrain.key_solver": {"cotrain": {"key_solver": other_model}},
        "cotrain.generator.model": {"cotrain": {"generator": {"update": False, "model": other_model}}},
        "evaluate.benchmarks.0.path": {
            "evaluate": {"benchmarks": [{"name": "released", "label": "exam", "path": str(world / "copy.json")}]}
        },
        "evaluate.benchmarks.0.only": {
            "evaluate": {
                "benchmarks": [
                    {"name": "released", "label": "exam", "path": str(world / "exam.json"), "only": ["products"]}
                ]
            }
        },
    }


def mutated(base: dict[str, Any], path: tuple[str | int, ...], overlays: dict[str, dict[str, Any]]) -> RunConfig:
    """The configuration with that leaf, and no other where possible, changed to another valid value."""
    if dotted(path) in overlays:
        return validate(merge(base, overlays[dotted(path)]))
    value = base
    for part in path:
        value = value[part]
    for candidate in candidates(path, value):
        copy = json.loads(json.dumps(base))
        place = copy
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = candidate
        try:
            return validate(copy)
        except ConfigError:
            continue
    raise AssertionError(f"{dotted(path)} = {value!r}: say in special() how to change it")


def candidates(path: tuple[str | int, ...], value: Any) -> list[Any]:
    choices = [choice for choice in literals(RunConfig, path) if choice != value]
    if choices or isinstance(value, bool):
        return choices or [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value / 2 or 0.5, value * 2]
    if isinstance(value, str):
        return [name for name in ("basic", "hard") if name != value] if path[-1] == "world" else ["other"]
    if isinstance(value, dict):
        return [{"question_text": "question_text"}]
    return [3.0, 3] if value is None else []


def literals(model: Any, path: tuple[str | int, ...]) -> list[Any]:
    """Choices of a field with a fixed set of them."""
    if not path:
        return [
            choice
            for part in alternatives(model)
            if typing.get_origin(part) is typing.Literal
            for choice in part.__args__
        ]
    for part in alternatives(model):
        if isinstance(path[0], int) and typing.get_origin(part) is list:
            return literals(part.__args__[0], path[1:])
        if isinstance(part, type) and issubclass(part, BaseModel) and path[0] in part.model_fields:
            return literals(part.model_fields[str(path[0])].annotation, path[1:])
    return []


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, however deep."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, type(int | str), typing.Annotated):
        inner = annotation.__args__ if origin is not typing.Annotated else annotation.__args__[:1]
        return [part for member in inner for part in alternatives(member)]
    return [annotation]


@cache
def table(world: Path) -> dict[str, list[str]]:
    base = base_of(world)
    original = recipes(validate(base), world, fixed=True)
    overlays = special(world)
    return {
        dotted(path): changed(original, recipes(mutated(base, path, overlays), world, fixed=True))
        for path in leaves(base)
    }


def test_every_leaf_changes_the_stages_of_the_golden_table(world: Path):
    found = table(world)
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    differing = {
        leaf: (golden.get(leaf), found.get(leaf)) for leaf in {*golden, *found} if golden.get(leaf) != found.get(leaf)
    }
    assert differing == {}, (
        "leaf: (stages computed again according to the golden table, stages now). Is that meant? "
        "Then INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/config/test_config_leaves.py"
    )


def test_names_places_and_machinery_change_nothing(world: Path):
    engine = ["device", "threads", "token_budget", "gradient_checkpointing", "overlap"]
    free = ["name", "variant", "evaluate.benchmarks.0.path", *[f"engine.{leaf}" for leaf in engine]]
    free += ["cotrain.validate_every", "cotrain.iterations", "track", "data.allow_overlap"]
    assert {leaf: table(world)[leaf] for leaf in free} == {leaf: [] for leaf in free}


def test_the_evaluations_sampling_never_invalidates_training(world: Path):
    training = {"anchor", *["rollout_dev", "dev_gradient", "generate_questions", "rollout_questions"]}
    training |= {"score_influence", "update_generator", "update_solver"}
    found = {leaf: stages for leaf, stages in table(world).items() if leaf.startswith("evaluate.")}
    found.pop("evaluate.box")  # the same extraction judges training answers
    assert {leaf: stages for leaf, stages in found.items() if training & {*stages}} == {}


def test_moving_a_file_or_a_model_changes_nothing(world: Path):
    base = base_of(world)
    nano = {"type": "folder", "path": str(anchor_path())}
    here = recipes(validate(merge(base, {"anchor": nano})), world, fixed=False)
    copy = {"type": "folder", "path": str(world / "same")}
    assert recipes(validate(merge(base, {"anchor": copy})), world, fixed=False) == here
    exam = [{"name": "released", "label": "exam", "path": str(world / "copy.json")}]
    assert recipes(validate(merge(base, {"evaluate": {"benchmarks": exam}})), world, fixed=False) == recipes(
        validate(base), world, fixed=False
    )


def test_a_validation_sample_enters_by_its_questions(world: Path):
    row = {"problem": "Find it.", "answer": "2", "subject": "Algebra", "level": 1}
    rows = [json.dumps({**row, "problem": f"Find {n}.", "unique_id": str(n)}) for n in range(4)]
    for name, content in (("one", rows), ("moved", rows[::-1]), ("other", rows[:1])):
        (world / f"{name}.jsonl").write_text("\n".join(content))

    def asked(name: str, seed: int = 42) -> list[str]:
        quotas = [{"benchmarks": ["math500"], "count": 2}]
        sample = {"type": "benchmarks", "quotas": quotas, "paths": {"math500": str(world / f"{name}.jsonl")}}
        config = validate(merge(base_of(world), {"seed": seed, "data": {"validation": sample}}))
        return recipes(config, world, fixed=False)["questions"][1:]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert asked("one") == asked("moved") == asked("one", seed=7) != asked("other")


def test_seeds_share_the_corpus_of_a_dev_set_from_a_file(world: Path):
    files = {"type": "file", "path": str(world / "exam.json")}
    base = merge(base_of(world), {"data": {"dev": files, "validation": files}})
    one, other = (recipes(validate({**base, "seed": seed}), world, fixed=False) for seed in (1, 2))
    corpus = "questions taxonomy textbooks search choose download sources convert chunk judge audit pool"
    assert {stage for stage in corpus.split() if one[stage] != other[stage]} == set()
    assert one["generate_questions"] != other["generate_questions"]


@pytest.mark.parametrize(
    ("overlay", "again"),
    [
        (
            {"cotrain": {"solver": {"learning_rate": 1e-5}}},
            "update_solver respond validate select evaluate rollout_dev/1 dev_gradient/1 rollout_questions/1 "
            "score_influence/1 update_generator/1 update_solver/1",
        ),
        (
            {"cotrain": {"generator": {"learning_rate": 1e-5}}},
            "update_generator generate_questions/1 rollout_questions/1 score_influence/1 update_generator/1 "
            "update_solver/1 respond validate select evaluate",
        ),
        ({"evaluate": {"sampling": {"top_k": 5}}}, "respond validate select evaluate"),
        ({"evaluate": {"too_long": "drop"}}, "validate select evaluate"),
        (
            {"corpus": {"judge_tokens": 41}},
            "judge audit pool generate_questions rollout_questions score_influence update_generator "
            "update_solver rollout_dev/1 dev_gradient/1 generate_questions/1 rollout_questions/1 score_influence/1 "
            "update_generator/1 update_solver/1 respond validate select evaluate",
        ),
    ],
    ids=["solver's rate", "generator's rate", "evaluation", "scoring", "pool"],
)
def test_what_is_made_from_changed_artifacts_is_made_again_and_nothing_else(
    world: Path, overlay: dict[str, Any], again: str
):
    base = base_of(world)
    before = recipes(validate(base), world, fixed=False, iterations=2)
    after = recipes(validate(merge(base, overlay)), world, fixed=False, iterations=2)
    assert changed(before, after) == sorted(again.split())
