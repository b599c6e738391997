"""Pieces of per-question gradients to the four scalars of every question.

Shapes: _K questions of a piece, _N elements of a piece, _M pieces times questions, _U touched embedding rows
(spans.Words), _Q questions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.algorithm.influence import batched_norms, moment_shares, row_sums
from infuser_core.engines.spans import Words
from infuser_core.engines.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditioner:
    """What turns a gradient into its four sums (eq:adamw_moments)."""

    reference: Mapping[str, Tensor]
    """Reference direction of every parameter."""
    second: Mapping[str, Tensor]
    """AdamW's v of every parameter."""
    step: int
    """Optimizer steps so far."""
    beta2: float
    """Decay of v."""
    eps: float
    """Added to the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the pieces of some rows of a parameter are held against."""

    reference_N: Tensor
    """The reference's part."""
    decayed_N: Tensor
    """b2 v / (1 - b2^t); overwritten by the next target."""


class PieceScorer:
    """Adds up [<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of the questions of one micro-batch, in fp64."""

    def __init__(self, preconditioner: Preconditioner, workspace: Workspace, questions: int) -> None:
        self.workspace = workspace
        self._preconditioner = preconditioner
        self._decayed, self._fresh = moment_shares(step=preconditioner.step, beta2=preconditioner.beta2)
        self._questions = questions
        self._norms: list[Tensor] = []
        self._owners: list[int] = []
        self._rest = torch.zeros(4, questions, dtype=torch.float64, device=workspace.device)

    def size(self, name: str) -> int:
        """Elements of a parameter."""
        return self._preconditioner.reference[name].numel()

    def target(self, name: str, rows: slice) -> Target:
        """What pieces of these rows are held against."""
        reference_N = self._preconditioner.reference[name][rows].reshape(-1)
        second_N = self._preconditioner.second[name][rows].reshape(-1)
        decayed_N = torch.mul(second_N, self._decayed, out=self.workspace.moment(len(second_N)))
        return Target(reference_N=reference_N, decayed_N=decayed_N)

    def score(self, pieces: Tensor, target: Target, picked: slice) -> None:
        """Pieces [K, ...] of the questions `picked`."""
        pieces_KN = pieces.flatten(1)
        norms_4K = batched_norms(
            pieces_KN,
            target.reference_N,
            target.decayed_N,
            fresh=self._fresh,
            eps=self._preconditioner.eps,
            scratch_KN=self.workspace.scratch(*pieces_KN.shape),
        )
        self._norms.append(norms_4K)
        self._owners += range(picked.start, picked.stop)

    def score_rows(self, name: str, rows_UI: Tensor, words: Words) -> None:
        """Embedding rows, each its question's whole gradient of that row."""
        height, _ = self.workspace.tile(*rows_UI.shape)
        for start in range(0, len(rows_UI), height):
            cut = slice(start, start + height)
            tokens = words.tokens_U[cut]
            sums_U4 = row_sums(
                rows_UI[cut],
                self._preconditioner.reference[name][tokens],
                self._preconditioner.second[name][tokens],
                step=self._preconditioner.step,
                beta2=self._preconditioner.beta2,
                eps=self._preconditioner.eps,
            )
            self._rest += (words.member_QU[:, cut] @ sums_U4).t()

    def totals(self) -> Tensor:
        """The sums so far, fp64 of shape [Q, 4]."""
        if not self._norms:
            return self._rest.t()
        sums_4M = torch.cat(self._norms, dim=1).double()
        sums_4M[2:].square_()
        owners_M = torch.tensor(self._owners, device=sums_4M.device)
        # A product and not index_add_: its order of addition is the same every time on every device.
        member_MQ = (owners_M[:, None] == torch.arange(self._questions, device=sums_4M.device)).double()
        return (self._rest + sums_4M @ member_MQ).t()
