"""Settings of a run: ranges of all numbers, impossible combinations, and arguments of vLLM."""

import ast
import inspect
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from infuser_core.config.engine import RESERVED, EngineSettings
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import check_keys, generate_questions, rollout_dev
from infuser_core.engines.configured import options_of, run_pool, sampling_pool
from infuser_core.engines.service.launch import ServiceOptions, adapter_settings, engine_settings
from infuser_core.engines.vllm import worker
from infuser_core.errors import ConfigError
from infuser_core.evaluation import evaluate
from infuser_core.evaluation.models import EvaluatedModel
from infuser_core.evaluation.settings import EvaluationSettings, engine_name, settings_of_run
from infuser_core.store.adapter_files import CONFIG

NANO = ROOT / "configs" / "nano.yaml"
BASE = load([NANO]).model_dump(mode="json")


def numbers(schema: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every number of a schema, with its rules."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not {"enum", "const"} & {*schema}:
            yield name, {*schema}
        for key, value in schema.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers(value, name)


@pytest.mark.parametrize("model", [RunConfig, EvaluationSettings])
def test_every_number_has_a_floor_and_a_ceiling(model: type[RunConfig | EvaluationSettings]):
    found = dict(numbers(model.model_json_schema()))
    assert len(found) > 10
    bounds = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    assert [name for name, rules in found.items() if not all(bound & rules for bound in bounds)] == []


def leaves(values: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from leaves(value, (*path, key))


def put(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    copy = place = json.loads(json.dumps(BASE))
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return copy


PLACES = list(leaves(BASE))
ODD = [
    10**20,
    -(10**20),
    10**400,
    -1,
    0,
    0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    "",
    "a" * 300,
    "a\0b",
    "../x",
    "a\nb",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_a_value_of_many_parts_is_cut():
    many = [{f"key {n}": ["a" * 50] * 9 for n in range(9)}] * 9
    with pytest.raises(ConfigError) as refused:
        validate(put(("cotrain", "loss", "tis_cap"), many))
    assert len(str(refused.value)) < 1000


@settings(deadline=2000, max_examples=300)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_at_any_place_is_taken_or_refused_in_one_line(path: tuple[str | int, ...], value: Any):
    try:
        config = validate(put(path, value))
    except ConfigError as error:
        assert error.hint and len(error.message.splitlines()) <= 1 and len(str(error)) < 1000
    else:
        json.dumps(config.model_dump(mode="json"), allow_nan=False)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_numbers_beyond_any_experiment_are_refused_everywhere(path: tuple[str | int, ...]):
    for value in (10**20, -(10**20), 10**400, math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError):
            validate(put(path, value))


STRONG = {"type": "nano", "world": "hard"}


@pytest.mark.parametrize(
    ("cotrain", "said"),
    [
        ({"generator": {"model": STRONG}}, "set generator.update to false"),
        ({"solver": {"accuracy_band": [0.7, 0.3]}}, "0 <= low <= high <= 1"),
        ({"solver": {"accuracy_band": [0.5]}}, "accuracy_band"),
        ({"labels": "nobody"}, "labels"),
        ({"examples": {"count": 0}}, "count"),
        (
            {"examples": {"count": 2, "earlier": 9, "source": {"type": "nano", "split": "train", "size": 2}}},
            "leave out",
        ),
        ({"turns": {"generator": 2, "solver": 2}, "generator": {"update": False}}, "two roles"),
        ({"aims": [0.5, 1.0]}, "below 1"),
        ({"solver": {"accuracy_quantiles": [0.7, 0.3]}}, "low < high"),
        ({"solver": {"accuracy_quantiles": [0.3, 0.7], "accuracy_band": [0.3, 0.7]}}, "two bands"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(cotrain: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        validate(merge(BASE, {"cotrain": cotrain}))


def test_a_frozen_generator_may_be_any_model():
    server = {"type": "endpoint", "model": "big", "url": "http://127.0.0.1:8000/v1"}
    for model in (STRONG, server):
        config = validate(merge(BASE, {"cotrain": {"generator": {"update": False, "model": model}}}))
        assert config.cotrain.generator.model is not None


def test_the_band_is_a_pair():
    config = validate(merge(BASE, {"cotrain": {"solver": {"accuracy_band": [0.25, 0.75]}}}))
    assert config.cotrain.solver.band() == (0.25, 0.75)
    assert validate(BASE).cotrain.solver.band() is None


ENGINE = {"dtype": "bfloat16", "device": "cpu", "threads": 1}
VLLM = ["engine.sampler=vllm", "engine.dtype=bfloat16"]
FP8 = [*VLLM, "engine.vllm={quantization: fp8}"]


def config(*changes: str) -> RunConfig:
    return load([NANO], list(changes))


@pytest.mark.parametrize(("changes", "message"), [
    (["engine.sampler=hf"], "engine.vllm needs engine.sampler vllm, and it is hf"),
    (["engine.vllm.model=other"], "engine.vllm.model: INFUSER sets this argument of vLLM itself: set anchor"),
    (["engine.vllm.seed=3"], "engine.vllm.seed: INFUSER sets this argument of vLLM itself: set seed"),
    (["engine.vllm.max_num_seqs=3"], "set engine.max_num_seqs"),
    (["engine.vllm.logprobs_mode=raw_logits"], "INFUSER sets this argument of vLLM itself: leave it out"),
    (["engine.vllm=fp8"], "engine.vllm"),
    (["cotrain.loss.tis_cap=null"], "engine.vllm.quantization needs cotrain.loss.tis_cap"),
])  # fmt: skip
def test_arguments_that_cannot_pass_are_refused(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(*FP8, *changes)


@pytest.mark.parametrize("value", ["antigravity.Worker", "antigravity:Worker", "/tmp/model", "{cls: Worker}", "[a]"])
def test_where_only_shipped_code_may_be_named_arguments_are_numbers_and_words(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    assert config(*FP8, f"engine.vllm.worker_extension_cls={value}")
    monkeypatch.setenv("INFUSER_PLUGINS", "shipped")
    assert config(*FP8, "engine.vllm.swap_space=4").engine.vllm == {"quantization": "fp8", "swap_space": 4}
    with pytest.raises(
        ConfigError, match=r"engine\.vllm\.worker_extension_cls = .*numbers and single words"
    ) as refused:
        config(*FP8, f"engine.vllm.worker_extension_cls={value}")
    assert "--allow-plugins" in refused.value.hint


def test_every_argument_that_is_set_here_is_reserved_but_for_one_that_may_be_replaced(tmp_path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(worker))) if isinstance(node, ast.Call)]
    (call,) = (each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "EngineArgs")
    fixed = {each.arg for each in call.keywords if each.arg}
    (tmp_path / CONFIG).write_text('{"r": 5, "target_modules": ["q_proj"]}')
    (tmp_path / "config.json").write_text("{}")
    options = ServiceOptions(**ENGINE)
    own = engine_settings(options, model="model") | adapter_settings(options, tmp_path)
    assert own["max_lora_rank"] == 8
    assert fixed | own.keys() == RESERVED.keys() - {"seed"} | {"enforce_eager"}
    assert (
        engine_settings(ServiceOptions(**ENGINE, vllm={"enforce_eager": False}), model="model")["enforce_eager"]
        is False
    )


def test_every_draw_of_a_run_records_them_and_other_settings_stay_what_they_were() -> None:
    fine, coarse = config(*VLLM), config(*FP8)
    for settings_of in (
        generate_questions.settings_of,
        rollout_dev.settings_of,
        evaluate.ask_settings,
        lambda each: check_keys.settings_of(each, solver={}).answers,
    ):
        assert settings_of(coarse).sampling == settings_of(fine).sampling
        before, after = recorded(settings_of(fine)), recorded(settings_of(coarse))
        assert after.pop("vllm") == {"quantization": "fp8"}
        assert after == before
    assert fine.digest() == config(*VLLM, "engine.vllm={}").digest() != coarse.digest()


def test_engines_of_runs_and_evaluations_get_them() -> None:
    run = config(*FP8)
    assert run_pool(run, longest_sequence=4096)._options["sampler"]["vllm"] == {"quantization": "fp8"}
    assert sampling_pool(run.engine, None, cache_tokens=1)._options["sampler"]["vllm"] == {"quantization": "fp8"}
    model = EvaluatedModel(name="model", digest="", folder=Path("model"), config=None)
    assert engine_name(model, settings_of_run(run)) == 'vllm/2 bfloat16 {"quantization": "fp8"}'
    assert engine_name(model, settings_of_run(config(*VLLM))) == "vllm/2 bfloat16"


def test_quantised_engines_start_afresh_for_new_weights() -> None:
    fine, coarse = (EngineSettings(sampler="vllm", vllm=each) for each in ({}, {"quantization": "fp8"}))
    assert options_of("vllm", fine)["in_place"] and not options_of("vllm", coarse)["in_place"]
    assert fine.hands_over(spread=False) and not coarse.hands_over(spread=False)
