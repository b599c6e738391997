"""How much cheaper the gradient work of an iteration is than its plain form: one JSON line per row, then a table.

    .venv/bin/python tests/bench/influence.py                      # CPU rows, one thread
    .venv/bin/python tests/bench/influence.py --device cuda        # the Qwen3-0.6B shape in bf16
    .venv/bin/python tests/bench/influence.py --shape tiny --repeats 1   # the accelerator's code path, anywhere

`plain` is the path everybody starts from: every response carries its own copy of the prompt, questions are scored one
backward each, and a forward pass of its own gives the update's old log-probabilities. Ratios alone are reported.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import transformers
from device_rows import device_rows
from gradient_work import Iteration, iteration
from result import Row, gradient_error, probe_error, table
from workload import MIDDLE, NANO, PLAIN, SHAPES, Shape, Trainers, make_groups, seconds

from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Objective, Similarity, TrainGroup


def probe_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(a) the nano anchor, (b) 15.7M parameters with prompts four times the responses."""
    nano = make_groups(35, prompt=33, rows=8, response=12, vocabulary=NANO.vocabulary, spread=2)
    yield from _probe_rows(folder / "nano", "nano", NANO, nano, repeats)
    middle = make_groups(2, prompt=192, rows=8, response=48, vocabulary=MIDDLE.vocabulary, spread=6)
    yield from _probe_rows(folder / "middle", "15.7M", MIDDLE, middle, max(1, repeats // 2))


def _probe_rows(folder: Path, label: str, shape: Shape, groups: list[TrainGroup], repeats: int) -> Iterator[Row]:
    made = Trainers(folder, shape, objective=Objective(length_norm=16.0), device="cpu", dtype="float32")
    engines = {
        "plain": made.make(**PLAIN),
        "plain, prompts shared": made.make(probe="reference"),
        "fast": made.make(),
    }
    results: dict[str, list[Similarity]] = {}

    def score(name: str) -> Callable[[], None]:
        return lambda: results.update({name: engines[name].probe(groups, made.objective, made.reference)})

    times = seconds({name: score(name) for name in engines}, repeats=repeats, device="cpu")
    for name, target in (("plain", ">= 2.5"), ("plain, prompts shared", "")):
        yield Row(
            name=f"scoring, {label}: fast against {name}",
            ratio=times[name] / times["fast"],
            target=target,
            error=probe_error(results["fast"], results[name]),
            device="cpu",
        )


def update_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(c) the generator's update with prompts five times the responses."""
    groups = make_groups(2, prompt=240, rows=8, response=48, vocabulary=MIDDLE.vocabulary, spread=6, seed=1)
    made = Trainers(folder / "update", MIDDLE, objective=Objective(length_norm=64.0), device="cpu", dtype="float32")
    engines = {"plain": made.make(repeated_prompts=True), "shared": made.make()}

    def update(engine: LocalTrainer) -> Callable[[], None]:
        def run() -> None:
            engine.zero_grad()
            engine.forward_backward(groups, made.objective, denominator=len(groups))

        return run

    times = seconds({name: update(each) for name, each in engines.items()}, repeats=max(1, repeats // 2), device="cpu")
    yield Row(
        name="generator update, 15.7M: prompts shared against repeated",
        ratio=times["plain"] / times["shared"],
        target=">= 2.5",
        error=gradient_error(engines["shared"], engines["plain"]),
        device="cpu",
    )


def iteration_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(d) the gradient work of a nano iteration: 16 dev questions, 35 of 64 generated ones varied, 8 documents."""
    sizes = {"vocabulary": NANO.vocabulary, "rows": 8, "spread": 2}
    work = Iteration(
        dev=make_groups(12, prompt=33, response=12, seed=2, **sizes),
        questions=make_groups(35, prompt=33, response=12, seed=3, **sizes),
        documents=make_groups(8, prompt=56, response=37, seed=4, **sizes),
        minibatch=16,
    )
    made = Trainers(folder / "iteration", NANO, objective=Objective(length_norm=16.0), device="cpu", dtype="float32")
    plain, fast = made.make(**PLAIN), made.make()
    path = folder / "dev.safetensors"
    runs = {
        "plain": lambda: iteration(plain, made, work, path, reuse=False),
        "fast": lambda: iteration(fast, made, work, path, reuse=True),
    }
    times = seconds(runs, repeats=repeats, device="cpu")
    yield Row(
        name="all gradient work of an iteration, nano: share of the plain path",
        ratio=times["fast"] / times["plain"],
        target="<= 0.5",
        error=gradient_error(fast, plain),
        device="cpu",
    )


def main(arguments: Sequence[str]) -> int:
    """Run the rows; returns the exit status."""
    parser = argparse.ArgumentParser(description="gradient work of an iteration against its plain form")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", choices=sorted(SHAPES), help="the accelerator's rows with this shape")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.device == "cpu" and options.shape is None:
            made = [part(folder, options.repeats) for part in (probe_rows, update_rows, iteration_rows)]
        else:
            dtype = "float32" if options.device == "cpu" else "bfloat16"
            name = options.shape or "qwen3-0.6b"
            made = [device_rows(folder, options.repeats, name=name, device=options.device, dtype=dtype)]
        for row in (row for part in made for row in part):
            rows.append(row)
            print(json.dumps(asdict(row) | {"met": row.met, "torch": torch.__version__}), flush=True)
    print(f"\n{platform.machine()}, torch {torch.__version__}, transformers {transformers.__version__}\n")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
