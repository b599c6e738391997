"""Make a run's first checkpoint (the anchor) from a Hugging Face model folder or GGUF file; export checkpoints."""

import json
import shutil
import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from infuser_core.config.optimizers import options_of
from infuser_core.config.roles import AdapterSettings
from infuser_core.config.run import SamplingSettings
from infuser_core.engines.hf.causal_lm import (
    build_meta_model,
    choose_dtype,
    copy_companions,
    load_model,
    outer_layers,
    read_config,
    read_end_tokens,
    saved_buffers,
)
from infuser_core.engines.hf.gguf import read_gguf
from infuser_core.engines.hf.renderer import Renderer
from infuser_core.engines.local.memory import PREPARED, require_memory
from infuser_core.engines.training.checkpoint import (
    SHARD_BYTES,
    Tensors,
    TrainerState,
    count_weights,
    write_checkpoint,
)
from infuser_core.engines.training.optimizer import OptimizerSetting, first_moments
from infuser_core.engines.training.self_test import require_same
from infuser_core.memory.hardware import free_host_memory
from infuser_core.store.adapter_files import BASE_KEY, CONFIG, base_pointer, record_packing
from infuser_core.store.adapter_files import WEIGHTS as ADAPTER


def prepare_anchor(
    source: Path,
    out: Path,
    *,
    optimizer: OptimizerSetting = None,
    tested: bool = False,
    free: Callable[[], int] = free_host_memory,
) -> None:
    """Write a trainable checkpoint of the model `source` into `out`: fp32 weights, zero optimizer state.

    Raises CheckpointError if `source` is not a model folder, EngineError if it does not fit into `free` bytes or,
    unless `tested`, if the engines compute it differently from transformers.
    """
    if (weights := count_weights(source)) is not None:
        require_memory(weights, PREPARED, free=free(), purpose="making an anchor of it")
    model = load_model(source, dtype=torch.float32, device=torch.device("cpu"))
    if not tested:
        require_same(model)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    _write_first_checkpoint(out, tensors, optimizer, outer=outer_layers(model), buffers=saved_buffers(model))
    copy_companions(source, out, unpacked=True)


def random_model(source: Path, out: Path, *, seed: int) -> tuple[str, int]:
    """Write a model shaped like `source` with random weights to a new folder; returns its type and vocabulary size."""
    out.mkdir(parents=True)
    torch.manual_seed(seed)
    config = read_config(source)
    with redirect_stdout(sys.stderr):
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(out)
    copy_companions(source, out, unpacked=True)
    return str(config.model_type), int(config.get_text_config().vocab_size)


def prepare_adapter(
    base: Path, out: Path, *, adapter: AdapterSettings, seed: int, optimizer: OptimizerSetting = None
) -> None:
    """Write a trainable checkpoint of new low-rank adapters for the model `base` into `out`.

    Raises ConfigError for adapters of layers that the model does not have.
    """
    # Imported here: peft takes seconds, and most runs train no adapters.
    from infuser_core.engines.hf.adapters import create_adapters

    weights = create_adapters(build_meta_model(read_config(base)), adapter, out, base=base_pointer(base), seed=seed)
    _write_first_checkpoint(out, weights, optimizer, adapter=True)
    copy_companions(base, out)
    if adapter.base == "nf4":
        record_packing(out)


def unpack_gguf(path: Path, out: Path) -> tuple[dict[str, str], list[str]]:
    """Write a trainable checkpoint of a GGUF file, the only file in its folder, into the existing folder `out`.

    Returns the file's metadata, and remarks for the user. Raises CheckpointError for a file that cannot be read,
    EngineError for a model that does not fit into memory or that the engines compute differently from transformers.
    """
    model, facts, remarks = read_gguf(path, out)
    _write_first_checkpoint(out, {name: parameter.detach() for name, parameter in model.named_parameters()}, None)
    require_same(load_model(out, dtype=torch.float32, device=torch.device("cpu")))
    return facts, remarks


def _write_first_checkpoint(
    out: Path,
    weights: Tensors,
    optimizer: OptimizerSetting,
    *,
    outer: Collection[str] = (),
    buffers: Tensors | None = None,
    adapter: bool = False,
) -> None:
    options = options_of(optimizer)
    moments, state = first_moments(options, weights, outer), TrainerState(step=0, optimizer=options.to_json())
    write_checkpoint(out, weights={**weights, **(buffers or {})}, moments=moments, state=state, adapter=adapter)


def write_hub_layout(
    source: Path,
    out: Path,
    *,
    dtype: str,
    sampling: SamplingSettings,
    max_tokens: int,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Export a checkpoint's model in `dtype` to the existing folder `out`, with `sampling` as its generation config."""
    model = load_model(source, dtype=choose_dtype(dtype), device=torch.device("cpu"))
    ends = read_end_tokens(source, Renderer(source).end_token)
    model.generation_config = _generation_config(model, ends, sampling, max_tokens)
    copy_companions(source, out)
    # save_pretrained imports DeepSpeed if it is installed, which logs to standard output.
    with redirect_stdout(sys.stderr):
        model.save_pretrained(out, max_shard_size=shard_bytes)
    for path in out.glob("*.safetensors"):
        # transformers makes these files readable only by their owner, regardless of the umask.
        path.chmod((out / "config.json").stat().st_mode)


def write_adapter(source: Path, out: Path, *, base: str) -> None:
    """Export a checkpoint's adapters and tokenizer to an existing folder, with `base` as the name of their model."""
    content = json.loads((source / CONFIG).read_text(encoding="utf-8")) | {BASE_KEY: base}
    copy_companions(source, out)
    # These files describe the whole model and belong to the base model's folder.
    for name in ("config.json", "generation_config.json"):
        (out / name).unlink(missing_ok=True)
    (out / CONFIG).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    shutil.copyfile(source / ADAPTER, out / ADAPTER)


def _generation_config(
    model: PreTrainedModel, ends: list[int], sampling: SamplingSettings, max_tokens: int
) -> GenerationConfig:
    pad = getattr(model.config, "pad_token_id", None)
    common = {"eos_token_id": ends, "pad_token_id": ends[0] if pad is None else pad, "max_new_tokens": max_tokens}
    if sampling.temperature == 0:
        return GenerationConfig(do_sample=False, **common)
    # Without a top_k, the default of transformers would apply; 0 disables it.
    options = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": max(0, sampling.top_k)}
    return GenerationConfig(do_sample=True, **options, **common)
