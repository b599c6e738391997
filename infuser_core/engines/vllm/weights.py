"""Compute checksums of a vLLM engine's weights, which may be fused, sharded or packed, by their names in checkpoints.

Tensors of an adapter have the names of peft's file; they are read from the memory by which the kernels multiply.

A kernel may multiply by its own packed copy of a layer's weights. To read that copy, the identity is multiplied by it,
which gives every weight exactly. Norms, biases and embeddings are read from memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from infuser_core.engines.service.checksum import Block, checksum, matrix

PREFIX = "base_model.model."
"""Start of an adapter tensor's name, before the path of its layer."""
_COLUMNS = 1024
"""Columns of a weight that are multiplied at a time."""


def checksums(model: Any, shapes: Mapping[str, Sequence[int]], dtype: str) -> dict[str, list[list[Block]]]:
    """Compute checksums of this rank's blocks of known tensors: as in memory, and as the layer's kernel holds them."""
    blocks = {
        name: _adapter_forms(model, name.removeprefix(PREFIX), shape)
        if name.startswith(PREFIX)
        else _forms(model, name, shape, getattr(torch, dtype))
        for name, shape in shapes.items()
    }
    return {name: forms for name, forms in blocks.items() if forms}


def _forms(model: Any, name: str, shape: Sequence[int], dtype: torch.dtype) -> list[list[Block]]:
    path, _, leaf = name.rpartition(".")
    layer, part = _find_layer(model, path)
    if layer is None:
        return []
    # With adapters, the layer is inside another one that adds their product.
    layer = getattr(layer, "base_layer", layer)
    height, width = shape[0], torch.Size(shape).numel() // shape[0]
    in_memory = getattr(layer, leaf, None)
    forms = []
    if isinstance(in_memory, Tensor) and in_memory.numel() > 0:
        forms.append([(0, matrix(in_memory))])
    if leaf == "weight" and hasattr(layer, "output_partition_sizes") and len(shape) == 2:
        forms.append(list(_kernel_columns(layer, dtype)))
    blocks = [
        [
            (row, column, checksum(values.to(dtype), row=row, column=column))
            for row, column, values in _own_blocks(layer, part, form, height, width)
        ]
        for form in forms
    ]
    return [form for form in blocks if form]


def _adapter_forms(model: Any, name: str, shape: Sequence[int]) -> list[list[Block]]:
    """Compute the checksum of this rank's block of A or B of the only adapter; empty for a layer without adapters."""
    path, matrix_name, _ = name.rsplit(".", 2)
    layer, part = _find_layer(model, path)
    stacked = getattr(layer, f"{matrix_name.lower()}_stacked", None)
    if stacked is None:
        return []
    # One slot per adapter, which may have room for a higher rank.
    block = stacked[part or 0][0, 0, : shape[0], : shape[1]]
    (row, column) = (
        layer.tp_rank * max(1, whole // own) // layer.tp_size * own
        for whole, own in zip(shape, block.shape, strict=True)
    )
    return [[(row, column, checksum(block, row=row, column=column))]]


def _find_layer(model: Any, path: str) -> tuple[Any, int | None]:
    """Find a layer by path, or the layer into which it is fused and its number among the parts; else None twice."""
    above, _, last = path.rpartition(".")
    for fused, parts in {last: [last], **getattr(model, "packed_modules_mapping", {})}.items():
        try:
            layer = model.get_submodule(f"{above}.{fused}" if above else fused) if last in parts else None
        except AttributeError:
            continue
        if layer is not None:
            return layer, None if fused == last else parts.index(last)
    return None, None


@torch.no_grad()
def _kernel_columns(layer: Any, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Yield groups of columns of the matrix by which the layer's kernel multiplies, with the number of the first."""
    width = getattr(layer, "input_size_per_partition", None) or layer.input_size
    for first in range(0, width, _COLUMNS):
        count = min(_COLUMNS, width - first)
        unit = torch.zeros(count, width, dtype=dtype, device=layer.weight.device)
        unit[torch.arange(count), torch.arange(first, first + count)] = 1
        yield first, layer.quant_method.apply(layer, unit, bias=None).T


def _own_blocks(
    layer: Any, part: int | None, columns: Sequence[tuple[int, Tensor]], height: int, width: int
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield the tensor's rows in groups of columns, each with its first row and column in the whole tensor.

    Yields nothing if the sizes do not fit the tensor.
    """
    rank, ranks = getattr(layer, "tp_rank", 0), getattr(layer, "tp_size", 1)
    num_columns = sum(group.shape[1] for _, group in columns)
    start, stop, row = _rows(layer, part, columns[0][1].shape[0], height, rank, ranks)
    if stop - start > height or width % num_columns:
        return
    column = rank * (width // num_columns) // ranks * num_columns
    for first, group in columns:
        yield row, column + first, group[start:stop]


def _rows(layer: Any, part: int | None, num_rows: int, height: int, rank: int, ranks: int) -> tuple[int, int, int]:
    """Find a tensor's rows in a layer: first row, row after the last, and number of the first in the whole tensor."""
    shard = getattr(layer, "shard_indices", None)
    if shard is not None:
        return 0, shard.org_vocab_end_index - shard.org_vocab_start_index, shard.org_vocab_start_index
    start, count = 0, num_rows
    if part is not None:
        sizes = layer.output_partition_sizes
        start, count = sum(sizes[:part]), sizes[part]
    # Heads of keys and values are repeated if there are fewer of them than ranks.
    return start, start + count, rank * max(1, height // count) // ranks * count
