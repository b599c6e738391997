"""The shipped engine overlays: the paper's models fit with them, and a plan without one says so."""

from pathlib import Path

import pytest

from infuser_core.capacity.advice import advice
from infuser_core.capacity.answer import as_text
from infuser_core.capacity.forecast import Forecast, ask, forecast
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.engines.configured import SAMPLERS, TRAINERS, longest_sequence, warm_trainers

CONFIGS = ("qwen3-4b", "qwen3-8b", "olmo3-7b-sft")


def config(name: str, engine: str = "") -> RunConfig:
    overlays = [Path(f"configs/engine/{engine}.yaml")] if engine else []
    return load([Path(f"configs/{name}.yaml"), *overlays])


def planned(name: str, engine: str, gpus: str, model: str | None = None) -> Forecast:
    return forecast(ask(config(name, engine), gpus, model=model, tokens=[], disk=3.0))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_papers_models_fit_on_eight_gpus(name: str) -> None:
    found = planned(name, "eight-gpus", "8xH100")
    assert found.fits
    assert [note for note in found.notes if "GPUs" in note] == []


def test_other_overlays_fit_where_they_say() -> None:
    assert planned("qwen3-4b", "eight-gpus-split", "8xH100").fits
    assert planned("qwen3-4b", "one-gpu", "1xH200").fits
    assert planned("qwen3-4b", "one-gpu", "1xH100", "qwen3-1.7b").fits
    assert planned("nano", "laptop", "1xRTX3090").fits


@pytest.mark.parametrize("name", CONFIGS)
def test_without_an_overlay_the_plan_says_what_to_do(name: str) -> None:
    found = planned(name, "", "8xH100")
    page = as_text(found, advice(found.asked), None)
    assert "it does not fit: trainer" in page
    assert "engine.trainer=deepspeed engine.ranks=8 engine.placement=colocated" in page
    assert "configs/engine/one-gpu.yaml, eight-gpus.yaml" in page


def test_split_accelerators_are_the_trainers_or_the_samplers() -> None:
    engine = config("qwen3-4b", "eight-gpus-split").engine
    options = SAMPLERS["vllm"](engine)
    assert (options["reserved"], options["memory"], options["sleep"]) == (4, 0.425, False)
    assert warm_trainers(engine) == 1
    turns = config("qwen3-4b", "eight-gpus").engine
    options = SAMPLERS["vllm"](turns)
    assert (options["reserved"], options["memory"], options["sleep"]) == (0, 0.85, True)
    assert "attention" not in TRAINERS["deepspeed"](turns)


def test_the_longest_sequence_counts_prompts_both_roles_and_benchmarks() -> None:
    paper = config("qwen3-4b")
    assert longest_sequence(paper) == 4096 + 16_384, "code benchmarks answer longest"
    bare = paper.model_copy(update={"evaluate": paper.evaluate.model_copy(update={"benchmarks": []})})
    assert longest_sequence(bare) == 4096 + 8192
