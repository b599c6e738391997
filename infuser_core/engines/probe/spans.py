"""Spans of the questions in a micro-batch: which tokens, responses and vocabulary entries are whose.

Shapes: _T tokens of a micro-batch, _S response tokens, _Q questions, _U pairs of a question and a token id it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.training.packing import MicroBatch, Segment, shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The embedding rows each question touches, ordered by question, then by token id."""

    tokens: np.ndarray
    """Token ids."""
    tokens_U: Tensor
    """The same on the device."""
    member_QU: Tensor
    """1 where a row belongs to a question, else 0; fp64."""
    inverse_T: Tensor
    """Row of every token of the micro-batch."""
    cuts: list[slice]
    """Rows of each question."""

    def between(self, question: int, ids: slice) -> slice:
        """Rows of a question whose token ids lie in `ids`."""
        cut = self.cuts[question]
        first, last = np.searchsorted(self.tokens[cut], [ids.start, ids.stop])
        return slice(cut.start + int(first), cut.start + int(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Questions of a micro-batch; their tokens stand together."""

    places: list[int]
    """Place of each question in the caller's list."""
    tokens: list[slice]
    """Its tokens, in [0, T)."""
    lengths: list[int]
    """Number of its tokens."""
    responses: list[slice]
    """Its response tokens, in [0, S)."""
    member_QT: Tensor
    """1 where a token belongs to a question, else 0: sums over tokens are products with it."""
    words: Words
    """Embedding rows they touch."""

    def __len__(self) -> int:
        return len(self.places)


def spans_of(segments: Sequence[Segment], batch: MicroBatch, *, trim: bool) -> Spans:
    """The spans of a packed micro-batch. Segments of one group stand together."""
    places: list[int] = []
    tokens: list[slice] = []
    responses: list[slice] = []
    token, response = 0, 0
    for place, parts in groupby(segments, key=lambda segment: segment.group):
        first = (token, response)
        for segment in parts:
            shape = shape_of(segment, trim=trim)
            token += shape.prompt + sum(shape.rows)
            response += sum(len(row.token_ids) for row in segment.rows)
        places.append(place)
        tokens.append(slice(first[0], token))
        responses.append(slice(first[1], response))
    lengths = [each.stop - each.start for each in tokens]
    owners_T = np.repeat(np.arange(len(places)), lengths)
    device, dtype = batch.input_ids.device, batch.advantages_S.dtype
    return Spans(
        places=places,
        tokens=tokens,
        lengths=lengths,
        responses=responses,
        member_QT=_member(owners_T, len(places)).to(device, dtype),
        words=_words(batch.input_ids[0].cpu().numpy(), owners_T, len(places), device),
    )


def _member(owners: np.ndarray, questions: int) -> Tensor:
    return torch.from_numpy(np.arange(questions)[:, None] == owners)


def _words(input_ids_T: np.ndarray, owners_T: np.ndarray, questions: int, device: torch.device) -> Words:
    stride = int(input_ids_T.max()) + 1
    keys_U, inverse_T = np.unique(owners_T * stride + input_ids_T, return_inverse=True)
    owners_U = keys_U // stride
    bounds = np.searchsorted(owners_U, np.arange(questions + 1)).tolist()
    tokens = keys_U % stride
    return Words(
        tokens=tokens,
        tokens_U=torch.from_numpy(tokens).to(device),
        member_QU=_member(owners_U, questions).to(device, torch.float64),
        inverse_T=torch.from_numpy(inverse_T).to(device),
        cuts=[slice(start, stop) for start, stop in pairwise(bounds)],
    )
