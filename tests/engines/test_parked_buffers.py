"""Parked buffers hold no memory, and come back below every view of them."""

import torch

from infuser_core.engines.deepspeed.zero import Parked, emptied


def test_parked_buffers_come_back_below_their_views() -> None:
    whole = torch.arange(12.0)
    alias, view = whole.detach(), whole[4:8].view(2, 2)
    scratch = torch.ones(5)
    parked = Parked(kept=[whole, alias], lost=[scratch[1:], scratch])
    assert whole.untyped_storage().nbytes() == scratch.untyped_storage().nbytes() == 0
    parked.restore()
    assert torch.equal(whole, torch.arange(12.0)) and torch.equal(view, torch.tensor([[4.0, 5.0], [6.0, 7.0]]))
    view.add_(1.0)
    assert float(alias[4]) == 5.0
    assert torch.equal(scratch, torch.zeros(5))


def test_storage_below_several_tensors_is_freed_once() -> None:
    buffer = torch.zeros(8)
    freed = emptied([buffer, buffer[2:], buffer.view(2, 4)])
    assert [size for _, size in freed] == [32]
    assert emptied([buffer]) == []
