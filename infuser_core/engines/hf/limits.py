"""Checks that refuse models the engines do not support, by their files, configuration, architecture and outputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from infuser_core.errors import CheckpointError, EngineError, InfuserError

UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Config keys that change logits after the output layer, which the engines apply themselves."""
FLOATS = {"F64", "F32", "F16", "BF16"}
"""Dtypes of unquantised weights in safetensors."""
_PLAIN = "take the model in bf16 or fp32"
_BARE = (TypeError, AttributeError, LookupError)
"""Errors of libraries whose message needs the name of the error to make sense."""


@contextmanager
def reading(what: str, *, hint: str) -> Iterator[None]:
    """Turn errors that libraries raise about a model's file into CheckpointError."""
    try:
        yield
    except InfuserError:
        raise
    except (OSError, ValueError, ImportError, SafetensorError, StrictDataclassError, *_BARE) as error:
        source = (isinstance(error, StrictDataclassError) and error.__cause__) or error
        kind = [type(source).__name__] if isinstance(source, _BARE) or not str(source) else []
        reason = ": ".join([*kind, *str(source).splitlines()[:1]])
        raise CheckpointError(f"{what} cannot be read: {reason}", hint=hint) from error


def unpack_weights(config: PretrainedConfig) -> bool:
    """Make a quantised model load as plain floats; returns whether the model is quantised.

    Raises CheckpointError for a method that transformers cannot unpack.
    """
    packing = getattr(config, "quantization_config", None)
    if packing is None:
        return False
    packing = packing if isinstance(packing, dict) else packing.to_dict()
    method = str(packing.get("quant_method"))
    kind = AUTO_QUANTIZATION_CONFIG_MAPPING.get(method)
    if kind is None or "dequantize" not in signature(kind).parameters:
        raise CheckpointError(
            f"the model's weights are quantised by {method} (quantization_config) and cannot be unpacked", hint=_PLAIN
        )
    config.quantization_config = {**packing, "dequantize": True}
    return True


def refuse_packed_weights(model: PreTrainedModel, folder: Path, files: Sequence[Path]) -> None:
    """Raise CheckpointError for weights of the model or of `files` that are integers or 8-bit floats without scales.

    `files` is empty if the weights were unpacked.
    """
    parameters = dict(model.named_parameters())
    packed = {name: each for name, each in parameters.items() if not each.is_floating_point() or each.itemsize == 1}
    kinds = {name: str(each.dtype) for name, each in packed.items()}
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                stored = {name: file.get_slice(name).get_dtype() for name in parameters.keys() & set(file.keys())}
            kinds |= {name: kind for name, kind in stored.items() if kind not in FLOATS}
    if kinds:
        name = min(kinds)
        raise CheckpointError(f"{name} in {folder} holds {kinds[name]} numbers without their scales", hint=_PLAIN)


def refuse_logit_changes(config: object) -> None:
    """Raise EngineError for a model whose logits are not a linear map of its hidden states."""
    for key in UNSUPPORTED:
        if getattr(config, key, None) not in (None, 1.0):
            raise EngineError(f"the model's config sets {key}, which the engines do not apply", hint="choose another")


def refuse_other_attention(model: PreTrainedModel) -> None:
    """Raise EngineError for a model with layers that bypass the layouts: packed responses would see each other."""
    if not model._supports_attention_backend or model._is_stateful:
        raise EngineError(
            f"{type(model).__name__} mixes tokens in layers that the engines cannot replace (recurrent, or with an "
            "attention outside of transformers' interface)",
            hint="choose an architecture without such layers, e.g. Qwen, Llama, OLMo, Gemma, Phi or GPT-NeoX",
        )


def _rope_change_positions(config: PretrainedConfig) -> list[int]:
    """Row lengths beyond which a longrope position encoding changes all frequencies; one for each such encoding."""
    ropes = getattr(config.get_text_config(), "rope_parameters", None) or {}
    # The config has one position encoding for all layers, or one for each kind of layer.
    each = [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
    return [int(rope["original_max_position_embeddings"]) for rope in each if rope.get("rope_type") == "longrope"]


def most_positions(config: PretrainedConfig) -> int | None:
    """Return the most tokens of a row that the engines compute; None if the model sets no limit.

    Beyond the original length of longrope, a row's log-probabilities depend on how long the longest row of the call is.
    """
    stated = getattr(config.get_text_config(), "max_position_embeddings", None)
    return min([*_rope_change_positions(config), *([] if stated is None else [int(stated)])], default=None)


def require_finite(model: nn.Module, logprobs: Tensor) -> None:
    """Raise EngineError for NaN log-probabilities, naming the first weight or buffer that is not finite."""
    if not bool(logprobs.isnan().any()):
        return
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and (count := int((~tensor.isfinite()).sum())):
            raise EngineError(
                f"the model's {name} holds {count:,} values that are not finite, so its answers are meaningless",
                hint="fetch the model again, or go back to an earlier checkpoint",
            )
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    raise EngineError(
        f"the model's log-probabilities are not finite in {kind}, although all of its weights are",
        hint="set engine.dtype float32, or choose another model",
    )


def require_positions(model: PreTrainedModel, position_ids: Tensor) -> None:
    """Raise EngineError for positions beyond which a row's results would depend on other rows of the call."""
    if (bounds := _rope_change_positions(model.config)) and (last := int(position_ids.max())) >= min(bounds):
        raise EngineError(
            f"a row of {last + 1:,} tokens: beyond {min(bounds):,}, the positions of {type(model).__name__} change "
            "with the longest row of a call",
            hint=f"lower max_tokens so that prompt and response have at most {min(bounds):,} tokens",
        )
