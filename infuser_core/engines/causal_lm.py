"""A transformers causal language model in a checkpoint folder: load, run, and the files that travel with it."""

import shutil
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from infuser_core.engines.attention import IMPLEMENTATION, Layout
from infuser_core.engines.rms_norm import compute_in_own_dtype
from infuser_core.errors import CheckpointError, EngineError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "LICENSE*",
)
"""Files beside the weights that every checkpoint of a run carries unchanged."""

UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Config keys that change logits after the output layer, which the engines apply themselves."""


def choose_device(name: str) -> torch.device:
    """`auto` is the accelerator where there is one. Raises EngineError for cuda without an accelerator."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise EngineError(f"device {name!r} was asked for, and torch sees no accelerator", hint="use device: auto")
    return torch.device(name)


def choose_dtype(name: str) -> torch.dtype:
    """The torch dtype of a configuration name. Raises EngineError for an unknown one."""
    if name not in DTYPES:
        raise EngineError(f"unknown dtype {name!r}", hint=f"choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model of a folder in `dtype`, layout attention, no dropout, in evaluation mode."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no config.json", hint="give a folder in Hugging Face layout")
    transformers_logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    refuse_logit_changes(config)
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=dtype, attn_implementation=IMPLEMENTATION, local_files_only=True
    )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if dtype == torch.float64:
        compute_in_own_dtype(model)
    nn.Module.to(model, device)
    return model.eval()


def refuse_logit_changes(config: object) -> None:
    """Raises EngineError for a model whose logits are more than a linear map of its hidden states."""
    for key in UNSUPPORTED:
        if getattr(config, key, None) not in (None, 1.0):
            raise EngineError(f"the model's config sets {key}, which the engines do not apply", hint="choose another")


def hidden_states(model: PreTrainedModel, input_ids: Tensor, position_ids: Tensor, layout: Layout) -> Tensor:
    """Final hidden states [rows, tokens, hidden] of one forward call, without the output layer."""
    output = model.base_model(input_ids=input_ids, position_ids=position_ids, use_cache=False, layout=layout)
    return output.last_hidden_state


def end_tokens(model: PreTrainedModel, fallback: int | None) -> list[int]:
    """Tokens that end a response: generation config, then config, then the tokenizer's. Raises when none."""
    for source in (model.generation_config, model.config):
        found = getattr(source, "eos_token_id", None)
        if found is not None:
            return list(found) if isinstance(found, list) else [int(found)]
    if fallback is None:
        raise EngineError("neither model nor tokenizer names an end-of-sequence token", hint="set eos_token_id")
    return [fallback]


def copy_companions(source: Path, target: Path) -> list[Path]:
    """Copy config and tokenizer files; returns the copies in sorted order."""
    names = sorted({found.name for pattern in COMPANIONS for found in source.glob(pattern) if found.is_file()})
    return [Path(shutil.copyfile(source / name, target / name)) for name in names]
