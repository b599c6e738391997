"""What is done to an anchor's weights besides training: starting from another anchor, and rescaling coordinates."""

from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.seeding import seed_of


@torch.no_grad()
def inherit(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Take over another anchor's weights; embeddings go over token by token, new tokens keep their random ones."""
    parent = Qwen3ForCausalLM.from_pretrained(str(folder))
    known = PreTrainedTokenizerFast.from_pretrained(str(folder)).get_vocab()
    embedding, old = model.model.embed_tokens.weight, parent.model.embed_tokens.weight
    shared = [(place, known[token]) for token, place in tokenizer.get_vocab().items() if token in known]
    embedding[[place for place, _ in shared]] = old[[place for _, place in shared]]
    weights = dict(parent.named_parameters())
    for name, parameter in model.named_parameters():
        if "embed" not in name:
            parameter.copy_(weights[name])


@torch.no_grad()
def rescale(model: Qwen3ForCausalLM, spread: int, *, seed: int) -> None:
    """Scale each hidden unit by 2^k on its way in and 2^-k on its way out, k drawn from -spread to spread.

    Powers of two make the function the same bit for bit. Gradients of its coordinates come to differ by up to
    4^(2 spread) in square, as they do in large models: raw gradients then count few coordinates, AdamW's steps all.
    """
    rng = Random(seed_of(seed, "coordinates"))

    def drawn(count: int) -> torch.Tensor:
        return torch.tensor([2.0 ** rng.randint(-spread, spread) for _ in range(count)])

    for layer in model.model.layers:
        mlp, attention = layer.mlp, layer.self_attn
        hidden = drawn(mlp.up_proj.out_features)
        mlp.up_proj.weight.mul_(hidden[:, None])
        mlp.down_proj.weight.div_(hidden)
        values = drawn(attention.v_proj.out_features)
        attention.v_proj.weight.mul_(values[:, None])
        # Every query head of a group reads the same value channels.
        group = attention.o_proj.in_features // len(values)
        attention.o_proj.weight.div_(values.view(-1, attention.head_dim).repeat_interleave(group, dim=0).flatten())
