"""Names of the files of a Hugging Face model in a folder, and a view of them made of links.

Imports no torch: who only starts engines has no use for the seconds that it takes.
"""

from collections.abc import Sequence
from pathlib import Path

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


def files_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """A folder's files of these patterns, by name."""
    return sorted({found for pattern in patterns for found in folder.glob(pattern) if found.is_file()})


def companions(folder: Path) -> dict[str, bytes]:
    """Contents of the files beside a model's weights, by name: what they are, and its tokenizer."""
    return {found.name: found.read_bytes() for found in files_of(folder, COMPANIONS)}


def link_model_files(source: Path, target: Path, weights: Path | None = None) -> None:
    """Fill a folder with links to a model's files, without optimizer state; `weights` take the place of its own."""
    for found in files_of(source, COMPANIONS if weights else (*COMPANIONS, *WEIGHTS)):
        (target / found.name).symlink_to(found.absolute())
    if weights:
        (target / "model.safetensors").symlink_to(weights)
