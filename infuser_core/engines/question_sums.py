"""Per-question weight gradients, reduced to four scalars as soon as they exist, and dropped.

A piece is some rows of one parameter's gradient, for one question or several. Pieces are made and scored in a
Workspace and overwritten by the next one, so that extra memory is three pieces (the gradient, what is computed from
it, and the decayed second moment) and never a model-sized tensor.

Shapes: _T tokens, _O rows and _I columns of a weight, _K questions of a piece, _N elements of a piece, _U touched
embedding rows (spans.Words).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.engines.piece_scorer import PieceScorer
from infuser_core.engines.spans import Spans
from infuser_core.engines.workspace import product
from infuser_core.errors import EngineError

Watch = Callable[[str, int, slice | Tensor, Tensor], None]
"""`watch(parameter, place, rows, piece)` sees every piece of the gradient of -J; a group's pieces add up to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Where the sum of all questions' gradients goes on the way."""

    gradient: Mapping[str, Tensor]
    """Accumulated gradient of every parameter."""
    scale: float
    """Factor of every question's gradient."""


class QuestionSums:
    """Forms the per-question gradients of one micro-batch, piece by piece, and gives them to `scorer`."""

    def __init__(
        self, spans: Spans, scorer: PieceScorer, *, accumulator: Accumulator | None = None, watch: Watch | None = None
    ) -> None:
        self.spans = spans
        self._scorer = scorer
        self._accumulator = accumulator
        self._watch = watch
        self._everyone = slice(0, len(spans))
        self._held: dict[str, Tensor] = {}
        self._seen: set[str] = set()

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.spans.member_QT.shape[1]

    def piece_rows(self, rows: int, columns: int) -> int:
        """Weight rows that fit into a piece."""
        return self._scorer.workspace.tile(rows, columns)[0]

    def add_linear(self, name: str, left_TO: Tensor, right_TI: Tensor) -> None:
        """The weight gradient left^T right of every question. Raises EngineError where the weight is used twice."""
        self._once(name)
        if len(left_TO) != self.num_tokens:
            raise refusal(f"{name}, which sees {len(left_TO)} of {self.num_tokens} tokens")
        if left_TO.device.type == "cpu":
            # Here, once: a CPU has no product of bf16 matrices with an fp32 result.
            left_TO, right_TI = left_TO.to(self._scorer.workspace.dtype), right_TI.to(self._scorer.workspace.dtype)
        rows, columns = left_TO.shape[1], right_TI.shape[1]
        lefts = left_TO.t().split(self.spans.lengths, dim=1)
        rights = right_TI.split(self.spans.lengths)
        height, together = self._scorer.workspace.tile(rows, columns)
        for start in range(0, rows, height):
            tile = slice(start, min(rows, start + height))
            target = self._scorer.target(name, tile)
            for first in range(0, len(lefts), together):
                picked = slice(first, min(len(lefts), first + together))
                pieces = self._scorer.workspace.piece(picked.stop - first, tile.stop - start, columns)
                for piece, left, right in zip(pieces.unbind(0), lefts[picked], rights[picked], strict=True):
                    product(left[tile], right, piece.dtype, out=piece)
                self._note(name, tile, pieces, picked)
                self._scorer.score(pieces, target, picked)

    def add_tokens(self, name: str, gradients: Tensor) -> None:
        """A vector that every token adds to, a bias or a norm's scale: [..., N], tokens outermost, heads between."""
        self._once(name)
        member_QT = self.spans.member_QT
        pieces = member_QT @ gradients.reshape(self.num_tokens, -1).to(member_QT.dtype)
        size = self._scorer.size(name)
        if pieces.shape[1] != size:
            pieces = pieces.view(len(pieces), -1, size).sum(1)
        self._note(name, slice(None), pieces, self._everyone)
        self._scorer.score(pieces, self._scorer.target(name, slice(None)), self._everyone)

    def add_head_rows(
        self, name: str, question: int, rows: slice, left_SO: Tensor, right_SI: Tensor, *, hold: bool
    ) -> None:
        """Rows of one question's left^T right, at most a piece of them.

        `hold` keeps the rows that the question's own tokens touch for `add_embedding`: a tied weight's two parts are
        added before the square root sees them.
        """
        pieces = self._scorer.workspace.piece(1, left_SO.shape[1], right_SI.shape[1])
        product(left_SO.t(), right_SI, pieces.dtype, out=pieces[0])
        picked = slice(question, question + 1)
        self._note(name, rows, pieces, picked)
        if hold:
            self._hold(name, question, rows, pieces[0])
        self._scorer.score(pieces, self._scorer.target(name, rows), picked)

    def add_head_bias(self, name: str, question: int, rows: slice, left_SO: Tensor) -> None:
        """Elements of one question's bias gradient, from operands in the parameter's dtype."""
        pieces = left_SO.sum(0)[None]
        picked = slice(question, question + 1)
        self._note(name, rows, pieces, picked)
        self._scorer.score(pieces, self._scorer.target(name, rows), picked)

    def add_embedding(self, name: str, gradients_TI: Tensor, *, padding: int | None) -> None:
        """The touched rows of an embedding; untouched ones have gradient 0 and add exactly 0."""
        self._once(name)
        words = self.spans.words
        count = len(words.tokens_U)
        gradients_TI = gradients_TI.to(self._scorer.workspace.dtype)
        # The kernel behind embedding's own backward: sums rows of equal index in a fixed order on every device.
        rows_UI = torch.ops.aten.embedding_dense_backward(gradients_TI, words.inverse_T, count, -1, False)
        if padding is not None:
            rows_UI.masked_fill_((words.tokens_U == padding)[:, None], 0.0)
        self._note_words(name, rows_UI)
        if name in self._held:
            rows_UI += self._held.pop(name)
        self._scorer.score_rows(name, rows_UI, words)

    def _once(self, name: str) -> None:
        if name in self._seen:
            raise refusal(f"{name}, which is used more than once in a forward pass")
        self._seen.add(name)

    def _note(self, name: str, rows: slice, pieces: Tensor, picked: slice) -> None:
        if self._accumulator is not None:
            target = self._accumulator.gradient[name][rows]
            target.add_(pieces[0] if len(pieces) == 1 else pieces.sum(0), alpha=self._accumulator.scale)
        if self._watch is not None:
            for place, piece in zip(self.spans.places[picked], pieces, strict=True):
                self._watch(name, place, rows, piece.clone())

    def _note_words(self, name: str, rows_UI: Tensor) -> None:
        words = self.spans.words
        if self._accumulator is not None:
            for cut in words.cuts:
                # One question at a time: its rows differ, so that the order of addition is the same every time.
                target = self._accumulator.gradient[name]
                target.index_add_(0, words.tokens_U[cut], rows_UI[cut], alpha=self._accumulator.scale)
        if self._watch is not None:
            for place, cut in zip(self.spans.places, words.cuts, strict=True):
                self._watch(name, place, words.tokens_U[cut], rows_UI[cut].clone())

    def _hold(self, name: str, question: int, rows: slice, piece: Tensor) -> None:
        words = self.spans.words
        if name not in self._held:
            self._held[name] = piece.new_zeros(len(words.tokens_U), piece.shape[1])
        touched = words.between(question, rows)
        places = words.tokens_U[touched] - rows.start
        self._held[name][touched] = piece[places]
        piece[places] = 0.0


def refusal(what: str) -> EngineError:
    """The error for a model that only the plain probe can score."""
    return EngineError(f"the fast probe cannot handle {what}", hint="set the trainer's probe to reference")
