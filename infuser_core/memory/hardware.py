"""Accelerators, clusters, this host's processor, and the six constants that turn counted work into seconds."""

import csv
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from infuser_core.config.shipped import read_yaml
from infuser_core.errors import ConfigError, UsageError, shown

Positive = Annotated[float, Field(gt=0, le=1e6, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Constants by which counted work costs more than on paper."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    matmul: Positive
    """Share of a GPU's dense bf16 rate that forward and backward of training reach."""
    memory: Positive
    """Share of what bounds decoding, memory bandwidth or dense rate; and of the bandwidth in AdamW and other sweeps."""
    link: Positive
    """Share of link, network and host bandwidths that collectives and copies reach."""
    decode_step: Positive
    """Seconds of a decoding step beyond the bytes it moves: scheduling, sampling, launches."""
    layer_pass: Positive
    """Seconds of one layer in one pass over a micro-batch beyond its matrix products: launches, elementwise work."""
    stage: Positive
    """Seconds between two phases."""


_EFFICIENCY = TypeAdapter(Efficiency)


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table of this folder."""
    with (files(__package__) / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def calibrated() -> Efficiency:
    """The constants in `constants.csv`: those that fit the paper's wall-clock table."""
    return Efficiency(**{row["name"]: float(row["value"]) for row in table("constants")})


def from_file(path: Path) -> Efficiency:
    """The constants in a YAML file, as `as_yaml` writes them. Raises ConfigError for what is none."""
    hint = "`infuser plan --calibrate RUN --to FILE` writes one"
    try:
        return _EFFICIENCY.validate_python(read_yaml(path, hint=hint))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "content"
        value = "missing" if first["type"] == "missing" else repr(first["input"])
        raise ConfigError(f"--efficiency {path}: {name} is {value}: {first['msg']}", hint=hint) from error


def as_yaml(efficiency: Efficiency, *, origin: str) -> str:
    """The text of such a file; `origin` says what the constants were found on."""
    # YAML reads 1e-05 as a word: its own writer puts a point in.
    values = {name: float(f"{value:.6g}") for name, value in asdict(efficiency).items()}
    return f"# {origin}\n{yaml.safe_dump(values, sort_keys=False)}"


CONTAINED = Path("/sys/fs/cgroup/memory.max")
"""Limit of a container."""
SIZE = 1024
"""Rows and columns of the matrices: in smaller ones a library's threads wait for each other longer than they work."""
SWEPT = 1 << 24
"""Bytes that are copied: more than a core's caches hold."""
TURNS = 5
"""Repeats; the fastest counts, for other work only slows down."""


def matrix_rate() -> float:
    """FLOP/s of a square fp32 product."""
    import numpy as np

    left = np.ones((SIZE, SIZE), dtype=np.float32)
    return 2.0 * SIZE**3 / _fastest(lambda: left @ left)


def sweep_rate() -> float:
    """Bytes/s read and written by a copy."""
    import numpy as np

    source = np.ones(SWEPT, dtype=np.uint8)
    target = np.empty_like(source)
    return 2.0 * SWEPT / _fastest(lambda: np.copyto(target, source))


def memory() -> float:
    """Bytes of the host's memory, or of what a container may have of it."""
    own = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        limit = CONTAINED.read_text().strip()
    except OSError:
        return own
    return min(own, float(limit)) if limit.isdigit() else own


def _fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest turn: of all threads together."""
    best = float("inf")
    for _ in range(TURNS + 1):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return max(best, 1e-9)


NODE = 8
"""GPUs of one node, where a cluster is given by its total alone."""
GIGA = 1e9
GIB = 2**30
HOST = "cpu"
"""Name of this host's processor in the place of an accelerator."""
PYTHON = 0.45 * GIB
"""Bytes of a process with torch and transformers, and no driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator as its maker describes it."""

    name: str
    """Name in the table."""
    memory: float
    """Bytes that programs see."""
    flops: float
    """Dense bf16 FLOP/s with fp32 sums."""
    bandwidth: float
    """Bytes/s between its memory and its cores."""
    link: float
    """Bytes/s to the other GPUs of a node, one direction."""
    network: float
    """Bytes/s to other nodes, one direction."""
    host: float
    """Bytes/s to the host's memory, one direction."""
    context: float = 1.2 * GIB
    """Bytes of one process: driver context, kernels and library workspaces."""
    graphs: float = 1.0 * GIB
    """Bytes of captured decoding graphs and the sampler's own buffers."""

    @property
    def is_host(self) -> bool:
        """Whether it is a processor with its main memory."""
        return self.name == HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal GPUs in equal nodes."""

    gpu: Gpu
    """The kind."""
    nodes: int
    """Nodes."""
    per_node: int
    """GPUs of a node."""

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.nodes * self.per_node

    @property
    def label(self) -> str:
        """The form that `cluster` reads."""
        return (f"{self.nodes}x" if self.nodes > 1 else "") + f"{self.per_node}x{self.gpu.name}"


@cache
def gpus() -> dict[str, Gpu]:
    """The table, by name."""
    return {row["name"]: _gpu(row) for row in table("hardware")}


def _gpu(line: dict[str, str]) -> Gpu:
    return Gpu(
        name=line["name"],
        memory=float(line["memory_gib"]) * GIB,
        flops=float(line["bf16_tflops"]) * 1e12,
        bandwidth=float(line["memory_gb_s"]) * GIGA,
        link=float(line["link_gb_s"]) * GIGA,
        network=float(line["network_gb_s"]) * GIGA,
        host=float(line["host_gb_s"]) * GIGA,
    )


@cache
def _names() -> dict[str, str]:
    return {plain(name): row["name"] for row in table("hardware") for name in (row["name"], *row["also"].split())}


def plain(name: str) -> str:
    """A name without case and separators."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def cluster(text: str) -> Cluster:
    """`1xRTX4090`, `8xH100`, `2x8xH100`, or `cpu`: this host, measured.

    Raises UsageError for what is none of them.
    """
    parts = re.fullmatch(r"\s*(?:(\d{1,6})\s*[xX*]\s*)?(?:(\d{1,6})\s*[xX*]\s*)?(.*?)\s*", text)
    *counts, kind = parts.groups() if parts else ("", text)
    if plain(kind) == "cpu":
        return Cluster(gpu=this_host(), nodes=1, per_node=1)
    found = _names().get(plain(kind))
    if found is None:
        raise UsageError(f"--gpus {text[:80]}: unknown GPU {shown(kind)}", hint=f"known: {', '.join(gpus())}, cpu")
    numbers = [int(count) for count in counts if count]
    if not numbers or 0 in numbers:
        raise UsageError(f"--gpus {text}: says not how many", hint="e.g. 8xH100, or 2x8xH100 for two nodes of eight")
    if len(numbers) == 2:
        return Cluster(gpu=gpus()[found], nodes=numbers[0], per_node=numbers[1])
    return of_size(gpus()[found], numbers[0])


def of_size(gpu: Gpu, ranks: int) -> Cluster:
    """So many GPUs, in nodes of eight where they are more. Raises UsageError for a partly empty last node."""
    if ranks <= NODE:
        return Cluster(gpu=gpu, nodes=1, per_node=ranks)
    if ranks % NODE:
        raise UsageError(f"{ranks} GPUs are no whole nodes of {NODE}", hint="say nodes and GPUs: 3x4xH100")
    return Cluster(gpu=gpu, nodes=ranks // NODE, per_node=NODE)


@cache
def this_host() -> Gpu:
    """This machine's processor as if it were an accelerator, by two short measurements of one thread."""
    sweep = sweep_rate()
    return Gpu(
        name=HOST,
        memory=memory(),
        flops=matrix_rate(),
        bandwidth=sweep,
        link=sweep,
        network=sweep,
        host=sweep,
        context=PYTHON,
        graphs=0.0,
    )
