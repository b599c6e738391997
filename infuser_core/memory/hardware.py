"""Memory and speed of known GPUs, of clusters of GPUs, and of this host's processor."""

import csv
import math
import os
import re
import resource
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from infuser_core.errors import UsageError, abbreviate
from infuser_core.system.child import CONTROL_GROUPS


def read_table(name: str, *, package: str = __package__) -> list[dict[str, str]]:
    """Read a CSV file of a package: one dictionary per row."""
    with (files(package) / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


SIZE = 1024
"""Rows and columns of the matrices: in smaller ones a library's threads wait for each other longer than they work."""
TURNS = 5
"""Repeats; the fastest counts, as other processes only slow it down."""


def measure_matrix_flops() -> float:
    """Measure the FLOP/s of one thread in a product of square fp32 matrices."""
    import numpy as np

    matrix, fastest = np.ones((SIZE, SIZE), dtype=np.float32), float("inf")
    for _ in range(TURNS + 1):
        # CPU seconds of all threads, so that the result is per thread.
        start = time.process_time()
        matrix @ matrix
        fastest = min(fastest, time.process_time() - start)
    return 2.0 * SIZE**3 / max(fastest, 1e-9)


def host_memory() -> float:
    """Return the bytes of the host's memory, or of the container's limit if that is lower."""
    return min(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), container_memory()[0])


def peak_resident(who: int = resource.RUSAGE_SELF) -> int:
    """Return the bytes of the largest resident set so far of this process, or of its children."""
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(who).ru_maxrss * (1024 if sys.platform != "darwin" else 1)


def container_memory(groups: Path = CONTROL_GROUPS) -> tuple[float, float]:
    """Return the container's memory limit and the bytes of it in use; the limit is infinite if there is none."""
    try:
        limit, used = ((groups / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return math.inf, 0.0
    return float(limit) if limit.isdigit() else math.inf, float(used)


def free_host_memory(facts: Path = Path("/proc/meminfo"), groups: Path = CONTROL_GROUPS) -> int:
    """Return the bytes of main memory that this process can still take, within a container's limit."""
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", facts.read_text())
    except OSError:
        available = None
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = container_memory(groups)
    return int(min(int(available[1]) * 1024 if available else total // 2, max(0.0, limit - used)))


HOST_SHARE = 0.5
"""Share of a machine's free main memory that the state of idle engines may take: pinned copies may be twice as large as
their contents, since torch allocates them in powers of two."""


def sleep_level(weights: int, *, engines: int, free: int) -> int:
    """Choose vLLM's level of sleep: 1 keeps an engine's weights in the host's memory, 2 drops them.

    `weights`: bytes of one engine's weights; `engines`: number on the machine; `free`: bytes of its main memory.
    """
    return 1 if engines * weights <= HOST_SHARE * free else 2


NODE = 8
"""GPUs of one node, if only the total is given."""
GIB = 2**30
HOST = "cpu"
"""Name of this host's processor, planned as if it were an accelerator."""
PYTHON = 0.45 * GIB
"""Bytes of a process with torch and transformers but no driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Memory and speed of one accelerator."""

    name: str
    memory: float
    """Bytes that programs see."""
    flops: float
    """Dense bf16 FLOP/s with fp32 sums."""
    context: float = 1.2 * GIB
    """Bytes of one process: driver context, kernels and library workspaces."""
    graphs: float = 1.0 * GIB
    """Bytes of captured decoding graphs and the sampler's own buffers."""

    @property
    def is_host(self) -> bool:
        """Whether this is the host's processor with its main memory."""
        return self.name == HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes with equal numbers of equal GPUs."""

    gpu: Gpu
    nodes: int
    per_node: int

    @property
    def ranks(self) -> int:
        """Total number of GPUs."""
        return self.nodes * self.per_node

    @property
    def label(self) -> str:
        """The cluster as text that `parse_cluster` reads, e.g. `2x8xH100`."""
        return (f"{self.nodes}x" if self.nodes > 1 else "") + f"{self.per_node}x{self.gpu.name}"


@cache
def known_gpus() -> dict[str, Gpu]:
    """Read the accelerators of hardware.csv, by name."""
    return {
        row["name"]: Gpu(
            name=row["name"], memory=float(row["memory_gib"]) * GIB, flops=float(row["bf16_tflops"]) * 1e12
        )
        for row in read_table("hardware")
    }


def plain(name: str) -> str:
    """Reduce a GPU's name to lower-case letters, digits and dots, for comparison."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def find_gpu(text: str) -> Gpu | None:
    """Find a known accelerator by one of its names, such as the driver's; None for an unknown one."""
    names = {plain(name): row["name"] for row in read_table("hardware") for name in (row["name"], *row["also"].split())}
    return known_gpus().get(names.get(plain(text), ""))


def parse_cluster(text: str) -> Cluster:
    """Parse `1xRTX4090`, `8xH100`, `2x8xH100` (nodes x GPUs), or `cpu`: this host, whose speed is measured.

    Raises UsageError for any other text.
    """
    parts = re.fullmatch(r"\s*(?:(\d{1,6})\s*[xX*]\s*)?(?:(\d{1,6})\s*[xX*]\s*)?(.*?)\s*", text)
    *counts, kind = parts.groups() if parts else ("", text)
    if plain(kind) == "cpu":
        return Cluster(gpu=this_host(), nodes=1, per_node=1)
    gpu = find_gpu(kind)
    if gpu is None:
        hint = f"known: {', '.join(known_gpus())}, cpu"
        raise UsageError(f"--gpus {text[:80]}: unknown GPU {abbreviate(kind)}", hint=hint)
    numbers = [int(count) for count in counts if count]
    if not numbers or 0 in numbers:
        raise UsageError(
            f"--gpus {text}: the number of GPUs is missing", hint="e.g. 8xH100, or 2x8xH100 for two nodes of eight"
        )
    if len(numbers) == 2:
        return Cluster(gpu=gpu, nodes=numbers[0], per_node=numbers[1])
    return cluster_of_size(gpu, numbers[0])


def cluster_of_size(gpu: Gpu, ranks: int) -> Cluster:
    """Build a cluster of `ranks` GPUs: one node up to eight, else full nodes of eight. Raises UsageError for others."""
    if ranks <= NODE:
        return Cluster(gpu=gpu, nodes=1, per_node=ranks)
    if ranks % NODE:
        raise UsageError(f"{ranks} GPUs do not fill whole nodes of {NODE}", hint="say nodes and GPUs: 3x4xH100")
    return Cluster(gpu=gpu, nodes=ranks // NODE, per_node=NODE)


@cache
def this_host() -> Gpu:
    """Describe this machine's processor as an accelerator, with the measured FLOP/s of one thread."""
    return Gpu(name=HOST, memory=host_memory(), flops=measure_matrix_flops(), context=PYTHON, graphs=0.0)
