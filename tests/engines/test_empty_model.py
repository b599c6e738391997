"""A model built without values takes the room of its architecture alone, and is otherwise the loaded one."""

from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint
from transformers import AutoConfig

from infuser_core.engines.deepspeed.zero import empty_model
from infuser_core.engines.hf.causal_lm import load_model

CPU = torch.device("cpu")


@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen3", False), ("olmo2", False)])
def test_with_the_values_it_is_the_loaded_model(tmp_path: Path, family: str, tied: bool) -> None:
    folder = Path(make_checkpoint(tmp_path, family=family, tied=tied).path)
    loaded, empty = load_model(folder, dtype=torch.float32, device=CPU), empty_model(folder)
    weights = dict(loaded.named_parameters())
    assert [(name, each.shape, each.dtype) for name, each in empty.named_parameters()] == [
        (name, each.shape, each.dtype) for name, each in weights.items()
    ]
    assert not empty.training and empty.config._attn_implementation == loaded.config._attn_implementation
    with torch.no_grad():
        for name, each in empty.named_parameters():
            each.copy_(weights[name])
    for (name, one), (other_name, other) in zip(empty.named_buffers(), loaded.named_buffers(), strict=True):
        assert name == other_name and torch.equal(one, other)


def test_nothing_is_written_where_the_values_will_be(tmp_path: Path) -> None:
    AutoConfig.for_model(
        "qwen3", vocab_size=50_000, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8
    ).save_pretrained(tmp_path)
    before = resident()
    model = empty_model(tmp_path)
    size = sum(each.numel() * each.element_size() for each in model.parameters())
    assert size > 200 * 2**20
    assert resident() - before < size / 8


def resident() -> int:
    """Bytes of this process's own memory that are in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
