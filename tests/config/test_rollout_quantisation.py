"""Quantised rollouts: refused where they cannot be or would go uncorrected, and part of what a draw depends on."""

from pathlib import Path

import pytest

from infuser_core.config.overlays import load
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.engines.configured import run_pool, sampling_pool
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.errors import ConfigError, EngineError
from infuser_core.phases import check_keys, evaluate, generate_questions, rollout_dev

NANO = Path("configs/nano.yaml")
VLLM = ["engine.sampler=vllm", "engine.dtype=bfloat16", "engine.device=auto"]
FP8 = [*VLLM, "engine.rollout_quantisation=fp8"]


def config(*changes: str) -> RunConfig:
    return load([NANO], list(changes))


@pytest.mark.parametrize(("changes", "told"), [
    (["engine.sampler=hf"], "sampler hf, not vllm"),
    (["engine.dtype=float32"], "dtype float32, not bfloat16"),
    (["engine.device=cpu"], "device cpu, which has no such kernels"),
    (["cotrain.loss.tis_cap=null"], "needs cotrain.loss.tis_cap"),
])  # fmt: skip
def test_it_is_refused_with_the_setting_that_stands_against_it(changes: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config(*FP8, *changes)


def test_a_machine_without_an_accelerator_refuses_before_any_model_is_loaded() -> None:
    with pytest.raises(EngineError, match="no kernels for fp8 on a CPU") as caught:
        ServiceSampler(dtype="bfloat16", device="cpu", quantisation="fp8", worker="scripted_engine")
    assert "rollout_quantisation" in caught.value.hint


def test_every_draw_of_a_run_records_it_and_other_settings_stay_what_they_were() -> None:
    fine, coarse = config(*VLLM), config(*FP8)
    for settings_of in (
        generate_questions.settings_of,
        rollout_dev.settings_of,
        evaluate.ask_settings,
        lambda each: check_keys.settings_of(each, solver={}).answers,
    ):
        assert settings_of(coarse).sampling.asked() == settings_of(fine).sampling.asked()
        before, after = recorded(settings_of(fine)), recorded(settings_of(coarse))
        assert after["sampling"].pop("quantisation") == "fp8"
        assert after == before
    assert fine.digest() == config(*VLLM, "engine.rollout_quantisation=null").digest() != coarse.digest()


def test_engines_of_a_run_are_told_and_those_of_an_evaluation_take_the_weights_as_they_are() -> None:
    run = config(*FP8)
    assert run_pool(run)._options["sampler"]["quantisation"] == "fp8"
    assert sampling_pool(run.engine, None, cache_tokens=1)._options["sampler"]["quantisation"] is None
