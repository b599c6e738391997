"""Find groups whose loss or gradient is not finite (NaN, inf) and leave them out of their batch.

A batch is first checked by its total loss and gradient norm. Only if one of them is not finite, its groups are computed
again one by one, and the phase starts over without those at fault, as if they had never been in the batch.
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
    "compute in engine.dtype=float32; if the checkpoint itself is not finite, fork from an earlier iteration with "
    "a lower cotrain.solver.learning_rate or cotrain.generator.learning_rate"
)


class NotFiniteGroupsError(Exception):
    """Groups of a batch are not finite; `retry_without_not_finite` leaves them out."""

    def __init__(self, rows: Sequence[NotFinite], *, batch_size: int) -> None:
        super().__init__(rows)
        self.rows = rows
        self.is_whole_batch = len(rows) == batch_size


def retry_without_not_finite(
    attempt: Callable[[Collection[str]], Result], trainer: Trainer, *, workspace: Path
) -> tuple[Result, list[NotFinite]]:
    """Call `attempt(excluded)`, excluding the ids of groups that are not finite, until all that remain are finite.

    Raises EngineError if no group of an attempt is finite.
    """
    not_finite: list[NotFinite] = []
    while True:
        try:
            return attempt({row.group_id for row in not_finite}), not_finite
        except NotFiniteGroupsError as error:
            not_finite += error.rows
            if not error.is_whole_batch:
                continue
            with TemporaryDirectory(dir=workspace) as folder:
                trainer.save(Path(folder))
                files = sorted(Path(folder).glob("*.safetensors"))
                tensors = (f"{name} of {file.name}" for file in files if (name := first_not_finite_tensor(file)))
                tensor = next(tensors, "")
            raise no_finite_data(not_finite, tensor=tensor) from None


def no_finite_data(rows: Sequence[NotFinite], *, tensor: str = "") -> EngineError:
    """Build the error for a phase without a finite group; `tensor` names a checkpoint tensor that is not finite."""
    cause = f"; the checkpoint itself is not finite in {tensor}" if tensor else ""
    return EngineError(
        f"nothing finite is left to train on: {rows[0]}, the first of {len(rows)} such{cause}", hint=HINT
    )


def is_finite(*values: float) -> bool:
    """Whether all of the numbers are finite."""
    return all(map(math.isfinite, values))


def raise_for_groups(
    trainer: Trainer, groups: Sequence[TrainGroup], constants: Objective, *, batch_size: int, workspace: Path
) -> None:
    """Compute the groups one by one; raise NotFiniteGroupsError if the loss or gradient of some is not finite."""
    rows = [row for group in groups if (row := diagnose_group(trainer, group, constants, workspace=workspace))]
    if rows:
        raise NotFiniteGroupsError(rows, batch_size=batch_size)


def diagnose_group(trainer: Trainer, group: TrainGroup, constants: Objective, *, workspace: Path) -> NotFinite | None:
    """Compute a group alone: its loss or gradient if not finite, else None. Clears accumulated gradients."""
    trainer.zero_grad()
    loss = trainer.forward_backward([group], constants, denominator=1).loss
    with TemporaryDirectory(dir=workspace) as folder:
        file = Path(folder) / "gradient.safetensors"
        norm = trainer.keep_gradient(file)
        trainer.zero_grad()
        if is_finite(loss, norm):
            return None
        return not_finite_row(group.group_id, loss, norm, tensor=first_not_finite_tensor(file))


def not_finite_row(group_id: str, loss: float, norm: float, *, tensor: str = "") -> NotFinite:
    """The row of a group whose loss, or else its gradient, is not finite."""
    quantity, value = ("gradient", norm) if is_finite(loss) else ("loss", loss)
    return NotFinite(group_id=group_id, quantity=quantity, value=value, tensor=tensor)


def check_gradient(gradient: Path, norm: float, *, of: str) -> None:
    """Raise EngineError if a saved gradient's norm is not finite; `of` names the gradient in the message."""
    if not is_finite(norm):
        tensor = first_not_finite_tensor(gradient) or "the sum over all tensors"
        raise EngineError(f"the gradient of {of} has the norm {norm}: not finite in {tensor}", hint=HINT)


def first_not_finite_tensor(file: Path) -> str:
    """Name of the alphabetically first tensor in a file whose norm is not finite; empty if all are finite."""
    # Imported here: only a broken batch needs them.
    import numpy as np
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors, np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(tensors.keys()):
            if not np.isfinite(np.square(tensors.get_tensor(name)).sum(dtype=np.float64)):
                return str(name)
    return ""
