"""Limits of the engines: checks of a model's files, its configuration, the loaded model and its numbers."""

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
"""Dtypes of weights in safetensors that are numbers as they are."""
_PLAIN = "take the model in bf16 or fp32"
_BARE = (TypeError, AttributeError, LookupError)
"""Errors that libraries raise for a file of another form than they expect: the message alone says little."""


@contextmanager
def reading(what: str, *, hint: str) -> Iterator[None]:
    """Raises CheckpointError for a model's file that the code inside, which is a library's, cannot read."""
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
    """Let a quantised model load as plain floats; whether it is one.

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
    """Raises CheckpointError for integers or 8-bit floats in the place of weights, which are nothing without scales.

    Looks at the model and at what `files` hold in the place of its weights: none, if they have been unpacked.
    """
    own = dict(model.named_parameters())
    kinds = {name: str(each.dtype) for name, each in own.items() if not each.is_floating_point() or each.itemsize == 1}
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                stored = {name: file.get_slice(name).get_dtype() for name in own.keys() & set(file.keys())}
            kinds |= {name: kind for name, kind in stored.items() if kind not in FLOATS}
    if kinds:
        name = min(kinds)
        raise CheckpointError(f"{name} in {folder} holds {kinds[name]} numbers without their scales", hint=_PLAIN)


def refuse_logit_changes(config: object) -> None:
    """Raises EngineError for a model whose logits are more than a linear map of its hidden states."""
    for key in UNSUPPORTED:
        if getattr(config, key, None) not in (None, 1.0):
            raise EngineError(f"the model's config sets {key}, which the engines do not apply", hint="choose another")


def refuse_other_attention(model: PreTrainedModel) -> None:
    """Raises EngineError for a model with layers that no layout reaches: packed responses would see each other."""
    if not model._supports_attention_backend or model._is_stateful:
        raise EngineError(
            f"{type(model).__name__} looks back by other means than attention that transformers lets others compute",
            hint="choose an architecture of such attention alone, e.g. Qwen, Llama, OLMo, Gemma, Phi or GPT-NeoX",
        )


def _length_dependent(config: PretrainedConfig) -> list[int]:
    """Positions from which on the frequencies of all positions are others, of the kinds of rope that have such."""
    ropes = getattr(config.get_text_config(), "rope_parameters", None) or {}
    # One for all layers, or one for each kind of layer.
    each = [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
    return [int(rope["original_max_position_embeddings"]) for rope in each if rope.get("rope_type") == "longrope"]


def most_positions(config: PretrainedConfig) -> int | None:
    """Tokens of the longest row that the engines compute; None where the model sets no limit.

    Past the original length of longrope, a row's log-probabilities depend on how long the longest row of the call is.
    """
    stated = getattr(config.get_text_config(), "max_position_embeddings", None)
    return min([*_length_dependent(config), *([] if stated is None else [int(stated)])], default=None)


def require_finite(model: nn.Module, logprobs: Tensor) -> None:
    """Raises EngineError, with the first tensor at fault, for log-probabilities that are no numbers."""
    if not bool(logprobs.isnan().any()):
        return
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and (count := int((~tensor.isfinite()).sum())):
            raise EngineError(
                f"the model's {name} holds {count:,} values that are not finite: its answers mean nothing",
                hint="fetch the model again, or go back to an earlier checkpoint",
            )
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    raise EngineError(
        f"the model's log-probabilities are not finite in {kind}, although all of its weights are",
        hint="set engine.dtype float32, or choose another model",
    )


def require_positions(model: PreTrainedModel, position_ids: Tensor) -> None:
    """Raises EngineError for positions past which a row's numbers would depend on its neighbours."""
    if (bounds := _length_dependent(model.config)) and (last := int(position_ids.max())) >= min(bounds):
        raise EngineError(
            f"a row of {last + 1:,} tokens: past {min(bounds):,}, the positions of {type(model).__name__} change with "
            "the longest row of a call",
            hint=f"lower max_tokens so that prompt and response have at most {min(bounds):,} tokens",
        )
