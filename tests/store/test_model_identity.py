"""A model's digest covers every file that loading it reads: no two models share one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_tiny import make_source
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.local.hub import prepare_adapter
from infuser_core.engines.model_files import weight_files
from infuser_core.engines.training.checkpoint import count_weights
from infuser_core.errors import CheckpointError
from infuser_core.evaluation.anchors import anchor_digest


def pickled(folder: Path) -> None:
    """Other weights beside the safetensors, which come first."""
    weights = load_file(folder / "model.safetensors")
    torch.save({name: each + 1 for name, each in weights.items()}, folder / "pytorch_model.bin")


def pickle_alone(folder: Path) -> None:
    pickled(folder)
    (folder / "model.safetensors").unlink()


def sharded(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(folder.parent / "plain").save_pretrained(folder, max_shard_size="100KB")


def shards_below(folder: Path) -> None:
    sharded(folder)
    index = folder / "model.safetensors.index.json"
    (folder / "parts").mkdir()
    for shard in folder.glob("model-*.safetensors"):
        shard.rename(folder / "parts" / shard.name)
    index.write_text(index.read_text().replace('"model-', '"parts/model-'))


def pickle_shards(folder: Path) -> None:
    sharded(folder)
    for shard in folder.glob("model-*.safetensors"):
        torch.save(load_file(shard), folder / shard.name.replace("safetensors", "bin"))
        shard.unlink()
    index = folder / "model.safetensors.index.json"
    text = index.read_text().replace(".safetensors", ".bin")
    index.unlink()
    (folder / "pytorch_model.bin.index.json").write_text(text)


def named_by_config(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "model.safetensors").rename(folder / "own/weights.safetensors")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("{", '{"transformers_weights": "own/weights.safetensors",', 1))


def further_templates(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/tools.jinja").write_text("{{ messages[0]['content'] }} w9")


LAYOUTS = [pickled, pickle_alone, sharded, shards_below, pickle_shards, named_by_config, further_templates]


def content(folder: Path) -> str:
    """All that a model's folder decides: weights, configuration, templates; or that it cannot be loaded."""
    try:
        model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (CheckpointError, OSError, ValueError) as error:
        return type(error).__name__
    sums = {name: (each.sum().item(), each.square().sum().item()) for name, each in model.named_parameters()}
    words = (tokenizer.chat_template, sorted(tokenizer.get_vocab().items()), tokenizer.eos_token)
    return repr((sums, model.generation_config.to_dict(), words))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_without_which_the_model_is_another_is_in_its_digest(
    layout: Callable[[Path], None], tmp_path: Path
) -> None:
    make_source(tmp_path / "plain")
    folder = Path(shutil.copytree(tmp_path / "plain", tmp_path / "model"))
    layout(folder)
    (folder / "README.md").write_text("about it")
    whole, digest, seen = content(folder), anchor_digest(folder), set[str]()
    assert "Error" not in whole
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        kept = file.read_bytes()
        file.unlink()
        if content(folder) != whole:
            seen.add(file.name)
            assert anchor_digest(folder) != digest, file.name
        file.write_bytes(kept)
    assert anchor_digest(folder) == digest and "README.md" not in seen
    assert {file.name for file in weight_files(folder)} <= seen


def test_weights_in_a_folder_below_are_counted(tmp_path: Path) -> None:
    whole = make_source(tmp_path / "plain")
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    shards_below(folder)
    assert count_weights(folder) == count_weights(whole)


def test_weights_that_are_not_loaded_are_not_in_it(tmp_path: Path) -> None:
    folder = make_source(tmp_path / "plain")
    digest = anchor_digest(folder)
    pickled(folder)
    assert anchor_digest(folder) == digest


def test_pickles_with_other_weights_are_another_model(tmp_path: Path) -> None:
    folders = [make_source(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    for folder in folders:
        pickle_alone(folder)
    assert len({anchor_digest(folder) for folder in folders}) == 2


def test_an_adapter_of_another_base_is_another_model(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 1):
        store = tmp_path / str(seed)
        base = make_source(store / "base/one", seed=seed)
        (store / "anchor/two").mkdir(parents=True)
        prepare_adapter(base, store / "anchor/two", adapter=AdapterSettings(rank=2), seed=0)
        digests.append(anchor_digest(store / "anchor/two"))
    assert digests[0] != digests[1]
