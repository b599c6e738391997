"""Weights as a vLLM engine holds them, by the names of the checkpoint: parts of fused layers, shards, packed copies.

A layer's weights are what its kernel multiplies by: the identity goes through it, which gives every weight exactly,
wherever a kernel keeps its own packed copy. Norms, biases and embeddings are read as they lie.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infuser_core.engines.service.checksum import Block, checksum, matrix

_COLUMNS = 1024
"""Columns of a weight that go through a kernel at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Layer that holds a tensor of the checkpoint."""

    layer: Any
    """The module."""
    part: int | None
    """Number of the tensor among those that are fused in the layer; None where it is the layer's alone."""


def checksums(model: Any, shapes: Mapping[str, Sequence[int]], dtype: str) -> dict[str, list[list[Block]]]:
    """Blocks of this rank of every known tensor, by form: as it lies in memory, and as the layer's kernel has it."""
    found = {name: _forms(model, name, shape, getattr(torch, dtype)) for name, shape in shapes.items()}
    return {name: forms for name, forms in found.items() if forms}


def _forms(model: Any, name: str, shape: Sequence[int], dtype: torch.dtype) -> list[list[Block]]:
    path, _, leaf = name.rpartition(".")
    place = _find(model, path)
    if place is None:
        return []
    height, width = shape[0], torch.Size(shape).numel() // shape[0]
    held = getattr(place.layer, leaf, None)
    forms = []
    if isinstance(held, Tensor) and held.numel() > 0:
        forms.append([(0, matrix(held))])
    if leaf == "weight" and hasattr(place.layer, "output_partition_sizes") and len(shape) == 2:
        forms.append(list(_multiplied(place.layer, dtype)))
    found = [
        [
            (row, column, checksum(part.to(dtype), row=row, column=column))
            for row, column, part in _parts(place, form, height, width)
        ]
        for form in forms
    ]
    return [each for each in found if each]


def _find(model: Any, path: str) -> _Place | None:
    """The layer of that path, or the one that it is fused into."""
    above, _, last = path.rpartition(".")
    for fused, parts in {last: [last], **getattr(model, "packed_modules_mapping", {})}.items():
        try:
            layer = model.get_submodule(f"{above}.{fused}" if above else fused) if last in parts else None
        except AttributeError:
            continue
        if layer is not None:
            return _Place(layer=layer, part=None if fused == last else parts.index(last))
    return None


@torch.no_grad()
def _multiplied(layer: Any, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Columns of the matrix that the layer's kernel multiplies by, each with the number of its first."""
    width = getattr(layer, "input_size_per_partition", None) or layer.input_size
    for first in range(0, width, _COLUMNS):
        count = min(_COLUMNS, width - first)
        unit = torch.zeros(count, width, dtype=dtype, device=layer.weight.device)
        unit[torch.arange(count), torch.arange(first, first + count)] = 1
        yield first, layer.quant_method.apply(layer, unit, bias=None).T


def _parts(
    place: _Place, columns: Sequence[tuple[int, Tensor]], height: int, width: int
) -> Iterator[tuple[int, int, Tensor]]:
    """The tensor's own rows in the held columns, each with its first row and column in the whole tensor; none where
    these are no part of such a tensor."""
    layer = place.layer
    rank, ranks = getattr(layer, "tp_rank", 0), getattr(layer, "tp_size", 1)
    held = sum(each.shape[1] for _, each in columns)
    start, stop, row = _rows(place, columns[0][1].shape[0], height, rank, ranks)
    if stop - start > height or width % held:
        return
    left = rank * (width // held) // ranks * held
    for first, each in columns:
        yield row, left + first, each[start:stop]


def _rows(place: _Place, held: int, height: int, rank: int, ranks: int) -> tuple[int, int, int]:
    """First and last held row of the tensor, and the place of the first in the whole tensor."""
    shard = getattr(place.layer, "shard_indices", None)
    if shard is not None:
        return 0, shard.org_vocab_end_index - shard.org_vocab_start_index, shard.org_vocab_start_index
    start, count = 0, held
    if place.part is not None:
        sizes = place.layer.output_partition_sizes
        start, count = sum(sizes[: place.part]), sizes[place.part]
    # Heads of keys and values are repeated where there are fewer of them than ranks.
    return start, start + count, rank * max(1, height // count) // ranks * count
