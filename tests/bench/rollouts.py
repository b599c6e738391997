"""Rollouts of a whole iteration from sampler to store to trainer: CPU seconds and peak memory, beside rows of objects.

`python tests/bench/rollouts.py [--million 60] [--json]`: 8,192 responses of Qwen3's vocabulary, one eighth of their tokens
in prompts that groups of eight share; a step is a process of its own. The plain path (arrow's own conversion of lists) runs
on a tenth of them, and its seconds and bytes are scaled up.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from measure import Row, shown

from infuser_core.cotrain.phases.training import train_group
from infuser_core.engines.training.packing import Packer
from infuser_core.schemas import Rollout
from infuser_core.store.series import Series
from infuser_core.store.tables import arrow_schema, read_rows, write_rows

ROWS = 8192
GROUP = 8
VOCABULARY = 151_936
ASKED = {"seconds": 5.0, "gigabytes": 1.5}
"""Times faster than the plain path; most memory of any step beyond an empty process."""


def rollouts(million: float, *, plain: bool) -> list[Rollout]:
    """Random responses: numbers in arrays, or as Python objects."""
    draw, rows = np.random.default_rng(0), ROWS // (10 if plain else 1) // GROUP * GROUP
    length = int(million * 1e6 / ROWS)
    made: list[Rollout] = []
    for place in range(rows):
        if place % GROUP == 0:
            prompt = draw.integers(0, VOCABULARY, length // 8 * GROUP // GROUP, dtype=np.int32)
        ids = draw.integers(0, VOCABULARY, length - len(prompt), dtype=np.int32)
        logs = -draw.random(len(ids), dtype=np.float32)
        kept = [each.tolist() if plain else Series(each) for each in (prompt, ids, logs)]
        made.append(
            Rollout(
                rollout_id=f"{place // GROUP}/{place % GROUP}",
                group_id=str(place // GROUP),
                sample_index=place % GROUP,
                role="solver",
                checkpoint_id="c",
                prompt_token_ids=kept[0],
                token_ids=kept[1],
                sampler_logprobs=kept[2],
                text="",
                finish_reason="stop",
                verdict="correct",
                reward=float(place % 2),
                malformed_reason="",
            )
        )
    return made


def write(path: Path, million: float, *, plain: bool) -> Callable[[], object]:
    """Rows to a file."""
    made = rollouts(million, plain=plain)
    if not plain:
        return lambda: write_rows(path, made, Rollout)
    schema = arrow_schema(Rollout)
    return lambda: pq.write_table(
        pa.Table.from_pylist([{f.name: getattr(row, f.name) for f in dataclasses.fields(row)} for row in made], schema),
        path,
        compression="zstd",
    )


def read(path: Path, *, plain: bool) -> Callable[[], object]:
    """A file to rows."""
    if not plain:
        return lambda: read_rows(path, Rollout)
    return lambda: [Rollout(**row) for row in pq.read_table(path).to_pylist()]


def pack(path: Path, *, plain: bool) -> Callable[[], object]:
    """A file to the tensors of every micro-batch of 32,768 tokens."""
    load = read(path, plain=plain)

    def packed() -> None:
        rows: list[Rollout] = load()  # type: ignore[assignment]
        packer = Packer(token_budget=32_768, device=torch.device("cpu"), dtype=torch.float32)
        groups = [train_group(rows[at : at + GROUP], [1.0, -1.0] * (GROUP // 2)) for at in range(0, len(rows), GROUP)]
        for segments in packer.plan(groups):
            packer.pack(segments)

    return packed


def step(name: str, path: Path, million: float, *, plain: bool) -> dict[str, float]:
    """Processor seconds of all threads and GB of one step in this process."""
    work = (
        write(path, million, plain=plain) if name == "write" else {"read": read, "pack": pack}[name](path, plain=plain)
    )
    started = time.process_time()
    before = BASE
    kept = work()
    seconds = time.process_time() - started
    del kept
    return {"seconds": seconds, "gigabytes": (peak() - before) / 1e9}


def peak() -> float:
    """Most memory that this process has held, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


BASE = peak()


def apart(name: str, path: Path, million: float, *, plain: bool) -> dict[str, float]:
    """A step in a process of its own, scaled to all rows."""
    words = ["--step", name, "--path", str(path), "--million", str(million), *(["--plain"] if plain else [])]
    done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    return {key: value * (10 if plain else 1) for key, value in json.loads(done.stdout).items()}


def measured(million: float) -> Iterator[Row]:
    """Every step beside its plain form."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("write", "read", "pack"):
            ours = apart(name, Path(folder, "rows.parquet"), million, plain=False)
            plain = apart(name, Path(folder, "plain.parquet"), million, plain=True)
            ratio = plain["seconds"] / ours["seconds"]
            told = f"{ours['seconds']:.1f} CPU-s beside {plain['seconds']:.1f}"
            yield Row(name=f"{name}: times faster", value=ratio, unit="x", target=f">= {ASKED['seconds']}", detail=told)
            told = f"{plain['gigabytes']:.1f} GB as Python objects"
            most = f"<= {ASKED['gigabytes']}"
            yield Row(name=f"{name}: peak", value=ours["gigabytes"], unit="GB", target=most, detail=told)


def main() -> int:
    """Measure; or do one step, and print what it took."""
    parser = argparse.ArgumentParser(description="rollouts of an iteration, written, read and packed")
    parser.add_argument("--million", type=float, default=60.0, help="tokens")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--step", choices=("write", "read", "pack"))
    parser.add_argument("--path", type=Path)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.step, options.path, options.million, plain=options.plain)))
        return 0
    return shown(measured(options.million), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
