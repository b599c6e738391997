"""A random two-layer model with a word tokenizer, and groups of random responses: what the engine tests run on."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.protocols import TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint

VOCABULARY = 64
END = 1


def make_checkpoint(folder: Path, *, seed: int = 0, tied: bool = True, family: str = "qwen3") -> Checkpoint:
    """An anchor of the tiny model in `folder`; `family` is a model type of transformers."""
    torch.manual_seed(seed)
    sizes = {} if family == "olmo2" else {"head_dim": 8}
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        eos_token_id=END,
        bos_token_id=None,
        pad_token_id=0,
        # Wide initial weights, so that the next token depends visibly on the context.
        initializer_range=0.2,
        **sizes,
    )
    source = folder / "source"
    model = AutoModelForCausalLM.from_config(config)
    if family != "qwen3":
        _disturb(model)
    model.save_pretrained(source)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        eos_token="w1",
        pad_token="w0",
        chat_template="{% for m in messages %}w2 {{ m['content'] }} {% endfor %}w3",
    )
    tokenizer.save_pretrained(source)
    prepare_anchor(source, folder / "anchor")
    return Checkpoint(checkpoint_id="anchor", role="solver", path=str(folder / "anchor"), step=0)


@torch.no_grad()
def _disturb(model: PreTrainedModel) -> None:
    """Give biases and norm scales values of their own: they start at zero and one."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def make_groups(shapes: Sequence[tuple[int, Sequence[int]]], *, seed: int = 0, old: bool = False) -> list[TrainGroup]:
    """Random groups of (prompt length, response lengths); advantages are centred within each group."""
    draw = random.Random(seed)

    def tokens(length: int) -> list[int]:
        return [draw.randrange(2, VOCABULARY) for _ in range(length)]

    groups = []
    for place, (prompt, lengths) in enumerate(shapes):
        advantages = [draw.uniform(-1, 1) for _ in lengths]
        mean = sum(advantages) / len(advantages)
        rows = [
            TrainRow(
                token_ids=tokens(length),
                advantage=advantage - mean,
                sampler_logprobs=[draw.uniform(-5, -3) for _ in range(length)],
                old_logprobs=[draw.uniform(-5, -3) for _ in range(length)] if old else None,
            )
            for advantage, length in zip(advantages, lengths, strict=True)
        ]
        groups.append(TrainGroup(group_id=f"g{place}", prompt_token_ids=tokens(prompt), rows=rows))
    return groups
