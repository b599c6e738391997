"""Engines that sleep, wake and load in sight: what happened is in happened, oldest first."""

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
