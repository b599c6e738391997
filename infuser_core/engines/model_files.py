"""Names of the files of a Hugging Face model in a folder, and a view of them made of links.

Imports no torch: who only starts engines has no use for the seconds that it takes.
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
"""Files beside the weights that every checkpoint of a run carries unchanged."""

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
"""The weights themselves."""
_HEADS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def files_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """A folder's files of these patterns, by name."""
    return sorted({found for pattern in patterns for found in folder.glob(pattern) if found.is_file()})


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers takes a model's weights from, an index before its shards; empty without any.

    Raises CheckpointError for a config.json that holds no JSON object, or an index that transformers cannot use.
    """
    head = next((path for name in weight_heads(folder) if (path := folder / name).is_file()), None)
    if head is None:
        return []
    return [head, *(path for name in shard_names(head) if (path := folder / name).is_file())]


def weight_heads(folder: Path) -> Sequence[str]:
    """Names of a weight file or an index that transformers looks for; it takes the first that is there."""
    configured = read_json(folder / "config.json").get("transformers_weights")
    return [str(configured)] if configured else _HEADS


def shard_names(head: Path) -> list[str]:
    """Names of the files that an index lists, relative to its folder; empty for weights.

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
    """A file's JSON object; empty without the file. Raises CheckpointError for any other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}", hint="fetch the model again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object", hint="fetch the model again")
    return content


def companions(folder: Path) -> dict[str, bytes]:
    """Contents of the files beside a model's weights, by name: what they are, and its tokenizer."""
    return {found.name: found.read_bytes() for found in files_of(folder, COMPANIONS)}


def link_model_files(source: Path, target: Path, weights: Path | None = None) -> None:
    """Fill a folder with links to a model's files, without optimizer state; `weights` take the place of its own."""
    for found in files_of(source, COMPANIONS if weights else (*COMPANIONS, *WEIGHTS)):
        (target / found.name).symlink_to(found.absolute())
    if weights:
        (target / "model.safetensors").symlink_to(weights)
