import json
import struct
from math import prod
from pathlib import Path

import pytest

import infuser_core.nano
from infuser_core.capacity.shape import from_folder, named, shape_of, shapes
from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.errors import ConfigError, UsageError

ANCHORS = Path(infuser_core.nano.__file__).parent


def stored_parameters(folder: Path) -> int:
    """Elements in a model's weight file."""
    with (folder / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


@pytest.mark.parametrize("world", ["basic", "hard"])
def test_parameters_of_the_shipped_anchors_are_counted(world: str):
    shape = shape_of(NanoAnchor(world=world))
    folder = ANCHORS / ("anchor" if world == "basic" else "anchor_hard")
    assert shape.parameters == pytest.approx(stored_parameters(folder), rel=2e-3)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3-0.6b", 0.596),
        ("qwen3-1.7b", 1.72),
        ("qwen3-4b", 4.02),
        ("qwen3-8b", 8.19),
        ("qwen3-14b", 14.77),
        ("qwen3-32b", 32.76),
        ("olmo-3-7b", 7.30),
    ],
)
def test_parameters_of_known_models(name: str, billions: float):
    assert shapes()[name].parameters == pytest.approx(billions * 1e9, rel=5e-3)


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-8b", "olmo3-7b-sft"])
def test_anchors_of_the_shipped_configurations_are_known(name: str):
    from infuser_core.config.overlays import load

    assert shape_of(load([Path(f"configs/{name}.yaml")]).anchor).layers > 30


def test_an_unknown_model_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"unknown shape \(known: olmo-3-7b, qwen3-0.6b"):
        shape_of(HubAnchor(type="hub", repo="somebody/model-1b"))
    with pytest.raises(UsageError, match="neither a folder"):
        named("model-1b")


def test_a_hub_model_in_the_local_cache_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--somebody--model-1b" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    folder.joinpath("config.json").write_text((ANCHORS / "anchor" / "config.json").read_text())
    assert shape_of(HubAnchor(type="hub", repo="somebody/model-1b")).hidden == 128


def test_a_folder_without_a_readable_config_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        from_folder(tmp_path)
    for text, words in (("{", "no JSON"), ("{}", "has no"), ('{"num_experts": 8}', "mixture")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            shape_of(FolderAnchor(type="folder", path=str(tmp_path)))


def test_windows_bound_what_a_token_looks_at():
    windowed = shapes()["olmo-3-7b"]
    assert windowed.pairs(4096) == 4096**2 / 2
    every = 12_288**2 / 2
    assert 0.25 * every < windowed.pairs(12_288) < every
