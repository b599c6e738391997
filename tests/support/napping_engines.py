"""Engines that sleep, wake and load in sight: what happened is in happened, oldest first."""

import torch
from torch import Tensor

from infuser_core.engines.fake import FakeTrainer, ScriptedSampler
from infuser_core.schemas import Checkpoint

happened: list[str] = []


class Trainer(FakeTrainer):
    """Keeps its state asleep."""

    def load(self, checkpoint: Checkpoint) -> None:
        happened.append(f"trainer loads {checkpoint.checkpoint_id}")
        super().load(checkpoint)

    def sleep(self) -> None:
        happened.append("trainer sleeps")

    def wake(self) -> None:
        happened.append("trainer wakes")


class Sampler(ScriptedSampler):
    """Likewise."""

    def load(self, checkpoint: Checkpoint) -> None:
        happened.append(f"sampler loads {checkpoint.checkpoint_id}")
        super().load(checkpoint)

    def sleep(self) -> None:
        happened.append("sampler sleeps")

    def wake(self) -> None:
        happened.append("sampler wakes")


class Parking(Trainer):
    """Keeps states of roles in host memory, and has something to close, so that it is handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, tuple[Tensor, int]] = {}

    def park(self, name: str) -> bool:
        optimizer = self._optimizer
        kept = torch.cat([self._flat.data, *(each.flatten() for each in optimizer.state().values())])
        self.waiting[name] = kept, optimizer.steps
        return True

    def take(self, checkpoint: Checkpoint) -> None:
        happened.append(f"trainer takes {checkpoint.role}")
        kept, self._optimizer.steps = self.waiting.pop(checkpoint.role)
        parts = [self._flat.data, *(each.flatten() for each in self._optimizer.state().values())]
        for mine, theirs in zip(parts, kept.split([each.numel() for each in parts]), strict=True):
            mine.copy_(theirs)

    def drop(self, name: str) -> None:
        del self.waiting[name]

    def close(self) -> None:
        happened.append("trainer closes")
