"""Peak memory of an update and of a score at a real vocabulary, each in a process of its own.

`python tests/bench/peak_memory.py PATH DTYPE TOKENS` prints one JSON object: bytes above the loaded trainer, CPU seconds.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from measure import Row
from workload import Shape, Trainers, make_groups, objective

WIDE = Shape(hidden=1024, layers=2, ffn=3072, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936)
PATHS = ("update", "score")


def rows(tokens: int) -> Iterator[Row]:
    """Score beside update, in both dtypes."""
    for dtype in ("float32", "bfloat16"):
        found = {path: _apart(path, dtype, tokens) for path in PATHS}
        for path in PATHS:
            yield Row(
                name=f"{path}, vocabulary 151,936, {tokens:,} tokens, {dtype}: peak above the trainer's own",
                value=found[path]["bytes"] / 2**20,
                unit="MiB",
                detail=f"{found[path]['seconds']:.1f} CPU-s",
            )
        yield Row(
            name=f"score beside update, {dtype}",
            value=found["score"]["bytes"] / found["update"]["bytes"],
            unit="times",
            target="<= 1.3",
        )


def _apart(path: str, dtype: str, tokens: int) -> dict[str, float]:
    ran = subprocess.run([sys.executable, __file__, path, dtype, str(tokens)], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _measure(path: str, dtype: str, tokens: int) -> dict[str, float]:
    torch.set_num_threads(1)
    groups = make_groups(1, prompt=64, rows=2, response=tokens, vocabulary=WIDE.vocabulary)
    # The first answer has the length asked for, the other one is short.
    del groups[0].rows[1].token_ids[16:], groups[0].rows[1].sampler_logprobs[16:]
    with tempfile.TemporaryDirectory() as folder:
        made = Trainers(Path(folder), WIDE, objective=objective(length_norm=16.0))
        trainer = made.make(token_budget=2 * tokens, **({} if dtype == "float32" else {"dtype": dtype}))
        # Kernels are chosen and loaded outside of what is measured.
        few = make_groups(1, prompt=8, rows=2, response=4, vocabulary=WIDE.vocabulary)
        work = {
            "update": lambda given: trainer.forward_backward(given, made.objective, denominator=1),
            "score": lambda given: trainer.probe(given, made.objective, made.reference).similarities,
        }[path]
        work(few)
        before, start = _resident("VmRSS"), time.process_time()
        Path("/proc/self/clear_refs").write_text("5")
        work(groups)
        return {"bytes": _resident("VmHWM") - before, "seconds": time.process_time() - start}


def _resident(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(what))


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
