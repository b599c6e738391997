"""Every engine of the shipped layouts on this machine's accelerators: `infuser rehearse` by layout, one table.

    .venv/bin/python tests/bench/gpu.py                        # one and two GPUs, the shape of Qwen3-0.6B in bf16
    .venv/bin/python tests/bench/gpu.py --device cpu --tiny    # the layouts that a CPU can run, at a toy shape
    .venv/bin/python tests/bench/gpu.py --only one-gpu-fresh --shape qwen3-1.7b
    .venv/bin/python tests/bench/gpu.py --only one-gpu --set engine.sampler=hf --gpus 1xH200    # no vLLM; beside the plan

Nothing is downloaded: weights are random, the tokenizer knows bytes. Each layout goes through generation, dev gradient,
scoring, update, save, push of weights, proof, kill with resume, and sleep, in a process of its own with prompts and
responses of the paper's lengths, and leaves seven copies of the model in TMPDIR, 43 GB at 0.6B. One that fails says so in its rows and stops no other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from workload import SHAPES, Shape, make_checkpoint

ROOT = Path(__file__).parents[2]
LIMIT = 1800
"""Seconds after which a layout counts as hanging."""
LENGTHS = ["cotrain.prompt_tokens=4096", "cotrain.generator_tokens=8192", "cotrain.solver_tokens=8192"]
SHORT = ["cotrain.prompt_tokens=48", "cotrain.generator_tokens=24", "cotrain.solver_tokens=24"]

HF = "engine.sampler=hf"
"""In layouts that try a trainer: their overlays name vLLM, and without it nothing would be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Overlays and settings that one rehearsal runs with."""

    configs: Sequence[str]
    changes: Sequence[str] = ()
    devices: int = 1


GPU = {
    "one-gpu": Layout(configs=["engine/one-gpu"]),
    "one-gpu-fresh": Layout(configs=["engine/one-gpu"], changes=["engine.weight_updates=fresh"]),
    "one-gpu-hf": Layout(configs=["engine/one-gpu"], changes=[HF]),
    "one-gpu-lora": Layout(configs=["engine/one-gpu", "engine/lora"]),
    "one-rank-zero-2": Layout(configs=["engine/eight-gpus"], changes=["engine.ranks=1", "engine.zero_stage=2", HF]),
    "one-rank-zero-3": Layout(configs=["engine/eight-gpus"], changes=["engine.ranks=1", HF]),
    "two-ranks-zero-3": Layout(configs=["engine/eight-gpus"], changes=["engine.ranks=2"], devices=2),
    "two-split": Layout(configs=["engine/eight-gpus-split"], changes=["engine.ranks=1"], devices=2),
}
CPU = {
    "hf-local": Layout(configs=[]),
    "lora": Layout(configs=["engine/lora"]),
    "two-ranks-zero-3": Layout(configs=["engine/deepspeed-cpu"]),
}


def anchor(folder: Path, shape: Shape) -> Path:
    """Random weights and a tokenizer of bytes."""
    make_checkpoint(folder, shape)
    alphabet = {symbol: place + 2 for place, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words = Tokenizer(models.BPE(vocab={"<pad>": 0, "<end>": 1, **alphabet}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", pad_token="<pad>", chat_template=template
    )
    tokenizer.save_pretrained(folder / "source")
    return folder / "source"


def rehearsed(layout: Layout, settings: Sequence[str], store: Path) -> list[dict[str, object]]:
    """Lines of one rehearsal; a single one where it ended without a table."""
    changes = [part for each in [*layout.changes, *settings] for part in ("--set", each)]
    asked = ["rehearse", "nano", *layout.configs, *changes, "--json"]
    command = [sys.executable, "-m", "flows.cli.main", *asked]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "INFUSER_STORE": str(store), "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        return list(json.loads(done.stdout)["lines"])
    except subprocess.TimeoutExpired:
        return [{"step": "all", "status": "failed", "told": f"not done after {LIMIT} s"}]
    except ValueError:
        return [{"step": "all", "status": "failed", "told": f"exit code {done.returncode}, see above"}]


def measured(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Lines of every layout that this machine has the devices for, as they come."""
    cpu = options.device == "cpu"
    devices = 1 if cpu else torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        made = anchor(Path(folder), SHAPES["tiny" if options.tiny else options.shape])
        settings = [f"anchor={{type: folder, path: {made}}}", *(SHORT if options.tiny else LENGTHS), *options.set]
        for name, layout in (CPU if cpu else GPU).items():
            if name not in (options.only or [name]):
                continue
            if layout.devices > devices:
                yield {"layout": name, "step": "all", "status": "left out", "told": f"needs {layout.devices} devices"}
                continue
            for line in rehearsed(layout, settings, Path(folder) / "store"):
                yield {"layout": name, **line}


def row(line: dict[str, object]) -> str:
    """A line of the table for RESULTS.md."""
    numbers = [f"{value:.2f}" if isinstance(value := line.get(name), float) else "" for name in NUMBERS]
    cells = [line["layout"], line["step"], line["status"], *numbers, str(line.get("told", "")).replace("|", "/")[:160]]
    return f"| {' | '.join(map(str, cells))} |"


NUMBERS = ("seconds", "gigabytes", "accelerator")


def main(arguments: Sequence[str]) -> int:
    """Rehearse everything; 1 where a step failed."""
    parser = argparse.ArgumentParser(description="the shipped layouts on this machine's accelerators")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-0.6b", help="of the model")
    parser.add_argument("--tiny", action="store_true", help="a toy shape and short texts")
    parser.add_argument("--only", nargs="+", choices=sorted({*GPU, *CPU}), metavar="LAYOUT")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of every layout")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device; the same path at a toy shape: --device cpu --tiny", file=sys.stderr)
        return 2
    lines = []
    for line in measured(options):
        lines.append(line)
        print(json.dumps(line), flush=True)
    where = f"{os.cpu_count()} CPUs" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"\n{where}, torch {torch.__version__}\n\n| layout | step | status | s | host GB | device GB | |")
    print("|---|---|---|---|---|---|---|\n" + "\n".join(map(row, lines)))
    return int(any(line["status"] == "failed" for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
