"""Seconds to write, hash and flush a fake checkpoint: one after the other, and as the trainer's files are written.

`python tests/bench/checkpoint_files.py GB [FOLDER [TURNS]]`: so many GB in three files of random numbers; FOLDER's disk is
measured. The two take turns.
"""

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from safetensors.torch import save_file

from infuser_core.durable import fsync
from infuser_core.engines.training.tensor_files import write_all

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


def one_pass(paths: list[Path], tensor: torch.Tensor) -> None:
    """Write and hash in one pass, files beside each other."""
    assert len(dict(write_all({path: {"weight": tensor} for path in paths}))) == FILES


def timed(work: Callable[[list[Path], torch.Tensor], None], tensor: torch.Tensor, folder: Path) -> tuple[float, float]:
    """Seconds, and those of processors."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        os.sync()
        start, busy = time.monotonic(), time.process_time()
        work([Path(name) / f"{place}.safetensors" for place in range(FILES)], tensor)
        return time.monotonic() - start, time.process_time() - busy


def main(gigabytes: float, folder: Path, turns: int) -> None:
    tensor = torch.randn(int(gigabytes * 1e9 / FILES / 4))
    ratios = []
    for _ in range(turns):
        found = {work.__name__: timed(work, tensor, folder) for work in (serial, one_pass)}
        ratios.append([old / new for old, new in zip(found["serial"], found["one_pass"], strict=True)])
        told = ", ".join(f"{name} {wall:.1f} s ({busy:.1f} CPU-s)" for name, (wall, busy) in found.items())
        print(f"{told}: {ratios[-1][0]:.2f} times; load {os.getloadavg()[0]:.1f}", flush=True)
    middle = [statistics.median(each) for each in zip(*ratios, strict=True)]
    print(f"medians: {middle[0]:.2f} times as fast, {middle[1]:.2f} times less CPU")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(float(given[0]), Path(given[1] if len(given) > 1 else "/tmp"), int(given[2]) if len(given) > 2 else 5)
