"""Activation checkpointing by micro-batch: long ones compute their layers again in backward, short ones keep products.

Either way a layer keeps its input and runs its forward a second time. For a short micro-batch matrix products and
attention then give what they gave the first time, and only norms, rotations and gates between them are computed again:
the same bits as without checkpointing, with less than half of its memory.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts, noop_context_fn
from transformers import PreTrainedModel

from infuser_core.memory.sizes import Checkpointing, kept_tokens

PRODUCTS = {
    "aten::mm",
    "aten::addmm",
    "aten::_grouped_mm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "torch_attn::_varlen_attn",
}
"""Operators whose results a short micro-batch keeps. Batched products are not among them: where attention is one, its
scores are larger than everything else."""


class Recomputation:
    """The activations that a model's layers compute again in backward, chosen before every forward pass.

    Passes of several ranks reach the same modules in the same order, whichever each of them has chosen.
    """

    def __init__(self, model: PreTrainedModel, *, kept_tokens: int) -> None:
        self.kept_tokens = kept_tokens
        self._whole = True
        # transformers renamed the method within the range we support.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False, "context_fn": self._contexts})
        model.train()

    def choose(self, tokens: int) -> None:
        """Say how many tokens the next forward pass has."""
        self._whole = tokens > self.kept_tokens

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        contexts: tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
        contexts = noop_context_fn() if self._whole else create_selective_checkpoint_contexts(_keep_products)
        return contexts


def enable_recomputation(model: PreTrainedModel, checkpointing: Checkpointing) -> Recomputation | None:
    """Recomputation of a model by `engine.gradient_checkpointing`; None where everything is kept."""
    return None if checkpointing is False else Recomputation(model, kept_tokens=kept_tokens(checkpointing))


def _keep_products(_: object, operator: torch._ops.OpOverload, *operands: object, **more: object) -> CheckpointPolicy:
    kept = operator.name().partition(".")[0] in PRODUCTS
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
