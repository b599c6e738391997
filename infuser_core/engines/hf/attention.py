"""One attention function for every engine: the model computes projections, a layout decides who attends to whom.

A transformers model loaded with `attn_implementation=IMPLEMENTATION` builds no mask of its own; every forward call
passes `layout=...`, which reaches this function through the model's keyword arguments.
"""

from typing import Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from infuser_core.errors import EngineError

IMPLEMENTATION = "infuser_layout"
"""Name under which transformers finds `layout_attention`."""


class Layout(Protocol):
    """How the rows of one forward call are arranged."""

    @property
    def longest(self) -> int:
        """Tokens of the longest context any query may look back on."""
        ...

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Attention output [rows, tokens, heads, d] of [rows, heads, tokens, d] query and [rows, kv heads, ...].

        With `window`, a token sees itself and the `window` - 1 tokens before it.
        """
        ...


def layout_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention as `layout` arranges it. Raises EngineError for model features the layouts do not compute."""
    if softcap is not None or s_aux is not None:
        raise EngineError(
            f"{type(module).__name__} uses attention soft-capping or sinks", hint="choose a model without them"
        )
    # A window that nothing reaches beyond is none: the layouts' plain path is the faster one.
    window = sliding_window if sliding_window is not None and layout.longest > sliding_window else None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = layout.attend(int(module.layer_idx), query, key, value, scaling=scale, window=window)  # type: ignore[arg-type]
    return output, None


AttentionInterface.register(IMPLEMENTATION, layout_attention)
