"""Groups whose numbers are not finite (NaN, inf): found, named, and left out of their batch.

Such a number costs its own group: a batch is checked as a whole, by its loss and the norm of its gradient. Only where
one is not finite are its groups computed again one by one, and the phase starts again without those that are not
finite by themselves: it goes on as if they had never been there.
"""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from infuser_core.algorithm.preset import Objective
from infuser_core.errors import EngineError
from infuser_core.protocols import Trainer, TrainGroup
from infuser_core.schemas import NotFinite

Result = TypeVar("Result")
HINT = (
    "compute in engine.dtype=float32; where the checkpoint itself is not finite, fork from an earlier iteration with "
    "a lower cotrain.solver.learning_rate or cotrain.generator.learning_rate"
)


class LostGroupsError(Exception):
    """An attempt at a batch found groups that are not finite; see `without_lost`."""

    def __init__(self, found: Sequence[NotFinite], *, of: int) -> None:
        super().__init__(found)
        self.found = found
        self.all = len(found) == of


def without_lost(
    attempt: Callable[[Collection[str]], Result], trainer: Trainer, *, workspace: Path
) -> tuple[Result, list[NotFinite]]:
    """`attempt(lost)` without the groups that earlier attempts lost, until one loses none.

    Raises EngineError where an attempt loses every group that it had.
    """
    lost: list[NotFinite] = []
    while True:
        try:
            return attempt({row.group_id for row in lost}), lost
        except LostGroupsError as error:
            lost += error.found
            if error.all:
                raise nothing_left(lost, at=_broken(trainer, workspace)) from None


def nothing_left(lost: Sequence[NotFinite], *, at: str = "") -> EngineError:
    """The end of a phase whose every group is lost; `at` is what is broken in the checkpoint itself."""
    cause = f"; the checkpoint itself is not finite in {at}" if at else ""
    return EngineError(
        f"nothing finite is left to train on: {lost[0]}, the first of {len(lost)} such{cause}", hint=HINT
    )


def _broken(trainer: Trainer, workspace: Path) -> str:
    """First tensor of the trainer's own weights and moments that is not finite; empty where each is."""
    with TemporaryDirectory(dir=workspace) as folder:
        trainer.save(Path(folder))
        files = sorted(Path(folder).glob("*.safetensors"))
        return next((f"{name} of {file.name}" for file in files if (name := first_tensor(file))), "")


def is_finite(*values: float) -> bool:
    """Whether all of the numbers are."""
    return all(map(math.isfinite, values))


def lose(trainer: Trainer, groups: Sequence[TrainGroup], constants: Objective, *, of: int, workspace: Path) -> None:
    """Compute the groups of a batch of `of` one by one, and raise LostGroupsError for those that are not finite.

    Raises LostGroupsError where some of them are not finite by themselves.
    """
    found = [row for group in groups if (row := flaw(trainer, group, constants, workspace=workspace))]
    if found:
        raise LostGroupsError(found, of=of)


def flaw(trainer: Trainer, group: TrainGroup, constants: Objective, *, workspace: Path) -> NotFinite | None:
    """The first number of a group by itself that is not finite, if any. Accumulated gradients are dropped."""
    trainer.zero_grad()
    loss = trainer.forward_backward([group], constants, denominator=1).loss
    with TemporaryDirectory(dir=workspace) as folder:
        file = Path(folder) / "gradient.safetensors"
        norm = trainer.keep_gradient(file)
        trainer.zero_grad()
        if is_finite(loss, norm):
            return None
        return flawed(group.group_id, loss, norm, tensor=first_tensor(file))


def flawed(group_id: str, loss: float, norm: float, *, tensor: str = "") -> NotFinite:
    """The row of a group whose loss, or else its gradient, is not finite."""
    quantity, value = ("gradient", norm) if is_finite(loss) else ("loss", loss)
    return NotFinite(group_id=group_id, quantity=quantity, value=value, tensor=tensor)


def check_kept(gradient: Path, norm: float, *, of: str) -> None:
    """Refuse a kept gradient whose norm is not finite. Raises EngineError."""
    if not is_finite(norm):
        tensor = first_tensor(gradient) or "the sum over all tensors"
        raise EngineError(f"the gradient of {of} has the norm {norm}: not finite in {tensor}", hint=HINT)


def first_tensor(file: Path) -> str:
    """First tensor by name of a file whose norm is not finite; empty where each is."""
    # Imported here: only a broken batch needs them.
    import numpy as np
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors, np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(tensors.keys()):
            if not np.isfinite(np.square(tensors.get_tensor(name)).sum(dtype=np.float64)):
                return str(name)
    return ""
