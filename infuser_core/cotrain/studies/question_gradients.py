"""Gradients of the solver's objective for single questions, as vectors. Shape suffixes: _G answers, _N parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.algorithm.advantage import centre
from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import DEFAULT
from infuser_core.cotrain.phases.training import ObjectiveSettings
from infuser_core.errors import CheckpointError
from infuser_core.protocols import Trainer
from infuser_core.schemas import Checkpoint, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGradients:
    """Computes ascent directions of the objective on a trainer that holds the solver."""

    solver: Trainer
    objective: ObjectiveSettings
    constants: Objective
    file: Path
    """Scratch file of the trainer's gradient."""

    def of(self, answers: Sequence[Rollout], advantages_G: Sequence[float] | None = None) -> np.ndarray:
        """Gradient [N] for one question's answers; their rewards minus the mean are the default advantages."""
        return self.of_batch([(answers, centred_rewards(answers) if advantages_G is None else advantages_G)])

    def of_batch(self, batch: Sequence[tuple[Sequence[Rollout], Sequence[float]]]) -> np.ndarray:
        """Sum [N] of the gradients of several questions' answers at these advantages."""
        self.solver.zero_grad()
        train = [self.objective.train_group(answers, advantages_G) for answers, advantages_G in batch]
        self.solver.forward_backward(train, self.constants, denominator=1)
        self.solver.keep_gradient(self.file)
        return load_flat(self.file)

    def close(self) -> None:
        """Drop the trainer's gradient and the scratch file."""
        self.solver.zero_grad()
        self.file.unlink(missing_ok=True)


def centred_rewards(answers: Sequence[Rollout]) -> list[float]:
    """Advantages of a question's answers: rewards minus their mean."""
    return centre([answer.reward for answer in answers])


def load_flat(path: Path, prefix: str = "") -> np.ndarray:
    """Load the tensors of a file or its shards whose names have the prefix, as one vector sorted by name [N]."""
    from safetensors.numpy import load_file

    from infuser_core.engines.training.checkpoint import shards_of

    stored = {name: each for file in shards_of(path) for name, each in load_file(file).items()}
    pieces = [stored[name].ravel() for name in sorted(stored) if name.startswith(prefix)]
    if not pieces:
        raise CheckpointError(f"{path} has no second moments", hint="study a run whose optimizer is AdamW")
    return np.concatenate(pieces).astype(np.float64)


def load_root(checkpoint: Checkpoint) -> np.ndarray:
    """Load AdamW's root sqrt(v / (1 - b2^t)) + eps of a checkpoint [N]."""
    from infuser_core.engines.training.checkpoint import MOMENTS, read_state

    folder = Path(checkpoint.path)
    state = read_state(folder)
    if (name := state.optimizer.get("name", DEFAULT)) != DEFAULT:
        raise CheckpointError(f"{folder} was trained with {name}", hint="study a run whose optimizer is adamw")
    correction = 1 - state.optimizer["beta2"] ** state.step if state.step else 1.0
    root_N: np.ndarray = np.sqrt(load_flat(folder / MOMENTS, "v.") / correction) + state.optimizer["eps"]
    return root_N
