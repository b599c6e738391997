"""GGUF files, as llama.cpp distributes quantised models: their facts, and the model as a Hugging Face folder.

transformers reads the file and unpacks its weights. What it would leave out silently is refused here: weights that no
part of its model takes, parts of the model that the file does not fill, and the way in which a vocabulary cuts text.
"""

import csv
import io
import struct
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from jinja2.exceptions import TemplateError
from tokenizers import Regex, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from infuser_core.engines.hf.limits import refuse_logit_changes, refuse_other_attention
from infuser_core.engines.hf.renderer import plain_template
from infuser_core.errors import CheckpointError

MAGIC = b"GGUF"
"""First bytes of such a file."""
_DAMAGED = "download it again, and compare its sha256 with the publisher's"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """Facts of a GGUF file, from its header."""

    path: Path
    """The file."""
    architecture: str
    """llama.cpp's name of it."""
    name: str
    """The model's name for people; empty where the file has none."""
    licence: str
    """Its licence as the file states it; empty where it does not."""
    quantisation: dict[str, int]
    """Number of tensors by type, e.g. Q4_1."""
    weights: int
    """Numbers in all tensors."""
    splitting: str
    """Name of the way in which the vocabulary cuts text before merging; empty where the file has none."""


def read_header(path: Path) -> GgufFile:
    """The facts of a file. Raises CheckpointError for one that is none, is cut short or names no architecture."""
    with path.open("rb") as file:
        first = file.read(len(MAGIC))
    if first != MAGIC:
        raise CheckpointError(
            f"{path.name} is no GGUF file: it begins with {first!r}, not {MAGIC!r}", hint="name a .gguf file"
        )
    try:
        return _facts(path)
    # What a reader of mapped memory raises at an offset beyond the end.
    except (ValueError, IndexError, KeyError, OverflowError, struct.error) as error:
        if isinstance(error, CheckpointError):
            raise
        size = path.stat().st_size
        message = f"{path.name} is a damaged GGUF file, perhaps cut short at its {size:,} bytes: {error}"
        raise CheckpointError(message, hint=_DAMAGED) from error


def _facts(path: Path) -> GgufFile:
    from gguf import GGUFReader

    reader = GGUFReader(path)

    def text(key: str) -> str:
        field = reader.get_field(key)
        return str(field.contents()) if field else ""

    architecture = text("general.architecture")
    if not architecture or not reader.tensors:
        message = f"{path.name} holds no model: it names no architecture or has no tensors"
        raise CheckpointError(message, hint=_DAMAGED)
    return GgufFile(
        path=path,
        architecture=architecture,
        name=text("general.name"),
        licence=text("general.license"),
        quantisation=dict(Counter(tensor.tensor_type.name for tensor in reader.tensors).most_common()),
        weights=sum(int(tensor.n_elements) for tensor in reader.tensors),
        splitting=text("tokenizer.ggml.pre"),
    )


def read_model(file: GgufFile) -> PreTrainedModel:
    """The file's model without its weights, on torch's meta device. Raises CheckpointError or EngineError for one that
    cannot be read or trained."""
    try:
        config = AutoConfig.from_pretrained(
            file.path.parent, gguf_file=file.path.name, local_files_only=True, trust_remote_code=False
        )
        _check_sizes(file, config.get_text_config())
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    # What sizes that contradict each other raise, wherever the model's parts meet them.
    except (ValueError, KeyError, OSError, RuntimeError, TypeError, ArithmeticError, StrictDataclassError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{file.path.name}: transformers reads no GGUF file of the architecture {file.architecture!r}: {error}",
            hint="take the model in Hugging Face layout instead, or another architecture, e.g. llama, qwen3 or gemma3",
        ) from error
    refuse_logit_changes(model.config)
    refuse_other_attention(model)
    return model


def _check_sizes(file: GgufFile, config: PretrainedConfig) -> None:
    """Refuse sizes that the file's own weights cannot have: a model of a damaged number of layers is built for ever."""
    tensors = sum(file.quantisation.values())
    limits = {"num_hidden_layers": tensors, "hidden_size": file.weights, "intermediate_size": file.weights}
    for key, limit in limits.items():
        value = getattr(config, key, None)
        if isinstance(value, int) and not 0 < value <= limit:
            message = f"{file.path.name} says {key} {value:,}, with {file.weights:,} weights in {tensors:,} tensors"
            raise CheckpointError(message, hint=_DAMAGED)


