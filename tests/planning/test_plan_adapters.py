"""Plans of runs that train adapters: their state alone counts, and one GPU of 24 GB is enough for a 4B model."""

from pathlib import Path

import pytest

from infuser_core.capacity.advice import advice
from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import held
from infuser_core.capacity.shape import from_folder
from infuser_core.capacity.volume import files_of
from infuser_core.config.overlays import load
from infuser_core.config.run import AdapterSettings
from infuser_core.engines.hf.adapters import create
from infuser_core.engines.hf.causal_lm import read_config
from infuser_core.nano.lab import anchor_path

GIB = 2**30


def asked(*overlays: str) -> Asked:
    files = [f"configs/{name}.yaml" for name in ("qwen3-4b", "engine/one-gpu", *overlays)]
    return Asked.of(load(files), "1xRTX4090")


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], ["down_proj"]])
def test_adapters_are_counted_as_peft_makes_them(tmp_path: Path, targets: list[str] | str) -> None:
    adapter = AdapterSettings(rank=3, targets=targets)
    made = create(read_config(anchor_path()), adapter, tmp_path, base="", seed=0)
    shape = from_folder(anchor_path())
    assert shape.adapted(adapter).trained == sum(each.numel() for each in made.values())
    assert shape.adapted(adapter).adapted(None).trained == shape.trained == shape.parameters


def test_a_4b_model_trains_in_24_gb_with_adapters_alone() -> None:
    whole, small = asked(), asked("engine/lora")
    trainers = [held(each)[0] for each in (whole, small)]
    assert not trainers[0].fits and trainers[1].fits
    # Bytes that nothing less than the frozen weights could take.
    assert trainers[1].total > 2 * small.shape.parameters
    assert any("cotrain.adapter.type=lora" in knob.settings and knob.fits for knob in advice(whole))
    assert not advice(small)
    files = [files_of(each.config, each.shape) for each in (whole, small)]
    assert files[1].checkpoint == 12 * small.shape.trained < 0.01 * files[0].checkpoint
    assert files[1].in_all > 4 * small.shape.parameters
