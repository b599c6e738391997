"""GGUF files of tiny random models with a byte-level vocabulary, as llama.cpp would write them."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

HEADS, KEYS = 4, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PIECES = [*CONTROL, *bytes_to_unicode().values(), "ĊĊ", "ĠĠ"]
"""Every byte, two line breaks, two spaces."""
MERGES = ["Ċ Ċ", "Ġ Ġ"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def tiny_llama() -> LlamaForCausalLM:
    """A random model of two layers whose output layer is its embedding."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def stored(name: str, weight: np.ndarray) -> np.ndarray:
    """A weight as llama.cpp keeps it: of queries and keys, the two halves of a rotary pair stand beside each other."""
    heads = HEADS if "q_proj" in name else KEYS if "k_proj" in name else 0
    if not heads:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    """llama.cpp's name of a parameter."""
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    splitting: str = "smollm",
    template: str | None = TEMPLATE,
    left_out: str = "",
    extra: str = "",
    packed: str = "",
    claimed: int = 0,
) -> LlamaForCausalLM:
    """Write such a file and return its model.

    `left_out` and `extra` name a tensor that is missing or too many, `packed` one that is quantised (Q8_0); `claimed`
    adds so many weights that lie in a hole of the file.
    """
    model = tiny_llama()
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, model.config, splitting, template)
    for name, parameter in model.named_parameters():
        weight = stored(name, parameter.detach().numpy())
        place = gguf_name(name)
        if place == packed:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(place, gguf.quantize(weight, kind), raw_dtype=kind)
        elif place != left_out:
            writer.add_tensor(place, weight)
    if extra:
        writer.add_tensor(extra, np.ones(4, dtype=np.float32))
    if claimed:
        writer.add_tensor_info("output.weight", (claimed // 1024, 1024), np.dtype(np.float16), claimed * 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if claimed:
        writer.write_ti_data_to_file()
        writer.flush()
        writer.close()
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + claimed * 2 + (1 << 20))
    else:
        writer.write_tensors_to_file()
        writer.close()
    return model


def _describe(writer: gguf.GGUFWriter, config: LlamaConfig, splitting: str, template: str | None) -> None:
    writer.add_name("Tiny")
    writer.add_license("cc0-1.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(len(PIECES))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(PIECES)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(PIECES) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    if template is not None:
        writer.add_chat_template(template)
