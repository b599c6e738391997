"""Warm engines by checkpoint: asking twice for the same checkpoint costs one load.

Engines are found by name: `hf` is `infuser_core/engines/hf_sampler.py`, `fake` is `fake.py`, and
`my_package.module:Name` works from anywhere. Torch and transformers load when the first engine is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, Literal

from infuser_core.engines.chat import SamplerChat
from infuser_core.engines.protocols import (
    ChatModel,
    Objective,
    Probed,
    Progress,
    Sampler,
    Similarity,
    StepReport,
    Trainer,
    TrainGroup,
    no_progress,
)
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

Placement = Literal["colocated", "split"]
"""Whether engines take turns on the same accelerators, or have their own."""


@dataclass(slots=True, kw_only=True)
class _Warm:
    """An engine and the checkpoint its state equals."""

    engine: Any
    """The engine itself."""
    checkpoint_id: str
    """Its checkpoint; empty once its state moved on, until `adopt` names the new one."""
    saved_step: int | None = None
    """Step at which the present state was saved; None where it moved on since."""
    asleep: bool = False
    """Whether it gave its accelerator memory to others."""


class EnginePool:
    """Samplers and trainers of a run, one warm engine of each kind per role.

    `max_trainers` bounds the warm trainers: 1 lets roles take turns on a small accelerator. With placement `colocated`
    all engines share the accelerators: whoever is asked for is awake, and the others sleep where they can (`sleep` and
    `wake` of an engine). With `split` each has its own. An engine that has failed (`failed`) or whose ranks no longer
    answer (`alive`) is replaced when it is asked for.
    """

    def __init__(
        self,
        *,
        sampler: str = "hf",
        trainer: str = "local",
        sampler_options: Mapping[str, Any] | None = None,
        trainer_options: Mapping[str, Any] | None = None,
        max_trainers: int = 2,
        placement: Placement = "split",
    ) -> None:
        self._names = {"sampler": sampler, "trainer": trainer}
        self._options = {"sampler": dict(sampler_options or {}), "trainer": dict(trainer_options or {})}
        self._max_trainers = max_trainers
        self._placement = placement
        self._warm: dict[tuple[str, str], _Warm] = {}
        self._lock = RLock()

    def trainer(self, checkpoint: Checkpoint) -> Trainer:
        """A trainer whose state equals the checkpoint, without accumulated gradients."""
        warm = self._engine("trainer", checkpoint)
        warm.engine.zero_grad()
        return _Watched(warm)

    def sampler(self, checkpoint: Checkpoint) -> Sampler:
        """A sampler of the checkpoint's weights."""
        engine: Sampler = self._engine("sampler", checkpoint).engine
        return engine

    def chat(self, checkpoint: Checkpoint) -> ChatModel:
        """The checkpoint as a greedy chat model, named after it."""
        return SamplerChat(self.sampler(checkpoint), name=checkpoint.checkpoint_id)

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Say that the warm trainer of the checkpoint's role was just saved as this checkpoint.

        Without a warm trainer that was saved in its present state, at the checkpoint's step, nothing is believed and
        the next request loads: a stage answered from the store trained nothing in this process.
        """
        with self._lock:
            warm = self._warm.get(("trainer", checkpoint.role))
        if warm is not None and warm.saved_step == checkpoint.step:
            warm.checkpoint_id = checkpoint.checkpoint_id

    def close(self) -> None:
        """End and drop every engine."""
        with self._lock:
            for key in list(self._warm):
                self._drop(key)

    def _engine(self, kind: str, checkpoint: Checkpoint) -> _Warm:
        key = (kind, checkpoint.role)
        with self._lock:
            if key in self._warm and not _works(self._warm[key].engine):
                self._drop(key)
            if self._placement == "colocated":
                self._rest(but=key)
            if key not in self._warm:
                self._warm[key] = self._make_room(kind) or self._new(kind)
            # Moved to the end: the first entry of a kind is the least recently used one.
            warm = self._warm[key] = self._warm.pop(key)
        if warm.asleep:
            warm.engine.wake()
            warm.asleep = False
        if warm.checkpoint_id != checkpoint.checkpoint_id:
            warm.checkpoint_id, warm.saved_step = "", None
            warm.engine.load(checkpoint)
            warm.checkpoint_id = checkpoint.checkpoint_id
        return warm

    def _new(self, kind: str) -> _Warm:
        return _Warm(engine=find_engine(self._names[kind], kind)(**self._options[kind]), checkpoint_id="")

    def _make_room(self, kind: str) -> _Warm | None:
        """Drop the trainers that are one too many; one with processes of its own is handed on to the next role."""
        if kind != "trainer":
            return None
        trainers = [key for key in self._warm if key[0] == kind]
        handed = None
        for key in trainers[: max(0, len(trainers) - self._max_trainers + 1)]:
            warm = self._warm[key]
            if handed is None and hasattr(warm.engine, "close") and _works(warm.engine):
                del self._warm[key]
                handed = _Warm(engine=warm.engine, checkpoint_id="", asleep=warm.asleep)
            else:
                self._drop(key)
        return handed

    def _rest(self, *, but: tuple[str, str]) -> None:
        """Engines that can sleep give the accelerators to the one that is asked for."""
        for key, warm in self._warm.items():
            if key != but and not warm.asleep and hasattr(warm.engine, "sleep"):
                warm.engine.sleep()
                warm.asleep = True

    def _drop(self, key: tuple[str, str]) -> None:
        """Engines with processes of their own end them."""
        engine = self._warm.pop(key).engine
        if hasattr(engine, "close"):
            engine.close()


def _works(engine: Any) -> bool:
    """Engines in this process always do; one with ranks says so itself."""
    return not getattr(engine, "failed", False) and (not hasattr(engine, "alive") or engine.alive())


def find_engine(name: str, kind: str) -> Callable[..., Any]:
    """The engine class of a configuration name. Raises EngineError for an unknown one."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        engine: Callable[..., Any] = getattr(import_module(module), attribute)
        return engine
    for module in (f"infuser_core.engines.{name}_{kind}", f"infuser_core.engines.{name}"):
        if find_spec(module) is not None:
            found: Callable[..., Any] = getattr(import_module(module), kind.upper())
            return found
    raise EngineError(
        f"unknown {kind} {name!r}",
        hint=f"name a module infuser_core/engines/<name>_{kind}.py, or my_package.module:Name",
    )


class _Watched:
    """A trainer that tells the pool when its state leaves the checkpoint: a retried phase then loads again."""

    def __init__(self, warm: _Warm) -> None:
        self._warm = warm
        self._trainer: Trainer = warm.engine

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
