"""Find the files of a Hugging Face model in a folder, and link them into another folder.

Imports no torch, whose import takes seconds: processes that only start engines do not need it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infuser_core.errors import CheckpointError

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
"""Files of a model in addition to its weights (companions): the same in every checkpoint of a run."""

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
"""Files of the weights."""
_HEADS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def files_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """List a folder's files that match the patterns, sorted by name."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def weight_files(folder: Path) -> list[Path]:
    """List the files from which transformers reads a model's weights, an index before its shards; empty without any.

    Raises CheckpointError if config.json is no JSON object, or if transformers cannot use the index.
    """
    head = next((path for name in weight_heads(folder) if (path := folder / name).is_file()), None)
    if head is None:
        return []
    return [head, *(path for name in shard_names(head) if (path := folder / name).is_file())]


def weight_heads(folder: Path) -> Sequence[str]:
    """Return the names of the weight file or index that transformers looks for; it takes the first that exists."""
    name = read_json(folder / "config.json").get("transformers_weights")
    return [str(name)] if name else _HEADS


def shard_names(head: Path) -> list[str]:
    """List the files that a weight index names, relative to its folder; empty if `head` is a weight file.

    Raises CheckpointError for an index that transformers cannot use.
    """
    if head.suffix != ".json":
        return []
    index = read_json(head)
    places = index.get("weight_map")
    names = list(places.values()) if isinstance(places, dict) and isinstance(index.get("metadata"), dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise CheckpointError(
            f"{head} is no index of weights: weight_map must name their files, and metadata be an object",
            hint="fetch the model again",
        )
    return list(dict.fromkeys(names))


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty without the file. Raises CheckpointError for other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}", hint="fetch the model again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object", hint="fetch the model again")
    return content


def companions(folder: Path) -> dict[str, bytes]:
    """Read a model's files other than its weights, by name: configuration, tokenizer, license."""
    return {path.name: path.read_bytes() for path in files_of(folder, COMPANIONS)}


def link_model_files(source: Path, target: Path, weights: Path | None = None) -> None:
    """Fill a folder with links to a model's files, without optimizer state; `weights` replaces the model's own."""
    for path in files_of(source, COMPANIONS if weights else (*COMPANIONS, *WEIGHTS)):
        (target / path.name).symlink_to(path.absolute())
    if weights:
        (target / "model.safetensors").symlink_to(weights)
