"""Muon for a tiny model on a CPU: momentum whose matrices are orthogonalised, all matrices of a shape in one batch.

It makes number copying far more exact than AdamW does in the same time. Jordan et al. 2024; the coefficients are
theirs. Torch's own Muon works matrix by matrix, which on a CPU costs more than the model.
"""

from collections.abc import Iterable

import torch

_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5
_SCALE = 0.2
"""Root mean square of an update in units of the learning rate, so that AdamW's rates fit."""


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest (semi-)orthogonal matrices, roughly, by Newton-Schulz; shape [batch, rows <= columns]."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x


class Muon:
    """Keeps the momentum of hidden matrices, grouped by shape; tall matrices are worked on transposed."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter], *, momentum: float = 0.95) -> None:
        self._momentum = momentum
        self._groups: dict[tuple[int, int], list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            rows, columns = matrix.shape
            self._groups.setdefault((min(rows, columns), max(rows, columns)), []).append(matrix)
        self._buffers = {shape: torch.zeros(len(group), *shape) for shape, group in self._groups.items()}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update of all matrices from their gradients (Nesterov momentum)."""
        for shape, group in self._groups.items():
            gradients = torch.stack([_wide(p.grad) for p in group if p.grad is not None])
            buffer = self._buffers[shape].lerp_(gradients, 1 - self._momentum)
            updates = orthogonalise(gradients.lerp(buffer, self._momentum))
            scale = learning_rate * _SCALE * max(shape) ** 0.5
            for matrix, update in zip(group, updates, strict=True):
                matrix.sub_(update if matrix.shape == update.shape else update.mT, alpha=scale)


def _wide(matrix: torch.Tensor) -> torch.Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
