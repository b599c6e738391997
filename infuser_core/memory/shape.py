"""Dimensions of a decoder model, and its parameters, FLOPs and bytes of KV cache.

The anchor of a run is the pre-trained base model from which generator and solver both start.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from infuser_core.config.optimizers import options_class
from infuser_core.config.roles import ALL_LINEAR, AdapterSettings
from infuser_core.config.sources import AnchorSource, FolderAnchor, HubAnchor
from infuser_core.errors import ConfigError, UsageError
from infuser_core.memory.hardware import read_table

_REMEDY = "name a known model, or a folder with its config.json: --model FOLDER"


FOUR_BIT = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in 4 bits: 64 weights share a scale of one byte, and 256 scales one in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a dense decoder with grouped-query attention and a gated feed-forward part."""

    name: str
    """Name in the table, or of the folder."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    ffn: int
    """Width of the feed-forward part."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    vocabulary: int
    """Rows of the embedding."""
    tied: bool
    """Whether the output layer is the embedding."""
    window: int
    """Tokens that a windowed layer looks back; 0 if no layer has a window."""
    windowed_layers: int
    adapters: int = 0
    """Weights of the adapters that are trained instead of the model's; 0 if the model's are trained."""
    four_bit: bool = False
    """Whether the matrices of the layers, under adapters, are in 4 bits."""

    @property
    def layer_parameters(self) -> int:
        """Number of parameters in the matrices of one layer."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.ffn

    @property
    def hidden_matrices(self) -> list[tuple[int, int]]:
        """Rows and columns of one layer's trained hidden matrices; empty with adapters, whose matrices are small."""
        attention = [(self.hidden, heads * self.head_dim) for heads in (self.heads, self.kv_heads)] * 2
        return [] if self.adapters else attention + [(self.hidden, self.ffn)] * 3

    @property
    def parameters(self) -> int:
        """Number of all parameters, except those of norms over heads."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (self.layer_parameters + 2 * self.hidden) + self.hidden + embeddings

    def weight_bytes(self, width: float) -> float:
        """Count the bytes of all parameters, `width` each except those in 4 bits."""
        packed = self.layers * self.layer_parameters if self.four_bit else 0
        return width * float(self.parameters - packed) + FOUR_BIT * packed

    @property
    def trained(self) -> int:
        """Number of parameters that are trained: they have a gradient and moments."""
        return self.adapters or self.parameters

    def moments(self, optimizer: str) -> float:
        """Count the numbers that the optimizer stores in addition to the trained parameters."""
        hidden = self.adapters or self.layers * self.layer_parameters
        moments = options_class(optimizer).moments
        return float(len(moments(hidden=True)) * hidden + len(moments(hidden=False)) * (self.trained - hidden))

    def moment_bytes(self, optimizer: str) -> float:
        """Count the bytes of these numbers, in memory and in a checkpoint."""
        return options_class(optimizer).moment_bytes * self.moments(optimizer)

    def adapted(self, adapter: AdapterSettings | None) -> "Shape":
        """Return this model with low-rank adapters: a rank has a row for each input and a column for each output."""
        if adapter is None:
            return replace(self, adapters=0, four_bit=False)
        own, shared = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = dict.fromkeys(("k_proj", "v_proj"), self.hidden + shared)
        sizes |= dict.fromkeys(("q_proj", "o_proj"), self.hidden + own)
        sizes |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), self.hidden + self.ffn)
        # Layers of other names count as the largest.
        targets = sizes if adapter.targets == ALL_LINEAR else adapter.targets
        size = sum(sizes.get(name, self.hidden + self.ffn) for name in targets)
        return replace(self, adapters=self.layers * adapter.rank * size, four_bit=adapter.base == "nf4")

    @property
    def matrix_parameters(self) -> int:
        """Number of parameters that every token is multiplied with: the output layer's, but not the embedding's."""
        return self.layers * self.layer_parameters + self.vocabulary * self.hidden

    @property
    def cache_bytes(self) -> float:
        """Bytes of one token's keys and values in the cache, in bf16."""
        return 2.0 * 2 * self.layers * self.kv_heads * self.head_dim

    def forward_flops(self, tokens: float, context_pairs: float) -> float:
        """Count the FLOPs of a forward pass; `context_pairs`: sum over tokens of the tokens that each attends to."""
        return 2 * self.matrix_parameters * tokens + 4 * self.heads * self.head_dim * self.layers * context_pairs

    def group_flops(self, prompt: int, responses: Sequence[int]) -> float:
        """Count the FLOPs of a forward pass over a prompt and its responses, whose lengths these are.

        Unlike `forward_flops`, which plans, it counts the output layer only for response tokens, as trainers do.
        """
        alone, total = self.pairs(prompt), sum(responses)
        pairs = alone + sum(self.pairs(prompt + length) - alone for length in responses)
        layers = self.forward_flops(prompt + total, pairs)
        return layers - 2 * self.vocabulary * self.hidden * prompt

    def pairs(self, length: float) -> float:
        """Count the pairs of a token and one that it attends to, in a causal sequence; an average over layers."""
        full = length * length / 2
        if not self.windowed_layers or length <= self.window:
            return full
        windowed = self.window * (length - self.window / 2)
        share = self.windowed_layers / self.layers
        return share * windowed + (1 - share) * full


