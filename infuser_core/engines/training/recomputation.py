"""Activation checkpointing: long micro-batches recompute whole layers in backward, short ones keep matrix products.

Either way a layer keeps its input and runs its forward a second time. For a short micro-batch the results of matrix
products and attention are stored, and only the norms, rotations and gates between them are recomputed: the same bits as
without checkpointing, with less than half of the memory.
"""

from functools import partial

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
"""Operators whose results a short micro-batch keeps. Not batched products: as attention scores they are larger than all
other activations."""


class Recomputation:
    """Makes a model's layers recompute activations in backward; which ones is chosen before every forward pass.

    All ranks enter the same modules in the same order, even if they choose differently.
    """

    def __init__(self, model: PreTrainedModel, *, kept_tokens: int) -> None:
        self.kept_tokens = kept_tokens
        self._whole = True
        # transformers renamed the method within the range we support.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        products = partial(create_selective_checkpoint_contexts, _keep_products)
        options = {"use_reentrant": False, "context_fn": lambda: noop_context_fn() if self._whole else products()}
        # Nothing in a layer is random: dropout is off.
        enable({**options, "preserve_rng_state": False})
        model.train()

    def choose(self, tokens: int) -> None:
        """Choose the activations to recompute for a forward pass of `tokens` tokens."""
        self._whole = tokens > self.kept_tokens


def enable_recomputation(model: PreTrainedModel, checkpointing: Checkpointing) -> Recomputation | None:
    """Enable recomputation by `engine.gradient_checkpointing`; None if all activations are kept."""
    return None if checkpointing is False else Recomputation(model, kept_tokens=kept_tokens(checkpointing))


def _keep_products(_: object, operator: torch._ops.OpOverload, *operands: object, **more: object) -> CheckpointPolicy:
    name = operator.name().partition(".")[0]
    return CheckpointPolicy.MUST_SAVE if name in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE
