"""Load and run a transformers causal language model from a checkpoint folder; copy its config and tokenizer files.

A model loaded with `attn_implementation=IMPLEMENTATION` builds no attention mask: every forward call passes
`layout=...`, which reaches `layout_attention` through the model's keyword arguments and decides which tokens each token
attends to.
"""

import ctypes
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from infuser_core.engines.hf.layouts import AttentionLayout
from infuser_core.engines.hf.limits import (
    reading,
    refuse_logit_changes,
    refuse_other_attention,
    refuse_packed_weights,
    require_positions,
    unpack_weights,
)
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.engines.hf.renderer import record_template
from infuser_core.engines.model_files import COMPANIONS, WEIGHTS, files_of, weight_files
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.plugins import require_extra
from infuser_core.store.adapter_files import base_folder, is_packed
from infuser_core.system.durable import fsync

IMPLEMENTATION = "infuser_layout"
"""Name under which transformers finds `layout_attention`."""


def layout_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: AttentionLayout,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Compute attention as `layout` arranges it. Raises EngineError for model features the layouts do not compute."""
    if softcap is not None or s_aux is not None:
        raise EngineError(
            f"{type(module).__name__} uses attention soft-capping or sinks", hint="choose a model without them"
        )
    # A window no shorter than the context has no effect, and the layouts' path without one is faster.
    window = sliding_window if sliding_window is not None and layout.longest > sliding_window else None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = layout.attend(int(module.layer_idx), query, key, value, scaling=scale, window=window)  # type: ignore[arg-type]
    # Some families take views of the output, which transformers' attention returns contiguous.
    return output.contiguous(), None


AttentionInterface.register(IMPLEMENTATION, layout_attention)


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable without which cuBLAS refuses to promise repeatable sums."""


def set_deterministic(enabled: bool) -> None:
    """Make this process use repeatable kernels or raise; False changes nothing."""
    if not enabled:
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # No memory is read before it is written, so filling it first only takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's `mallopt`."""
HEAP_BLOCK = 32 << 20
"""Blocks above this size, bytes, return to the system when freed; the largest value that every glibc accepts."""
HEAP_RESERVE = 512 << 20
"""Free memory that stays at the heap's end, bytes."""

_FETCH_AGAIN = "fetch the model again"

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}

_build_lock = Lock()


def configure_process(threads: int) -> None:
    """Set this process's number of threads, and let new tensors reuse the memory of freed ones."""
    torch.set_num_threads(threads)
    # By default glibc returns freed large blocks to the system, which must zero every page it hands out again.
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK)
        mallopt(M_TRIM_THRESHOLD, HEAP_RESERVE)


def choose_device(name: str) -> torch.device:
    """Choose a torch device; `auto` prefers an accelerator. Raises EngineError for cuda without an accelerator."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise EngineError(f"device {name!r} was requested, but torch sees no accelerator", hint="use device: auto")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """Name a device for an artifact's record: an accelerator's model, or `cpu` with the threads of this process."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type


def choose_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a name in a configuration. Raises EngineError for an unknown name."""
    if name not in DTYPES:
        raise EngineError(f"unknown dtype {name!r}", hint=f"choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device, attached: bool = False) -> PreTrainedModel:
    """Load a folder's model in `dtype`, in evaluation mode, with layout attention and no dropout.

    Adapters are merged, or with `attached` next to the weights of their base model, in 4 bits if the folder says so.
    """
    config = read_config(folder)
    refuse_logit_changes(config)
    model = disable_dropout(read_model(folder, config, dtype=dtype, attention=IMPLEMENTATION, merged=not attached))
    refuse_other_attention(model)
    multiply_experts(model)
    if dtype == torch.float64:
        compute_in_own_dtype(model)
    if attached and is_packed(folder):
        require_extra("a 4-bit base model", "bitsandbytes")
        # Imported here: an optional package.
        from infuser_core.engines.hf.four_bit import pack_layers

        pack_layers(model, device)
    nn.Module.to(model, device)
    if attached:
        from infuser_core.engines.hf.adapters import attach_adapters

        attach_adapters(model, folder)
    return model.eval()


def saved_buffers(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the persistent buffers of a model, e.g. a router's bias, in the model's dtype.

    Raises EngineError for integers: a file of a checkpoint has one floating dtype.
    """
    saved = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    for name, buffer in buffers.items():
        if not buffer.is_floating_point():
            raise EngineError(
                f"{name} of {type(model).__name__} holds {buffer.dtype}, but checkpoints store only floats",
                hint="choose a model without such buffers",
            )
    return {name: buffer.to(model.dtype) for name, buffer in buffers.items()}


@torch.no_grad()
def refill(model: PreTrainedModel, folder: Path) -> bool:
    """Copy a folder's weights into a loaded model; False (nothing changed) for merged adapters or other tensors."""
    if base := base_folder(folder):
        return _refill_adapters(model, folder, base)
    parameters = dict(model.named_parameters())
    buffers = saved_buffers(model)
    try:
        stored = {name: each for file in files_of(folder, WEIGHTS[:1]) for name, each in load_file(file).items()}
    except (OSError, SafetensorError):
        return False
    shapes = {name: each.shape for name, each in (parameters | buffers).items()}
    if {name: each.shape for name, each in stored.items()} != shapes:
        return False
    # Buffers are not trained: if they differ, the folder holds another model.
    if any(not torch.equal(stored[name].to(each), each) for name, each in buffers.items()):
        return False
    for name, weight in parameters.items():
        weight.copy_(stored[name])
    return True


def _refill_adapters(model: PreTrainedModel, folder: Path, base: Path) -> bool:
    """Copy a folder's adapters into a model with attached ones of the same settings on the same base model."""
    from infuser_core.engines.hf.adapters import adapter_config, fill_adapters

    attached = getattr(model, "peft_config", {}).get("default")
    if (
        Path(model.name_or_path or "") != base
        or attached is None
        or attached.to_dict() != adapter_config(folder).to_dict()
    ):
        return False
    fill_adapters(model, folder)
    return True


def disable_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set every dropout rate to 0; returns the model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


ROW_BYTES = 16
"""Rows of torch's grouped expert products are multiples of this, bytes."""


def multiply_experts(model: PreTrainedModel) -> None:
    """Make a model multiply its experts one by one if torch's grouped product does not support their size or dtype."""
    experts = [parameter for parameter in model.parameters() if parameter.dim() == 3]
    odd = any(size * each.element_size() % ROW_BYTES for each in experts for size in each.shape[1:])
    if odd or (experts and model.dtype == torch.float64):
        model.set_experts_implementation("eager")


def outer_layers(model: PreTrainedModel) -> set[str]:
    """Return the names of the weights of the embedding and the output layer."""
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    return {name for name, each in model.named_parameters() if any(each is layer.weight for layer in layers)}


def read_config(folder: Path) -> PretrainedConfig:
    """Read a model's configuration. Raises CheckpointError if the folder has none or the model needs code from it."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no config.json", hint="give a folder in Hugging Face layout")
    hint = "correct it, or choose an architecture of transformers: code that comes with a model is never run"
    with reading(str(folder / "config.json"), hint=hint):
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return config


def build_meta_model(config: PretrainedConfig) -> PreTrainedModel:
    """Build the model of a configuration without memory for its weights (torch's meta device)."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


def read_model(
    folder: Path, config: PretrainedConfig, *, dtype: torch.dtype, attention: str, merged: bool = True
) -> PreTrainedModel:
    """Load the model of a folder on the CPU with the given attention, and merge its adapters unless `merged` is false.

    Adapters that were trained on a 4-bit base are merged into the values of its 4-bit numbers. Raises CheckpointError
    for missing, damaged or mismatched weights.
    """
    transformers_logging.disable_progress_bar()
    base = base_folder(folder)
    packed = is_packed(folder)
    if base is not None and packed:
        # The checkpoint's own config.json says 4 bits, and the files of the base are plain.
        config = read_config(base)
    files = weight_files(base or folder)
    if unpack_weights(config):
        files = []
    # Read first, so that an error names this file: transformers reads it along with the weights.
    _read_generation_config(base or folder)
    # While transformers builds a model, it changes settings of the whole process.
    with _build_lock, reading(f"the weights in {folder}", hint="fetch the model again, in bf16 or fp32"):
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                base or folder,
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except KeyError as error:
            if error.args != (attention,):
                raise
            raise EngineError(
                f"{config.model_type}: its attention does not support {error}, the kernel of sampler and trainer",
                hint="choose an architecture whose attention can be replaced in transformers, e.g. Qwen or Llama",
            ) from error
    model: PreTrainedModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    # transformers fills missing and mismatched weights with random numbers.
    wrong = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if wrong:
        message = f"{folder} lacks {len(wrong)} of the model's weights or has other shapes: {', '.join(wrong[:3])}"
        raise CheckpointError(message, hint=_FETCH_AGAIN)
    if unused := sorted(report["unexpected_keys"]):
        raise CheckpointError(
            f"{folder} has {len(unused)} weights that {type(model).__name__} does not use: {', '.join(unused[:3])}",
            hint="config.json contradicts the weights (layers, biases), or belongs to another model: correct it",
        )
    refuse_packed_weights(model, base or folder, files)
    if base is not None and merged:
        # Imported here: peft takes seconds.
        from infuser_core.engines.hf.adapters import merge_adapters

        if packed:
            require_extra("a 4-bit base model", "bitsandbytes")
            from infuser_core.engines.hf.four_bit import round_layers

            round_layers(model)
        merge_adapters(model, folder)
    return model


def hidden_states(model: PreTrainedModel, input_ids: Tensor, position_ids: Tensor, layout: AttentionLayout) -> Tensor:
    """Compute the final hidden states [rows, tokens, hidden] of one forward call, without the output layer.

    Raises EngineError for positions past which a row's numbers would depend on its neighbours (see most_positions).
    """
    require_positions(model, position_ids)
    output = model.base_model(input_ids=input_ids, position_ids=position_ids, use_cache=False, layout=layout)
    return output.last_hidden_state


@torch.no_grad()
def embed_texts(folder: Path, texts: Sequence[str]) -> Tensor:
    """Embed texts by a model: means of its last hidden states over the tokens, of length 1 [texts, hidden size]."""
    model = read_model(folder, read_config(folder), dtype=torch.float32, attention="sdpa").eval().base_model
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    rows = [model(torch.tensor([tokenizer.encode(text)])).last_hidden_state[0].mean(0) for text in texts]
    return torch.nn.functional.normalize(torch.stack(rows).double(), dim=1)


def read_end_tokens(folder: Path, tokenizer_end: int | None) -> list[int]:
    """Find the tokens that end a response: those of the generation config, else of the config; and the tokenizer's.

    A base model thus ends only at its end-of-text token, also if its template ends turns otherwise; a chat model whose
    tokenizer ends turns ends at those as well. Raises EngineError if neither model nor tokenizer names one.
    """
    ends: list[int] = []
    for source in (_read_generation_config(folder), read_config(folder)):
        tokens = getattr(source, "eos_token_id", None)
        if tokens is not None:
            ends = list(tokens) if isinstance(tokens, list) else [tokens]
            break
    if any(type(each) is not int for each in ends):
        raise CheckpointError(
            f"{folder}: eos_token_id is {ends}, not a token or a list of tokens",
            hint="correct it in generation_config.json and config.json",
        )
    if tokenizer_end is not None and tokenizer_end not in ends:
        ends.append(tokenizer_end)
    if not ends:
        raise EngineError("neither model nor tokenizer names an end-of-sequence token", hint="set eos_token_id")
    return ends


def _read_generation_config(folder: Path) -> GenerationConfig | None:
    """Read the generation config; None if the folder has none. Raises CheckpointError for an unreadable file."""
    if not (folder / "generation_config.json").is_file():
        return None
    with reading(str(folder / "generation_config.json"), hint=_FETCH_AGAIN):
        return GenerationConfig.from_pretrained(folder, local_files_only=True)


def copy_companions(source: Path, target: Path, *, unpacked: bool = False) -> None:
    """Copy config and tokenizer files, and write a chat template if there is none; flushed to the disk.

    With `unpacked`, the target's weights are plain floats even if the source's are quantised.
    """
    copies = [Path(shutil.copyfile(path, target / path.name)) for path in files_of(source, COMPANIONS)]
    content = json.loads((target / "config.json").read_text(encoding="utf-8"))
    if unpacked and content.pop("quantization_config", None) is not None:
        (target / "config.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in sorted([*copies, *record_template(source, target)]):
        fsync(path)


def copy_model(source: Path, target: Path) -> None:
    """Copy a model's weights, config and tokenizer files to another folder, without optimizer state, flushed.

    Raises CheckpointError if the source has no safetensors or is an adapter.
    """
    if base_folder(source) is not None:
        raise CheckpointError(f"{source} holds an adapter", hint="merge it into its base model and start from that")
    weights = files_of(source, WEIGHTS)
    if not weights:
        raise CheckpointError(f"{source} holds no safetensors", hint=f"`infuser anchor import {source} OUT` makes them")
    for path in weights:
        fsync(Path(shutil.copyfile(path, target / path.name)))
    copy_companions(source, target)


def save_merged(source: Path, target: Path, *, dtype: torch.dtype) -> None:
    """Write the model of an adapter checkpoint, adapters merged in at least fp32, into an existing folder."""
    model = load_model(source, dtype=torch.promote_types(dtype, torch.float32), device=torch.device("cpu"))
    nn.Module.to(model, dtype).save_pretrained(target)
    copy_companions(source, target, unpacked=True)
