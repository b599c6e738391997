"""Plans count what is trained and what the optimizer keeps of it: adapters, and each optimizer's own moments."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from infuser_core.config.overlays import load
from infuser_core.config.roles import AdapterSettings, OptimizerSettings
from infuser_core.engines.hf.adapters import create_adapters
from infuser_core.engines.hf.causal_lm import build_meta_model, read_config
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.memory.shape import read_shape
from infuser_core.nano.lab import anchor_path
from infuser_core.planning.advice import advice
from infuser_core.planning.disk import run_files
from infuser_core.planning.setup import Setup

GIB = 2**30


def asked(*overlays: str) -> Setup:
    files = [f"configs/{name}.yaml" for name in ("qwen3-4b", "engine/one-gpu", *overlays)]
    return Setup.of(load(files), "1xRTX4090")


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], ["down_proj"]])
def test_adapters_are_counted_as_peft_makes_them(tmp_path: Path, targets: list[str] | str) -> None:
    adapter = AdapterSettings(rank=3, targets=targets)
    made = create_adapters(build_meta_model(read_config(anchor_path())), adapter, tmp_path, base="", seed=0)
    shape = read_shape(anchor_path())
    assert shape.adapted(adapter).trained == sum(each.numel() for each in made.values())
    assert shape.adapted(adapter).adapted(None).trained == shape.trained == shape.parameters


def test_a_4b_model_trains_in_24_gb_with_adapters_alone() -> None:
    whole, small = asked(), asked("engine/lora")
    trainers = [each.memory[0] for each in (whole, small)]
    assert not trainers[0].fits and trainers[1].fits
    # Bytes that nothing less than the frozen weights could take.
    assert trainers[1].total > 2 * small.shape.parameters
    assert any("cotrain.adapter.type=lora" in knob.settings and knob.fits for knob in advice(whole))
    assert not advice(small)
    files = [run_files(each.config, each.shape) for each in (whole, small)]
    assert files[1].checkpoint == 12 * small.shape.trained < 0.01 * files[0].checkpoint
    assert files[1].in_all > 4 * small.shape.parameters


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_moments_are_counted_as_each_optimizer_keeps_them(tmp_path: Path, name: str) -> None:
    prepare_anchor(anchor_path(), tmp_path, optimizer={"name": name})
    kept = sum(each.numel() for each in load_file(tmp_path / "optimizer.safetensors").values())
    shape = read_shape(anchor_path())
    # The shape leaves out norms of a head's width.
    assert shape.moments(name) == pytest.approx(kept, rel=0.01)
    config = load([Path("configs/nano-basic.yaml")])
    settings = config.cotrain.model_copy(update={"optimizer": OptimizerSettings(name=name)})
    asked = Setup.of(config.model_copy(update={"cotrain": settings}), "1xRTX4090")
    (moments,) = [part.bytes for part in asked.memory[0].parts if part.name == "moments (fp32)"]
    assert moments == pytest.approx(4 * kept * asked.layout.warm_trainers, rel=0.01)
    files = sum((tmp_path / name).stat().st_size for name in ("model.safetensors", "optimizer.safetensors"))
    assert run_files(asked.config, asked.shape).checkpoint == pytest.approx(files, rel=0.02)
