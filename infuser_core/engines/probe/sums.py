"""Form per-question weight gradients piece by piece, and reduce each at once to the four sums of an influence score.

A piece is some rows of one parameter's gradient, for one or several questions. Pieces are formed and scored in a
Workspace and overwritten by the next one, so that extra memory is three pieces (the gradient, scratch space, and the
decayed second moment) and never a model-sized tensor.

Shapes: _T tokens, _O rows and _I columns of a weight, _K questions of a piece, _N elements of a piece, _M pieces times
questions, _U pairs of a question and a token id in it (EmbeddingRows), _Q questions, _S response tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor

from infuser_core.algorithm.influence import Elementwise, batched_norms, row_sums
from infuser_core.engines.hf.output_head import product
from infuser_core.engines.probe.choice import refusal
from infuser_core.engines.training.optimizer import Rows
from infuser_core.engines.training.packing import MicroBatch, Segment, shape_of
from infuser_core.memory.sizes import CPU_PIECE
from infuser_core.memory.sizes import PIECE as DEVICE_PIECE


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRows:
    """Embedding rows with a gradient in a micro-batch, ordered by question, then by token id."""

    tokens: np.ndarray
    """Token ids."""
    tokens_U: Tensor
    """Token ids on the device."""
    member_QU: Tensor
    """1 if a row belongs to a question, else 0; fp64."""
    inverse_T: Tensor
    """Row of every token of the micro-batch."""
    rows: list[slice]
    """Rows of each question."""

    def between(self, question: int, ids: slice) -> slice:
        """Return the rows of a question whose token ids are in `ids`."""
        rows = self.rows[question]
        first, last = np.searchsorted(self.tokens[rows], [ids.start, ids.stop])
        return slice(rows.start + int(first), rows.start + int(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSpans:
    """Positions of the questions in a micro-batch; the tokens of each are contiguous."""

    places: list[int]
    """Place of each question in the caller's list."""
    lengths: list[int]
    """Number of tokens of each question."""
    responses: list[slice]
    """Response tokens of each question, in [0, S)."""
    member_QT: Tensor
    """1 if a token belongs to a question, else 0: sums over tokens are products with it."""
    embedding: EmbeddingRows

    def __len__(self) -> int:
        return len(self.places)


def spans_of(segments: Sequence[Segment], batch: MicroBatch) -> QuestionSpans:
    """Locate the questions of a micro-batch packed with `trim`; segments of one group must be neighbours."""
    places: list[int] = []
    lengths: list[int] = []
    bounds = [0]
    for place, members in groupby(segments, key=lambda segment: segment.group):
        parts = list(members)
        shapes = [shape_of(segment, trim=True) for segment in parts]
        places.append(place)
        lengths.append(sum(shape.prompt + sum(shape.rows) for shape in shapes))
        bounds.append(bounds[-1] + sum(len(row.token_ids) for segment in parts for row in segment.rows))
    owners_T = np.repeat(np.arange(len(places)), lengths)
    device, dtype = batch.input_ids.device, batch.advantages_S.dtype
    return QuestionSpans(
        places=places,
        lengths=lengths,
        responses=[slice(start, stop) for start, stop in pairwise(bounds)],
        member_QT=_membership(owners_T, len(places)).to(device, dtype),
        embedding=_embedding_rows(batch.input_ids[0].cpu().numpy(), owners_T, len(places), device),
    )


def _membership(owners: np.ndarray, questions: int) -> Tensor:
    return torch.from_numpy(np.arange(questions)[:, None] == owners)


def _embedding_rows(
    input_ids_T: np.ndarray, owners_T: np.ndarray, questions: int, device: torch.device
) -> EmbeddingRows:
    stride = int(input_ids_T.max()) + 1
    keys_U, inverse_T = np.unique(owners_T * stride + input_ids_T, return_inverse=True)
    owners_U = keys_U // stride
    bounds = np.searchsorted(owners_U, np.arange(questions + 1)).tolist()
    tokens = keys_U % stride
    return EmbeddingRows(
        tokens=tokens,
        tokens_U=torch.from_numpy(tokens).to(device),
        member_QU=_membership(owners_U, questions).to(device, torch.float64),
        inverse_T=torch.from_numpy(inverse_T).to(device),
        rows=[slice(start, stop) for start, stop in pairwise(bounds)],
    )


NORMS = 1024
"""Initial capacity for the norms of pieces."""


