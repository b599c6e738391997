"""A trainer rank that says how much its tensors hold."""

import gc
from typing import Any

import torch
from distributed_tiny import batch
from engine_tiny import OBJECTIVE

from infuser_core.engines.deepspeed.rank import DeepSpeedRank
from infuser_core.engines.deepspeed.split import split


class Watched(DeepSpeedRank):
    """One rank alone."""

    def train(self) -> None:
        self.zero_grad()
        self.forward_backward(split(batch(), 1)[0], OBJECTIVE, 4)
        self.optim_step(1e-3)

    def held(self) -> int:
        """Bytes below all tensors of the process, without what lies on the host for a sleeper."""
        gc.collect()
        parked: Any = self._sleeping
        copies = {copy.untyped_storage().data_ptr() for _, copy in (parked._copies if parked else [])}
        found = {}
        for each in gc.get_objects():
            if issubclass(type(each), torch.Tensor):
                storage = each.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
        return sum(size for address, size in found.items() if address not in copies)