def gradient_passes(*, adapters: bool) -> int:
    """Count the forward passes that a gradient costs; with adapters, the model's weights need none of their own."""
    return 2 if adapters else 3


@cache
def known_shapes() -> dict[str, Shape]:
    """Read the models of shapes.csv, by each of their names."""
    shapes: dict[str, Shape] = {}
    for row in read_table("shapes"):
        numbers: dict[str, Any] = {key: int(value) for key, value in row.items() if key not in ("name", "also", "tied")}
        shape = Shape(name=row["name"], tied=row["tied"] == "1", **numbers)
        shapes |= dict.fromkeys((row["name"], *row["also"].split()), shape)
    return shapes


def shape_of(anchor: AnchorSource) -> Shape:
    """Find the shape of a run's anchor. Raises ConfigError for a model that is neither known nor on this machine."""
    if isinstance(anchor, FolderAnchor):
        return read_shape(Path(anchor.path))
    if not isinstance(anchor, HubAnchor):
        return read_shape(anchor.folder, name="nano")
    name = anchor.repo.rpartition("/")[2].lower()
    if name in known_shapes():
        return known_shapes()[name]
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = sorted((hub / f"models--{anchor.repo.replace('/', '--')}" / "snapshots").glob("*/config.json"))
    if not snapshots:
        raise ConfigError(f"anchor.repo = {anchor.repo!r}: unknown shape (known: {_list_names()})", hint=_REMEDY)
    return read_shape(snapshots[-1].parent, name=name)


def find_shape(text: str) -> Shape:
    """Find a model's shape by a name or folder given to `--model`. Raises UsageError if `text` is neither."""
    name = text.rpartition("/")[2].lower()
    if name in known_shapes():
        return known_shapes()[name]
    if not (Path(text) / "config.json").is_file():
        raise UsageError(f"--model {text}: neither a folder with config.json nor known ({_list_names()})", hint=_REMEDY)
    return read_shape(Path(text))


def _list_names() -> str:
    return ", ".join(sorted({shape.name for shape in known_shapes().values()}))


def read_shape(folder: Path, *, name: str = "") -> Shape:
    """Read a model's shape from config.json. Raises ConfigError if there is no file, or no dense decoder in it."""
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _from_config(content, name or folder.resolve().name)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=_REMEDY) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is no JSON object of numbers: {error}", hint=_REMEDY) from error
    except KeyError as error:
        raise ConfigError(f"{path} has no {error}", hint="only dense decoder models can be planned") from error


def _from_config(content: Mapping[str, Any], name: str) -> Shape:
    if "num_experts" in content or "num_local_experts" in content:
        raise ConfigError(f"{name} is a mixture of experts", hint="only dense decoder models can be planned")
    heads, layers = int(content["num_attention_heads"]), int(content["num_hidden_layers"])
    window = int(content.get("sliding_window") or 0)
    windowed = list(content.get("layer_types") or []).count("sliding_attention") if window else 0
    return Shape(
        name=name,
        layers=layers,
        hidden=int(content["hidden_size"]),
        ffn=int(content["intermediate_size"]),
        heads=heads,
        kv_heads=int(content.get("num_key_value_heads") or heads),
        head_dim=int(content.get("head_dim") or int(content["hidden_size"]) // heads),
        vocabulary=int(content["vocab_size"]),
        tied=bool(content.get("tie_word_embeddings", False)),
        window=window if windowed else 0,
        windowed_layers=windowed,
    )