class Workspace:
    """Three reusable buffers (gradient piece, scratch, moment) of `elements` values, or of one longer weight row."""

    def __init__(self, *, dtype: torch.dtype, device: torch.device) -> None:
        self.elements = CPU_PIECE if device.type == "cpu" else DEVICE_PIECE
        self.dtype = dtype
        self.device = device
        self._buffers = [torch.empty(0, dtype=dtype, device=device) for _ in range(3)]

    def tile(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the weight rows of a piece, and the number of questions that fit into the piece with these rows."""
        height = max(1, min(rows, self.elements // columns))
        return height, max(1, self.elements // (height * columns))

    def piece(self, *shape: int) -> Tensor:
        """Buffer for a piece, uninitialised; overwrites the previous piece."""
        return self._buffer(0, shape)

    def scratch(self, *shape: int) -> Tensor:
        """Buffer for values computed from a piece, uninitialised."""
        return self._buffer(1, shape)

    def moment(self, *shape: int) -> Tensor:
        """Buffer for the second moment of a piece, uninitialised."""
        return self._buffer(2, shape)

    def _buffer(self, number: int, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape)
        if self._buffers[number].numel() < count:
            size = max(count, self.elements)
            self._buffers[number] = torch.empty(size, dtype=self.dtype, device=self.device)
        return self._buffers[number][:count].view(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditioner:
    """Reference direction, second moments and formula that turn a gradient into its four sums."""

    reference: Mapping[str, Tensor]
    """Reference direction of every parameter."""
    second: Mapping[str, Rows]
    """Second moment v of every parameter."""
    form: Elementwise
    """Formula of the direction Gamma, from a gradient and v."""


class QuestionSums:
    """Forms the per-question gradients of one micro-batch piece by piece, and accumulates their sums in fp64."""

    def __init__(self, spans: QuestionSpans, against: Preconditioner, workspace: Workspace) -> None:
        self.spans = spans
        self._against = against
        self._workspace = workspace
        self._tied_rows: dict[str, Tensor] = {}
        self._used: set[str] = set()
        self._norms_4M = torch.empty(4, 0, dtype=workspace.dtype, device=workspace.device)
        self._owners: list[int] = []
        self._rest = torch.zeros(4, len(spans), dtype=torch.float64, device=workspace.device)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the micro-batch, T."""
        return self.spans.member_QT.shape[1]

    def piece_rows(self, rows: int, columns: int) -> int:
        """Return the number of weight rows that fit into a piece."""
        return self._workspace.tile(rows, columns)[0]

    def add_linear(self, name: str, left_TO: Tensor, right_TI: Tensor) -> None:
        """Add a linear layer's gradient left^T right of every question. Raises UnknownLayerError on its second use."""
        self._require_first_use(name)
        if len(left_TO) != self.num_tokens:
            raise refusal(f"{name}, which sees {len(left_TO)} of {self.num_tokens} tokens")
        if left_TO.device.type == "cpu":
            # Converted once, here: a CPU has no product of bf16 matrices with an fp32 result.
            left_TO, right_TI = left_TO.to(self._workspace.dtype), right_TI.to(self._workspace.dtype)
        rows, columns = left_TO.shape[1], right_TI.shape[1]
        rights = right_TI.split(self.spans.lengths)
        height, together = self._workspace.tile(rows, columns)
        for start in range(0, rows, height):
            tile = slice(start, min(rows, start + height))
            target = self._target(name, tile)
            lefts = left_TO.t()[tile].split(self.spans.lengths, dim=1)
            for first in range(0, len(lefts), together):
                picked = slice(first, min(len(lefts), first + together))
                pieces = self._workspace.piece(picked.stop - first, tile.stop - start, columns)
                for piece, left, right in zip(pieces.unbind(0), lefts[picked], rights[picked], strict=True):
                    product(left, right, piece.dtype, out=piece)
                self._score(pieces, target, picked)

    def add_tokens(self, name: str, gradients: Tensor) -> None:
        """Add the gradient of a vector, a bias or a norm's scale: [..., N], tokens outermost, heads between."""
        self._require_first_use(name)
        member_QT = self.spans.member_QT
        pieces = member_QT @ gradients.reshape(self.num_tokens, -1).to(member_QT.dtype)
        size = self._against.reference[name].numel()
        if pieces.shape[1] != size:
            pieces = pieces.view(len(pieces), -1, size).sum(1)
        self._score(pieces, self._target(name, slice(None)), slice(0, len(self.spans)))

    def add_head_rows(
        self, name: str, question: int, rows: slice, left_SO: Tensor, right_SI: Tensor, *, hold: bool
    ) -> None:
        """Add rows of one question's output-layer gradient, left^T right: at most a piece.

        `hold` stores the rows of the question's own tokens for `add_embedding`: the two parts of a tied weight's
        gradient are added before the square root.
        """
        pieces = self._workspace.piece(1, left_SO.shape[1], right_SI.shape[1])
        product(left_SO.t(), right_SI, pieces.dtype, out=pieces[0])
        if hold:
            embedding = self.spans.embedding
            if name not in self._tied_rows:
                self._tied_rows[name] = pieces.new_zeros(len(embedding.tokens_U), pieces.shape[2])
            touched = embedding.between(question, rows)
            places = embedding.tokens_U[touched] - rows.start
            self._tied_rows[name][touched] = pieces[0][places]
            pieces[0][places] = 0.0
        self._score(pieces, self._target(name, rows), slice(question, question + 1))

    def add_head_bias(self, name: str, question: int, rows: slice, left_SO: Tensor) -> None:
        """Add elements of one question's gradient of the output layer's bias, from operands in its dtype."""
        pieces = left_SO.sum(0)[None]
        self._score(pieces, self._target(name, rows), slice(question, question + 1))

    def add_embedding(self, name: str, gradients_TI: Tensor, *, padding: int | None) -> None:
        """Add gradients of the embedding rows that the questions use; all other rows have gradient 0 and add 0."""
        self._require_first_use(name)
        embedding = self.spans.embedding
        count = len(embedding.tokens_U)
        gradients_TI = gradients_TI.to(self._workspace.dtype)
        # The kernel behind embedding's own backward: sums rows of equal index in a fixed order on every device.
        rows_UI = torch.ops.aten.embedding_dense_backward(gradients_TI, embedding.inverse_T, count, -1, False)
        if padding is not None:
            rows_UI.masked_fill_((embedding.tokens_U == padding)[:, None], 0.0)
        if name in self._tied_rows:
            rows_UI += self._tied_rows.pop(name)
        self._score_rows(name, rows_UI, embedding)

    def totals(self) -> Tensor:
        """Return [<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of every question so far, fp64 of shape [Q, 4]."""
        sums_4M = self._norms_4M[:, : len(self._owners)].double()
        sums_4M[2:].square_()
        owners_M = torch.tensor(self._owners, dtype=torch.long, device=sums_4M.device)
        # A product and not index_add_: its order of addition is the same every time on every device.
        member_MQ = (owners_M[:, None] == torch.arange(len(self.spans), device=sums_4M.device)).double()
        return (self._rest + sums_4M @ member_MQ).t()

    def _require_first_use(self, name: str) -> None:
        if name in self._used:
            raise refusal(f"{name}, which is used more than once in a forward pass")
        self._used.add(name)

    def _target(self, name: str, rows: slice) -> tuple[Tensor, Tensor]:
        """Return reference and decayed second moment for pieces of these rows; the next call overwrites the latter."""
        reference_N = self._against.reference[name][rows].reshape(-1)
        second_N = self._against.second[name][rows].reshape(-1)
        decayed_N = torch.mul(second_N, self._against.form.decayed, out=self._workspace.moment(len(second_N)))
        return reference_N, decayed_N

    def _score(self, pieces: Tensor, target: tuple[Tensor, Tensor], picked: slice) -> None:
        """Add the sums of pieces [K, ...] of the questions `picked`."""
        pieces_KN = pieces.flatten(1)
        first = len(self._owners)
        self._owners += range(picked.start, picked.stop)
        if len(self._owners) > self._norms_4M.shape[1]:
            # One tensor and not a list: small tensors between short-lived large ones fragment the heap.
            more = self._norms_4M.new_empty(4, max(NORMS, len(self._owners)))
            self._norms_4M = torch.cat([self._norms_4M[:, :first], more], dim=1)
        batched_norms(
            pieces_KN,
            *target,
            fresh=self._against.form.fresh,
            eps=self._against.form.eps,
            scratch_KN=self._workspace.scratch(*pieces_KN.shape),
            out_4K=self._norms_4M[:, first : len(self._owners)],
        )

    def _score_rows(self, name: str, rows_UI: Tensor, embedding: EmbeddingRows) -> None:
        """Add the sums of embedding rows; each is a question's whole gradient of that row."""
        height, _ = self._workspace.tile(*rows_UI.shape)
        for start in range(0, len(rows_UI), height):
            tile = slice(start, start + height)
            tokens = embedding.tokens_U[tile]
            sums_U4 = row_sums(
                rows_UI[tile],
                self._against.reference[name][tokens],
                self._against.second[name][tokens],
                self._against.form,
            )
            self._rest += (embedding.member_QU[:, tile] @ sums_U4).t()
