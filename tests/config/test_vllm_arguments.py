"""Arguments of vLLM's engine pass through to it, are part of what a draw depends on, and never contradict INFUSER's."""

import ast
import inspect
from pathlib import Path

import pytest

from infuser_core.config.engine import RESERVED, EngineSettings
from infuser_core.config.overlays import load
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import check_keys, generate_questions, rollout_dev
from infuser_core.engines.configured import options_of, run_pool, sampling_pool
from infuser_core.engines.service.launch import ServiceOptions, engine_settings
from infuser_core.engines.vllm import worker
from infuser_core.errors import ConfigError
from infuser_core.evaluation import evaluate
from infuser_core.evaluation.models import EvaluatedModel
from infuser_core.evaluation.settings import engine_name, settings_of_run

BASE = {"dtype": "bfloat16", "device": "cpu", "threads": 1}
NANO = Path("configs/nano.yaml")
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


def test_every_argument_that_is_set_here_is_reserved_but_for_one_that_may_be_replaced() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(worker))) if isinstance(node, ast.Call)]
    (call,) = (each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "EngineArgs")
    fixed = {each.arg for each in call.keywords if each.arg}
    own = engine_settings(ServiceOptions(**BASE), model="model")
    assert fixed | own.keys() == RESERVED.keys() - {"seed"} | {"enforce_eager"}
    assert (
        engine_settings(ServiceOptions(**BASE, vllm={"enforce_eager": False}), model="model")["enforce_eager"] is False
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
    assert engine_name(model, settings_of_run(run)) == 'vllm bfloat16 {"quantization": "fp8"}'
    assert engine_name(model, settings_of_run(config(*VLLM))) == "vllm bfloat16"


def test_quantised_engines_start_afresh_for_new_weights() -> None:
    fine, coarse = (EngineSettings(sampler="vllm", vllm=each) for each in ({}, {"quantization": "fp8"}))
    assert options_of("vllm", fine)["in_place"] and not options_of("vllm", coarse)["in_place"]
    assert fine.hands_over(spread=False) and not coarse.hands_over(spread=False)
