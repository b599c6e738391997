"""Memory of a rank: a model built without its values takes no room, and parked buffers come back below every view."""

from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint
from transformers import AutoConfig

from infuser_core.engines.deepspeed.zero import empty_model
from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.training.parked import Parked, free_storages


@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen3", False), ("olmo2", False)])
def test_with_the_values_an_empty_model_is_the_loaded_one(tmp_path: Path, family: str, tied: bool) -> None:
    folder = Path(make_checkpoint(tmp_path, family=family, tied=tied).path)
    loaded, empty = load_model(folder, dtype=torch.float32, device=torch.device("cpu")), empty_model(folder)
    described = [
        [(name, each.shape, each.dtype) for name, each in model.named_parameters()] for model in (loaded, empty)
    ]
    assert described[0] == described[1]
    assert not empty.training and empty.config._attn_implementation == loaded.config._attn_implementation
    for (name, one), (other_name, other) in zip(empty.named_buffers(), loaded.named_buffers(), strict=True):
        assert name == other_name and torch.equal(one, other)


def test_nothing_is_written_where_the_values_will_be(tmp_path: Path) -> None:
    AutoConfig.for_model(
        "qwen3", vocab_size=50_000, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8
    ).save_pretrained(tmp_path)
    before = resident()
    model = empty_model(tmp_path)
    size = sum(each.nbytes for each in model.parameters())
    assert size > 200 * 2**20
    assert resident() - before < size / 8


def resident() -> int:
    """Bytes of this process's own memory that are in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def test_parked_buffers_come_back_below_their_views() -> None:
    whole, scratch = torch.arange(12.0), torch.ones(5)
    alias, view = whole.detach(), whole[4:8].view(2, 2)
    parked = Parked(state=[whole, alias], scratch=[scratch[1:], scratch])
    assert whole.untyped_storage().nbytes() == scratch.untyped_storage().nbytes() == 0
    parked.restore()
    assert torch.equal(whole, torch.arange(12.0)) and torch.equal(view, torch.tensor([[4.0, 5.0], [6.0, 7.0]]))
    view.add_(1.0)
    assert float(alias[4]) == 5.0
    assert torch.equal(scratch, torch.zeros(5))
    # Storage below several tensors is freed once.
    buffer = torch.zeros(8)
    assert [size for _, size in free_storages([buffer, buffer[2:], buffer.view(2, 4)])] == [32]
    assert free_storages([buffer]) == []
