"""Tiny random models of any architecture that transformers knows, in the layout of a checkpoint or of a hub."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.schemas import Checkpoint

VOCABULARY = 64
END, TURN = 1, 4
TEMPLATE = "{% for m in messages %}w2 {{ m['content'] }} w4 {% endfor %}{% if add_generation_prompt %}w3{% endif %}"

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": END,
    "bos_token_id": None,
    "pad_token_id": 0,
    # Wide initial weights, so that the next token depends visibly on the context.
    "initializer_range": 0.2,
}

WINDOW = {"sliding_window": 8}
"""Three layers of four look back on eight tokens, one on everything."""


def make_source(folder: Path, family: str, *, seed: int = 0, tied: bool = False, **changes: object) -> Path:
    """A model folder as a hub would give it; `changes` are keys of its config."""
    torch.manual_seed(seed)
    sizes = {"head_dim": 32} if family == "qwen3" else {"hidden_size": 128}
    config = AutoConfig.for_model(family, **(SIZES | sizes | {"tie_word_embeddings": tied} | changes))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    save_tokenizer(folder, template=TEMPLATE)
    return folder


def save_tokenizer(folder: Path, *, template: str | None, end: str = "w1") -> None:
    """A tokenizer of the words w0 to w63."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=end, pad_token="w0")
    made.chat_template = template
    made.save_pretrained(folder)


def make_family(folder: Path, family: str, *, seed: int = 0, tied: bool = False, **changes: object) -> Checkpoint:
    """An anchor of such a model."""
    source = make_source(folder / "source", family, seed=seed, tied=tied, **changes)
    prepare_anchor(source, folder / "anchor")
    return Checkpoint(checkpoint_id=f"{family}-{seed}", role="solver", path=str(folder / "anchor"), step=0)
