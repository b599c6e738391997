"""Clusters, models and their shapes: what is known, what is read from a folder, and what is refused."""

import json
import struct
from math import prod
from pathlib import Path

import pytest

import infuser_core.nano
from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.errors import ConfigError, UsageError
from infuser_core.memory.hardware import (
    cluster_of_size,
    free_host_memory,
    known_gpus,
    parse_cluster,
    read_table,
    sleep_level,
)
from infuser_core.memory.shape import find_shape, known_shapes, read_shape, shape_of


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "name"),
    [
        ("8xH100", 1, 8, "H100"),
        ("1xRTX4090", 1, 1, "RTX4090"),
        ("2x8xH100", 2, 8, "H100"),
        ("2X8xh100", 2, 8, "H100"),
        ("64xH200", 8, 8, "H200"),
        ("4xA100-40", 1, 4, "A100-40"),
        ("4xA100-80GB", 1, 4, "A100-80"),
        ("3x4xB200", 3, 4, "B200"),
        (" 1 x rtx 3090 ", 1, 1, "RTX3090"),
    ],
)
def test_forms_of_a_cluster(text: str, nodes: int, per_node: int, name: str):
    found = parse_cluster(text)
    assert (found.nodes, found.per_node, found.gpu.name) == (nodes, per_node, name)
    assert found.ranks == nodes * per_node
    assert parse_cluster(found.label) == found


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(UsageError, match="unknown GPU 'V100'") as caught:
        parse_cluster("8xV100")
    assert all(name in caught.value.hint for name in known_gpus())


@pytest.mark.parametrize("text", ["H100", "0xH100", "8x0xH100", "x8xH100", "", "8x", "-1xH100", "2x2x2xH100"])
def test_what_is_no_cluster_is_refused(text: str):
    with pytest.raises(UsageError) as caught:
        parse_cluster(text)
    assert caught.value.hint


def test_partly_empty_nodes_are_refused():
    with pytest.raises(UsageError, match="whole nodes"):
        parse_cluster("12xH100")


def test_the_table_names_its_sources_and_has_sane_numbers():
    assert {"H100", "H200", "A100-80", "A100-40", "L40S", "RTX4090", "RTX3090", "B200"} <= set(known_gpus())
    assert all(row["source"] for row in read_table("hardware"))
    for gpu in known_gpus().values():
        assert 20e9 < gpu.memory < 200e9
        assert 50e12 < gpu.flops < 3000e12


def test_nodes_have_eight_gpus_where_only_a_total_is_given():
    assert (cluster_of_size(known_gpus()["H100"], 512).nodes, cluster_of_size(known_gpus()["H100"], 4).nodes) == (64, 1)


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
    assert known_shapes()[name].parameters == pytest.approx(billions * 1e9, rel=5e-3)


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-8b", "olmo3-7b-sft"])
def test_anchors_of_the_shipped_configurations_are_known(name: str):
    from infuser_core.config.overlays import load

    assert shape_of(load([Path(f"configs/{name}.yaml")]).anchor).layers > 30


def test_an_unknown_model_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"unknown shape \(known: olmo-3-7b, qwen3-0.6b"):
        shape_of(HubAnchor(type="hub", repo="somebody/model-1b"))
    with pytest.raises(UsageError, match="neither a folder"):
        find_shape("model-1b")


def test_a_hub_model_in_the_local_cache_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--somebody--model-1b" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    folder.joinpath("config.json").write_text((ANCHORS / "anchor" / "config.json").read_text())
    assert shape_of(HubAnchor(type="hub", repo="somebody/model-1b")).hidden == 128


def test_a_folder_without_a_readable_config_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_shape(tmp_path)
    for text, words in (("{", "no JSON"), ("{}", "has no"), ('{"num_experts": 8}', "mixture")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            shape_of(FolderAnchor(type="folder", path=str(tmp_path)))


def test_windows_bound_what_a_token_looks_at():
    windowed = known_shapes()["olmo-3-7b"]
    assert windowed.pairs(4096) == 4096**2 / 2
    every = 12_288**2 / 2
    assert 0.25 * every < windowed.pairs(12_288) < every


@pytest.mark.parametrize(("limit", "used", "free"), [
    # A machine of 24,683,652 kB, of which 19,266,024 are free, in a container or in none.
    (None, None, 19_266_024 * 1024),
    ("max", "5000000000", 19_266_024 * 1024),
    ("17179869184", "1179869184", 16_000_000_000),
    ("1179869184", "1180000000", 0),
])  # fmt: skip
def test_free_memory_is_the_machines_within_the_containers_limit(
    tmp_path: Path, limit: str | None, used: str | None, free: int
) -> None:
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:       24683652 kB\nMemFree:         8259372 kB\nMemAvailable:   19266024 kB\n")
    if limit is not None and used is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
    assert free_host_memory(facts, tmp_path) == free
    # Two engines of weights for which half of it is just enough, and one byte more.
    assert sleep_level(free // 4, engines=2, free=free) == 1
    assert sleep_level(free // 4 + 1, engines=2, free=free) == 2
