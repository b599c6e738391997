"""What the tests of several trainer ranks share: trainers of both kinds, and how far two states differ."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from engine_tiny import OBJECTIVE, SHAPES, make_groups
from safetensors.torch import load_file
from stock_engines import local_trainer

from infuser_core.config.engine import EngineSettings
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.configured import options_of
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.protocols import Trainer, TrainGroup
from infuser_core.schemas import Checkpoint

if TYPE_CHECKING:
    from infuser_core.engines.deepspeed.rank import RankOptions

BUDGET = 36
LIMIT = 1e-5
"""Relative error between trainers of one or more ranks: fp32, with sums in another order."""
QUESTIONS = [*SHAPES, (7, [9, 8, 9, 8, 7])]
"""Questions of one rank, and one over the budget that ranks share."""

_started: dict[tuple[int, int], Trainer] = {}


def ranks(number: int, stage: int, **options: object) -> Trainer:
    """A trainer of several ranks on CPUs."""
    from infuser_core.engines.deepspeed.trainer import DeepSpeedTrainer

    changes = {"ranks": number, "zero_stage": stage, "device": "cpu", "token_budget": BUDGET}
    return DeepSpeedTrainer(**options_of("deepspeed", EngineSettings()) | changes | options)


def shared(number: int, stage: int, checkpoint: Checkpoint) -> Trainer:
    """Ranks that all tests use one after the other, at the checkpoint. They end with the process."""
    if (number, stage) not in _started:
        _started[number, stage] = ranks(number, stage)
    trainer = _started[number, stage]
    trainer.load(checkpoint)
    trainer.zero_grad()
    return trainer


def rank_options(stage: int) -> "RankOptions":
    """What one of those ranks is told."""
    from infuser_core.engines.deepspeed.rank import RankOptions

    engine = EngineSettings(zero_stage=stage, device="cpu", token_budget=BUDGET)  # type: ignore[arg-type]
    options = engine.model_dump(include={field.name for field in fields(RankOptions)})
    return RankOptions(**options, bucket=10_000, optimizer=AdamWOptions())


def local(checkpoint: Checkpoint, **options: object) -> LocalTrainer:
    """The trainer that defines what is right."""
    trainer = local_trainer(**{"token_budget": BUDGET} | options)
    trainer.load(checkpoint)
    return trainer


def batch(seed: int = 0) -> list[TrainGroup]:
    """Four groups of unlike lengths."""
    return make_groups(SHAPES[:4], seed=seed)


def step(trainer: Trainer, seed: int) -> float:
    """One AdamW step on a batch of its own; the gradient's norm."""
    trainer.zero_grad()
    trainer.forward_backward(batch(seed), OBJECTIVE, denominator=4)
    norm = trainer.optim_step(1e-3)
    trainer.zero_grad()
    return norm


def saved(trainer: Trainer, folder: Path) -> Checkpoint:
    """The trainer's state as a checkpoint."""
    folder.mkdir(parents=True)
    number = trainer.save(folder)
    return Checkpoint(checkpoint_id=folder.name, role="solver", path=str(folder), step=number)


def same_bytes(one: Path | str, other: Path | str) -> None:
    """Two checkpoints have the same files."""
    names = sorted(path.name for path in Path(one).iterdir())
    assert names == sorted(path.name for path in Path(other).iterdir()) and len(names) > 3
    for name in names:
        assert (Path(one) / name).read_bytes() == (Path(other) / name).read_bytes(), name


def error(one: Path, other: Path) -> float:
    """Relative distance of two files of tensors with the same names and shapes."""
    left, right = load_file(one), load_file(other)
    assert {name: each.shape for name, each in left.items()} == {name: each.shape for name, each in right.items()}
    return _norm(left[name] - right[name] for name in left) / max(_norm(right.values()), 1e-30)


def state_error(one: Path | str, other: Path | str) -> float:
    """The larger of the errors of weights and moments."""
    return max(error(Path(one) / name, Path(other) / name) for name in ("model.safetensors", "optimizer.safetensors"))


def _norm(tensors: Iterable) -> float:
    return float(sum(float(each.double().square().sum()) for each in tensors) ** 0.5)
