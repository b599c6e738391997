"""A sampler takes another checkpoint of its model in place, and samples from it as a fresh one does."""

from pathlib import Path

import pytest
import torch
from engine_tiny import (
    ROUTED,
    SHAPES,
    make_checkpoint,
    make_family,
    make_groups,
    make_source,
    step,
    stock_model,
    trainer,
)
from safetensors.torch import load_file, save_file
from stock_engines import hf_sampler

from infuser_core.engines.deepspeed.zero import empty_model
from infuser_core.engines.hf.causal_lm import saved_buffers
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

ASKED = [PromptGroup(group_id="g", token_ids=[5, 6, 7], seeds=[1, 2, 3])]


def drawn(sampler: HFSampler) -> str:
    return repr(sampler.sample(ASKED, SamplingParams(temperature=0.7, max_tokens=20)))


def loaded(*checkpoints: Checkpoint) -> HFSampler:
    sampler = hf_sampler()
    for checkpoint in checkpoints:
        sampler.load(checkpoint)
    return sampler


@pytest.mark.parametrize("family", ["qwen3", "olmo2"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_second_checkpoint_of_the_model_is_sampled_as_if_it_were_the_first(
    tmp_path: Path, family: str, tied: bool
) -> None:
    first, second = (make_checkpoint(tmp_path / str(seed), seed=seed, tied=tied, family=family) for seed in (0, 1))
    sampler = loaded(first)
    before, places = drawn(sampler), {name: id(each) for name, each in sampler.weights().items()}
    sampler.load(second)
    assert {name: id(each) for name, each in sampler.weights().items()} == places
    assert drawn(sampler) == drawn(loaded(second)) != before


@pytest.mark.parametrize(("family", "sizes"), [("apertus", {"hidden_size": 32}), ("glm4_moe", ROUTED)])
def test_buffers_of_a_model_are_in_its_checkpoints_and_refilled_with_it(
    tmp_path: Path, family: str, sizes: dict[str, int]
) -> None:
    first = make_family(tmp_path, family, **sizes)
    engine = trainer(first)
    step(engine, make_groups(SHAPES[:2]), rate=1e-2)
    folder = tmp_path / "second"
    folder.mkdir()
    engine.save(folder)
    second = Checkpoint(checkpoint_id="second", role="solver", path=str(folder), step=1)
    fixed, kept = saved_buffers(stock_model(first)), saved_buffers(stock_model(second))
    assert fixed and all(torch.equal(kept[name], each) for name, each in fixed.items())
    sampler = loaded(first)
    places = {name: id(each) for name, each in sampler.weights().items()}
    sampler.load(second)
    assert {name: id(each) for name, each in sampler.weights().items()} == places
    assert drawn(sampler) == drawn(loaded(second))


def test_a_model_of_another_kind_is_built_anew(tmp_path: Path) -> None:
    first, second = (make_checkpoint(tmp_path / name, tied=name == "tied") for name in ("tied", "untied"))
    assert drawn(loaded(first, second)) == drawn(loaded(second))


def test_a_checkpoint_without_one_of_the_weights_is_refused_and_nothing_of_it_is_taken(tmp_path: Path) -> None:
    first, broken = (make_checkpoint(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    file = Path(broken.path) / "model.safetensors"
    weights = load_file(file)
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    sampler = loaded(first)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        sampler.load(broken)
    sampler.load(first)
    assert drawn(sampler) == drawn(loaded(first))


def test_sharded_training_refuses_a_model_with_buffers(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"sharded training.*act_fn"):
        empty_model(make_source(tmp_path, "apertus", hidden_size=32))
