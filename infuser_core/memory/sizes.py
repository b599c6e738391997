"""Sizes of tiles and batches, which engines use and the planner counts in bytes."""

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
PIECE, CPU_PIECE = 1 << 26, 1 << 17
"""Elements of a piece of a question's gradient, on an accelerator and on a CPU, where smaller ones cost more in calls
than they save in cache misses; scoring holds three."""

Checkpointing = bool | int
"""`engine.gradient_checkpointing`: every micro-batch computes its layers again in backward (true), or none (false).
With a number, those of more tokens do, and shorter ones compute again what is between their matrix products."""


def kept_tokens(checkpointing: Checkpointing) -> int:
    """Most tokens of a micro-batch that keeps only its matrix products; 0 if none does."""
    return 0 if isinstance(checkpointing, bool) else checkpointing


LAYERS, PRODUCTS, INPUTS = "layers", "products", "inputs"
"""Activations that a micro-batch keeps: all, every layer's input and matrix products, or the inputs alone."""
MASKS = 0.08
"""Share that attention's masks, rotary tables and gathered keys add to a layer's activations."""
AGAIN = 2
"""Layers' worth of activations in the one layer that backward computes again: they and their gradients."""


def activation_bytes_per_token(shape: Shape, *, width: int, retained: str, on_host: bool = False) -> float:
    """Bytes per token of the activations that autograd keeps (`retained`), and of the layer that is computed again.

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
    """Bytes of a token in one layer, tensor by tensor."""
    own, shared, wide = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, max(4, width)
    # Of both norms their input and what it was divided by; of the head norms too.
    norms = wide * (4.0 * shape.hidden + 2 * own + 2 * shared)
    # Both halves' inputs, the queries, keys and values that attend, its output twice, and all four of the gate.
    inside = norms + width * (2.0 * shape.hidden + 3 * own + 2 * shared + 4 * shape.ffn)
    return inside * (1 + MASKS)
