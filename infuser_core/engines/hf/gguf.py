"""Load a GGUF file, the format of llama.cpp for quantised models, through transformers with its weights as fp32.

Refuses what transformers would drop silently: weights that its model does not use, parts of the model that the file
does not fill, and a vocabulary whose pre-tokenization rule transformers does not know.
"""

import io
import struct
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from jinja2.exceptions import TemplateError
from tokenizers import Regex, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from infuser_core.engines.hf.causal_lm import build_meta_model
from infuser_core.engines.hf.limits import refuse_logit_changes, refuse_other_attention
from infuser_core.engines.hf.renderer import plain_template
from infuser_core.engines.local.memory import PREPARED, require_memory
from infuser_core.errors import CheckpointError
from infuser_core.memory.hardware import free_host_memory

_DAMAGED = "download it again, compare its sha256 with the publisher's, or take the model in Hugging Face layout"
_UNREADABLE = (
    ValueError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ArithmeticError,
    struct.error,
    StrictDataclassError,
    TemplateError,
)
"""Errors that libraries raise for contradictory sizes and offsets."""
PLAIN_RULES = ("", "default")
"""Values of `tokenizer.ggml.pre` for which transformers' tokenizer needs no rule."""


def read_gguf(path: Path, out: Path) -> tuple[PreTrainedModel, dict[str, str], list[str]]:
    """Load the model of a file that is alone in its folder; also returns its metadata, and remarks for the user.

    Configs and tokenizer are written into the existing folder `out`. Raises CheckpointError for a file that
    transformers cannot read in full, EngineError for a model that does not fit into memory or cannot be trained.
    """
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        message = f"{path.name} is not a GGUF file: it begins with {magic!r}, not b'GGUF'"
        raise CheckpointError(message, hint="name a .gguf file")
    try:
        return _read_model(path, out)
    except _UNREADABLE as error:
        if isinstance(error, CheckpointError):
            raise
        message = (
            f"transformers cannot read {path.name} ({path.stat().st_size:,} bytes): it is damaged or truncated, or of "
            f"an architecture or a vocabulary that transformers does not know: {error}"
        )
        raise CheckpointError(message, hint=_DAMAGED) from error


def _read_model(path: Path, out: Path) -> tuple[PreTrainedModel, dict[str, str], list[str]]:
    from gguf import GGUFReader

    reader = GGUFReader(path)
    weights = sum(int(tensor.n_elements) for tensor in reader.tensors)
    text = {
        key: str(field.contents()) if (field := reader.get_field(key)) else ""
        for key in ("general.architecture", "general.name", "general.license", "tokenizer.ggml.pre")
    }
    require_memory(weights, PREPARED, free=free_host_memory(), purpose="making an anchor of it")
    source: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    config = AutoConfig.from_pretrained(path.parent, trust_remote_code=False, **source)
    # Checked first: building a model with a damaged, huge number of layers would never end.
    if not 0 < config.get_text_config().num_hidden_layers <= len(reader.tensors):
        raise ValueError(f"{config.get_text_config().num_hidden_layers:,} layers in {len(reader.tensors):,} tensors")
    meta = build_meta_model(config)
    refuse_logit_changes(config)
    refuse_other_attention(meta)
    expected = sum(parameter.numel() for parameter in meta.parameters())
    if expected != weights:
        message = f"{path.name} holds {weights:,} weights, and transformers' model of it {expected:,}"
        raise CheckpointError(message, hint="take the model in Hugging Face layout instead")
    # transformers draws progress bars on standard error even if it is not a terminal.
    with redirect_stderr(io.StringIO()):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path.parent,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            trust_remote_code=False,
            **source,
        )
    model: PreTrainedModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    wrong = {*report["missing_keys"], *report["unexpected_keys"], *(name for name, *_ in report["mismatched_keys"])}
    if wrong:
        message = f"{path.name} and transformers' model of it disagree about {', '.join(sorted(wrong)[:3])}"
        raise CheckpointError(message, hint="take the model in Hugging Face layout instead")
    kinds = Counter(tensor.tensor_type.name for tensor in reader.tensors).most_common()
    facts = {
        "name": text["general.name"],
        "architecture": text["general.architecture"],
        "quantisation": ", ".join(f"{kind} ({number})" for kind, number in kinds),
        "licence": text["general.license"] or "not stated",
    }
    tokenizer = AutoTokenizer.from_pretrained(path.parent, trust_remote_code=False, **source)
    _set_pre_tokenizer(tokenizer, text["tokenizer.ggml.pre"], path)
    # The loaded model's config says that its weights are quantised.
    meta.config.dtype = torch.float32
    meta.config.save_pretrained(out)
    return model, facts, _write_tokenizer(tokenizer, out, meta.config.eos_token_id)


def _set_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str, path: Path) -> None:
    """Set a pre-tokenization rule that transformers does not set. Raises CheckpointError for an unknown rule."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if name == "smollm":
        digits = pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated")
        rule = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tokenizer.backend_tokenizer.pre_tokenizer = rule
    elif name not in {*PLAIN_RULES, *GGUF_PRE_TOKENIZER_SPLITS}:
        message = f"{path.name}: its vocabulary splits text by the rule {name!r}, which transformers does not know"
        raise CheckpointError(message, hint="take the model in Hugging Face layout instead: tokens would be wrong")


_TURNS = [{"role": "user", "content": "Question"}, {"role": "assistant", "content": "Answer"}]


def _write_tokenizer(tokenizer: PreTrainedTokenizerBase, out: Path, end: int | None) -> list[str]:
    """Write tokenizer and generation config; returns remarks for the user.

    A response ends with the file's end-of-text token or with the token that its chat template writes after an answer.
    """
    remarks = []
    ends = [each for each in (end, tokenizer.eos_token_id) if isinstance(each, int)]
    if tokenizer.chat_template is None:
        tokenizer.chat_template = plain_template(tokenizer)
        remarks = ["the file has no chat template: prompts are written as plain turns, `User:` and `Assistant:`"]
    else:
        after = str(tokenizer.apply_chat_template(_TURNS, tokenize=False)).rpartition("Answer")[2]
        following = tokenizer.encode(after, add_special_tokens=False)[:1]
        ends += [each for each in following if getattr(tokenizer.added_tokens_decoder.get(each), "special", False)]
    GenerationConfig(
        eos_token_id=list(dict.fromkeys(ends)),
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return remarks
