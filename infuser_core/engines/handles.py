"""Warm engines, and what a phase gets of one: a sampler that is shared, or a trainer that is its own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from infuser_core.engines.protocols import (
    Completion,
    Keep,
    Objective,
    Probed,
    Progress,
    PromptGroup,
    SamplingParams,
    Similarity,
    StepReport,
    Tokenizer,
    Trainer,
    TrainGroup,
    no_keep,
    no_progress,
)
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint


@dataclass(slots=True, kw_only=True)
class Warm:
    """An engine and the checkpoint its state equals."""

    engine: Any
    """The engine itself."""
    checkpoint_id: str
    """Its checkpoint; empty once its state moved on, until `adopt` names the new one."""
    saved_step: int | None = None
    """Step at which the present state was saved; None where it moved on since."""
    asleep: bool = False
    """Whether it gave its accelerator memory to others."""
    turn: Any = field(default_factory=RLock)
    """Held by whoever loads it or samples from it."""
    user: object = None
    """Whom the trainer was given to last."""


Turn = Callable[[str, Checkpoint], AbstractContextManager[Warm]]
"""`turn(kind, checkpoint)`: the engine with that checkpoint, for the code inside alone."""


class SharedSampler:
    """A sampler of one checkpoint. Phases that share its engine take turns, call by call."""

    def __init__(self, checkpoint: Checkpoint, turn: Turn) -> None:
        self._turn = turn
        self.load(checkpoint)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        with self._turn("sampler", checkpoint) as warm:
            # Kept: nobody waits for a tokenizer while another phase samples.
            self._tokenizer: Tokenizer = warm.engine.tokenizer

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        with self._turn("sampler", self._checkpoint) as warm:
            drawn: list[list[Completion]] = warm.engine.sample(groups, params, progress=progress, keep=keep)
            return drawn


class OwnTrainer:
    """A trainer that tells the pool when its state leaves the checkpoint: a retried phase then loads again.

    It holds what was done with it, so it serves nobody any more once another phase has asked for it.
    """

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        warm.user = self

    @property
    def _trainer(self) -> Trainer:
        if self._warm.user is not self:
            raise EngineError(
                "another phase has taken over this trainer",
                hint="two phases that need one trainer cannot run beside each other",
            )
        trainer: Trainer = self._warm.engine
        return trainer

    def load(self, checkpoint: Checkpoint) -> None:
        self._warm.checkpoint_id, self._warm.saved_step = "", None
        self._trainer.load(checkpoint)
        self._warm.checkpoint_id = checkpoint.checkpoint_id

    def zero_grad(self) -> None:
        self._trainer.zero_grad()

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        return self._trainer.forward_backward(groups, objective, denominator=denominator, progress=progress)

    def optim_step(self, learning_rate: float) -> float:
        self._warm.checkpoint_id, self._warm.saved_step = "", None
        return self._trainer.optim_step(learning_rate)

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[list[float]]]:
        return self._trainer.logprobs(groups, temperature=temperature, progress=progress)

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> list[Similarity]:
        return self._trainer.probe(groups, objective, reference, progress=progress)

    def probe_once(
        self,
        groups: Sequence[TrainGroup],
        objective: Objective,
        reference: Path,
        *,
        denominator: int | None = None,
        progress: Progress = no_progress,
    ) -> Probed:
        return self._trainer.probe_once(groups, objective, reference, denominator=denominator, progress=progress)

    def keep_gradient(self, path: Path) -> float:
        return self._trainer.keep_gradient(path)

    def add_gradient(self, path: Path) -> None:
        self._trainer.add_gradient(path)

    def save(self, path: Path) -> int:
        step = self._trainer.save(path)
        # Only a state that left its checkpoint needs a new name.
        self._warm.saved_step = None if self._warm.checkpoint_id else step
        return step
