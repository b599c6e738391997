"""Seconds to write, hash and flush a fake checkpoint: one after the other, and as the trainer's files are written.

`python tests/bench/checkpoint_files.py GB [FOLDER]`: so many GB in three files of random numbers; FOLDER's disk is measured.
"""

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from safetensors.torch import save_file

from infuser_core.durable import fsync
from infuser_core.store.verify import describe_all, hashing_ahead

FILES = 3


def serial(paths: list[Path], tensor: torch.Tensor) -> None:
    """Write a file, flush it, read it again for its digest, then the next."""
    for path in paths:
        save_file({"weight": tensor}, path)
        fsync(path)
        found = hashlib.sha256()
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                found.update(block)


def beside(paths: list[Path], tensor: torch.Tensor) -> None:
    """Hash and flush a file while the next one is written."""
    with hashing_ahead() as done:
        for path in paths:
            save_file({"weight": tensor}, path)
            done(path)
    describe_all(paths)


def timed(work: Callable[[list[Path], torch.Tensor], None], tensor: torch.Tensor, folder: Path) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        os.sync()
        start = time.monotonic()
        work([Path(name) / f"{place}.safetensors" for place in range(FILES)], tensor)
        return time.monotonic() - start


def main(gigabytes: float, folder: Path) -> None:
    tensor = torch.randn(int(gigabytes * 1e9 / FILES / 4))
    for turn in range(2):
        found = {work.__name__: timed(work, tensor, folder) for work in (serial, beside)}
        rates = ", ".join(f"{name} {seconds:.1f} s ({gigabytes / seconds:.2f} GB/s)" for name, seconds in found.items())
        load = os.getloadavg()[0]
        print(f"turn {turn}: {rates}, {found['serial'] / found['beside']:.2f} times; load {load:.1f}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path("/tmp"))