def read_weights(file: GgufFile, model: PreTrainedModel) -> dict[str, Tensor]:
    """Every parameter of the model by its name, unpacked to fp32. Raises CheckpointError unless the file's weights and
    the model's are the same."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        # It draws a bar wherever standard error goes.
        with redirect_stderr(io.StringIO()):
            read = load_gguf_checkpoint(
                str(file.path), return_tensors=True, model_to_load=model, torch_dtype=torch.float32
            )
    # Sizes in the header that its own weights have not.
    except (ValueError, ArithmeticError) as error:
        message = f"{file.path.name}: its weights are not of the sizes that its header says: {error}"
        raise CheckpointError(message, hint=_DAMAGED) from error
    found: dict[str, Tensor] = read["tensors"]
    wanted = dict(model.named_parameters())
    differing = sorted(set(wanted) ^ set(found))
    own = sum(weight.numel() for weight in wanted.values())
    if differing or own != file.weights or any(found[name].shape != each.shape for name, each in wanted.items()):
        raise CheckpointError(
            f"{file.path.name} holds {file.weights:,} weights, and transformers' model of it {own:,}"
            + (f"; they disagree about {', '.join(differing[:3])}" if differing else ""),
            hint="take the model in Hugging Face layout instead",
        )
    return {name: found[name] for name in wanted}


def write_companions(file: GgufFile, model: PreTrainedModel, out: Path) -> tuple[str, ...]:
    """Write configs and tokenizer into an existing folder; returns remarks that a user has to know."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            file.path.parent, gguf_file=file.path.name, local_files_only=True, trust_remote_code=False
        )
        ends = _ends(tokenizer, model)
    except (ValueError, LookupError, TypeError, TemplateError) as error:
        message = f"{file.path.name}: its vocabulary or its chat template cannot be read: {error}"
        raise CheckpointError(message, hint=_DAMAGED) from error
    remarks = _cut_as_trained(file, tokenizer)
    model.config.dtype = torch.float32
    model.config.save_pretrained(out)
    GenerationConfig(
        eos_token_id=ends, bos_token_id=tokenizer.bos_token_id, pad_token_id=tokenizer.pad_token_id
    ).save_pretrained(out)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = plain_template(tokenizer)
        remarks = (*remarks, "the file has no chat template: prompts are put as plain turns, `User:` and `Assistant:`")
    tokenizer.save_pretrained(out)
    return remarks


def _cut_as_trained(file: GgufFile, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Cut text as the vocabulary was learned. Where transformers does not know the name, it keeps digits together.

    splits.csv has names that llama.cpp knows besides (llama-vocab.cpp): `apart` cuts at every digit before all else.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    with (files(__package__) / "splits.csv").open(encoding="utf-8") as table:
        digits = {row["splitting"]: row["digits"] for row in csv.DictReader(table)}
    if digits.get(file.splitting) == "apart":
        cuts = [
            pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    elif file.splitting and file.splitting not in {*digits, *GGUF_PRE_TOKENIZER_SPLITS}:
        return (f"the vocabulary cuts text in the way {file.splitting!r}, unknown here: tokens may be the wrong ones",)
    return ()


_TURNS = [{"role": "user", "content": "Question"}, {"role": "assistant", "content": "Answer"}]


def _ends(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> list[int]:
    """Tokens that end a response: the file's own, and the one that its chat template puts after an answer."""
    named = [each for each in (model.config.eos_token_id, tokenizer.eos_token_id) if isinstance(each, int)]
    if tokenizer.chat_template is not None:
        after = str(tokenizer.apply_chat_template(_TURNS, tokenize=False)).rpartition("Answer")[2]
        following = tokenizer.encode(after, add_special_tokens=False)[:1]
        named += [each for each in following if getattr(tokenizer.added_tokens_decoder.get(each), "special", False)]
    return list(dict.fromkeys(named))
