"""Sizes of tiles and micro-batches that engines use, and the bytes of activations that the planner predicts."""

from typing import Literal

from infuser_core.memory.shape import Shape

AUTOMATIC = 8192
"""Tokens of a micro-batch in a plan if the trainer finds its own budget, which will be larger."""
LEAST = 256
"""Fewest tokens of a micro-batch: a trainer that runs out of memory halves its budget down to this."""
CACHE_TOKENS = 262_144
"""Prompt and response tokens that the sampler `hf` caches for one batch."""
BUCKET = 50_000_000
"""Elements of a reduction bucket."""
LOGIT_CELLS = 1 << 25
"""Logits that an output layer keeps for backward: 128 MiB in fp32; also those of a tile on an accelerator."""
LARGE_CARD, LARGE_CELLS = 40e9, 1 << 28
"""Bytes of an accelerator from which an output layer keeps more, and that number: 1 GiB in fp32."""
CHUNK, CPU_CHUNK = 1 << 26, 1 << 17
"""Elements of a parameter that steps and sums handle at a time: 256 MiB in fp32 on an accelerator, and half a MiB on a
CPU, so that a few temporaries stay in the cache."""

Checkpointing = bool | int | Literal["auto"]
"""`engine.gradient_checkpointing`: every micro-batch computes its layers again in backward (true), or none (false).
With a number, micro-batches of more tokens do; shorter ones keep matrix products and compute the rest again. `auto` is
the largest number that free memory allows."""


def logit_cells(memory: float) -> int:
    """Return the logits that an output layer keeps on an accelerator of `memory` bytes, which are also those of a tile;
    0 is a CPU."""
    return LARGE_CELLS if memory >= LARGE_CARD else LOGIT_CELLS


def kept_tokens(checkpointing: Checkpointing) -> int:
    """Return the most tokens of a micro-batch that keeps only its matrix products for backward; 0 if none does.

    Under `auto` that is 0 until a trainer knows its free memory.
    """
    return 0 if isinstance(checkpointing, bool | str) else checkpointing


LAYERS, PRODUCTS, INPUTS = "layers", "products", "inputs"
"""Activations that a micro-batch keeps: all, every layer's input and matrix products, or the inputs alone."""
MASKS = 0.08
"""Share that attention's masks, rotary tables and gathered keys add to a layer's activations."""
AGAIN = 2
"""Memory of the layer that backward computes again, as a multiple of its activations: they and their gradients."""


def activation_bytes_per_token(shape: Shape, *, width: int, retained: str, on_host: bool = False) -> float:
    """Predict bytes per token of the activations that autograd keeps (`retained`) and of the layer computed again.

    `width`: bytes of a number in the compute dtype. Outputs of layers are also kept in fp32, as under autocast. A CPU's
    heap holds a layer that is computed again in fp32, and half of it in another dtype as well.
    """
    inside = _layer_bytes(shape, width)
    if retained == LAYERS:
        return inside * shape.layers
    own, shared = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    products = width * (2.0 * shape.hidden + 2 * own + 2 * shared + 2 * shape.ffn) if retained == PRODUCTS else 0.0
    again = _layer_bytes(shape, 4 + width // 2) if on_host and width < 4 else inside
    return (max(4, width) * shape.hidden + products) * shape.layers + AGAIN * again


def _layer_bytes(shape: Shape, width: int) -> float:
    """Bytes of one token's activations in one layer, summed over its tensors."""
    own, shared, wide = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, max(4, width)
    # Two tensors of the input's size for each of both norms, and for the norms of query and key heads.
    norms = wide * (4.0 * shape.hidden + 2 * own + 2 * shared)
    # Inputs of attention and feed-forward part, queries, keys and values, attention's output twice, four of the gate.
    inside = norms + width * (2.0 * shape.hidden + 3 * own + 2 * shared + 4 * shape.ffn)
    return inside * (1 + MASKS)
