"""First half hour on a GPU: what the engines compute there, how fast, and where the time goes.

    python tests/bench/gpu_first.py floor                                # matmul and copy rates, versions, attention
    python tests/bench/gpu_first.py exact                                # scores, attention, repetition against fp64
    python tests/bench/gpu_first.py train --shape qwen3-1.7b --profile   # update, log-probabilities, scoring
    python tests/bench/gpu_first.py peer --shape qwen3-1.7b              # plain transformers on the same tokens
    python tests/bench/gpu_first.py sample --shape qwen3-1.7b            # tokens/s of the hf sampler by rows
    python tests/bench/gpu_first.py all --device cpu --shape tiny        # the same path on a CPU
    python tests/bench/gpu_first.py all --out tests/bench/gpu/h100.json  # also writes all lines, card and versions

Models are made on the device from random numbers, so that a shape of 4B parameters costs seconds and no disk.
"""

import argparse
import gc
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM
from workload import SHAPES, Shape, config_of, hf_sampler, local_trainer, make_groups, objective

from infuser_core.engines.hf.causal_lm import IMPLEMENTATION
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.training.checkpoint import TrainerState, read_reference, write_state
from infuser_core.engines.training.optimizer import build_optimizer
from infuser_core.memory.hardware import find_gpu
from infuser_core.memory.shape import gradient_passes, read_shape
from infuser_core.protocols import PromptGroup, SamplingParams, TrainGroup
from infuser_core.schemas import Checkpoint

OBJECTIVE = objective(length_norm=4096.0, temperature=1.0)
UNITS = 1e9
PEER_ROWS, PEER_TOKENS = 8, 4096
"""Rows of a padded batch of plain transformers, and tokens of one tile of its logits."""
lines: list[dict[str, Any]] = []
"""Everything that was said, for --out."""


def say(**facts: Any) -> None:
    """Print a line of JSON, and keep it."""
    lines.append({name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in facts.items()})
    print(json.dumps(lines[-1]), flush=True)


def seconds(device: torch.device, work: Callable[[], object], *, repeats: int = 3, warm: int = 1) -> float:
    """Median seconds of the uses after the first `warm` ones."""
    times = []
    for turn in range(warm + repeats):
        wait_for(device)
        start = time.perf_counter()
        work()
        wait_for(device)
        if turn >= warm:
            times.append(time.perf_counter() - start)
    return median(times)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def take_peak(device: torch.device) -> float | None:
    """Peak memory since the last call, GB; None on a CPU."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated() / UNITS
    torch.cuda.reset_peak_memory_stats()
    return peak


def random_model(shape: Shape, device: torch.device, dtype: torch.dtype, attention: str) -> Any:
    """A model with the same random weights in every dtype."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.float32, attn_implementation=attention)
    if dtype == torch.float64:
        compute_in_own_dtype(model)
    return nn.Module.to(model, dtype).eval()


class RandomTrainer(LocalTrainer):
    """A trainer whose folder has no weights: they are made on the device."""

    shape: Shape

    def _read_model(self, folder: Path) -> Any:
        model = random_model(self.shape, self._device, self._master_dtype, IMPLEMENTATION)
        return model, dict(model.named_parameters())

    def _hold(self, policy: Any, flat: Any, state: TrainerState, folder: Path, **parts: Any) -> None:
        self._policy, self._flat, self._adapter, self._buffers = policy, flat, parts["adapter"], parts["buffers"]
        self._optimizer = build_optimizer(flat, self._options)
        self._folder = folder


def make_trainer(shape: Shape, device: torch.device, folder: Path, **options: Any) -> RandomTrainer:
    """A trainer of random weights with AdamW's state at zero."""
    trainer = local_trainer(RandomTrainer, device=device.type, **{"token_budget": "auto"} | options)
    assert isinstance(trainer, RandomTrainer)
    trainer.shape = shape
    config_of(shape).save_pretrained(folder)
    write_state(TrainerState(step=0, optimizer=trainer._options.to_json()), folder)
    trainer.load(Checkpoint(checkpoint_id="random", role="solver", path=str(folder), step=0))
    return trainer


def count_tokens(groups: list[TrainGroup]) -> tuple[int, int]:
    """Tokens with each prompt once, and response tokens."""
    answers = sum(len(row.token_ids) for group in groups for row in group.rows)
    return answers + sum(len(group.prompt_token_ids) for group in groups), answers


def flops(folder: Path, groups: list[TrainGroup], passes: int) -> float:
    """FLOPs of the model in a forward pass (1) or a gradient; recomputation does not count."""
    shape = read_shape(folder)
    return passes * sum(
        shape.group_flops(len(group.prompt_token_ids), [len(row.token_ids) for row in group.rows]) for group in groups
    )


def utilisation(amount: float, took: float, device: torch.device) -> float | None:
    """Share of the card's dense bf16 rate; None for a card that is not in memory/hardware.csv, and on a CPU."""
    gpu = find_gpu(torch.cuda.get_device_name()) if device.type == "cuda" else None
    return None if gpu is None else amount / took / gpu.flops


def profile_kernels(label: str, device: torch.device, work: Callable[[], object], *, top: int = 14) -> None:
    """Say which kernels a piece of work spends its time in, and for which share no kernel runs."""
    if device.type != "cuda":
        return
    from torch.profiler import ProfilerActivity, profile

    wait_for(device)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        work()
        wait_for(device)
        wall = time.perf_counter() - start
    events = profiler.key_averages()
    kernels = [each for each in events if each.self_device_time_total > 0 and each.device_type.name == "CUDA"]
    busy = sum(each.self_device_time_total for each in kernels) / 1e6
    launches = sum(each.count for each in kernels)
    say(profile=label, wall=wall, kernels_s=busy, idle_share=1 - busy / wall, launches=launches)
    for each in sorted(kernels, key=lambda kernel: -kernel.self_device_time_total)[:top]:
        own = each.self_device_time_total / 1e6
        say(profile=label, share=own / busy, s=own, calls=each.count, kernel=each.key[:110])


def floor(device: torch.device, options: argparse.Namespace) -> None:
    """Rates that no engine can exceed, and the attention that each dtype gets."""
    on_card = device.type == "cuda"
    size = 8192 if on_card else 512
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    say(floor="bf16 matmul", tflops=2 * size**3 / seconds(device, lambda: left @ right, repeats=10, warm=3) / 1e12)
    block = torch.empty(size * size * 16 if on_card else 1 << 20, device=device, dtype=torch.uint8)
    other = torch.empty_like(block)
    took = seconds(device, lambda: other.copy_(block), repeats=10, warm=3)
    say(floor="copy", gb_s=2 * block.nbytes / took / UNITS)
    # The product of scoring.
    one, two = torch.randn(2, 1 << 26 if on_card else 1 << 14, device=device)
    took = seconds(device, lambda: torch.dot(one, two), repeats=10, warm=3)
    say(floor=f"dot of {len(one)}", gb_s=2 * one.nbytes / took / UNITS)


def exact(device: torch.device, options: argparse.Namespace) -> None:
    """Errors of scores against fp64 on the same device, of attention, and whether two passes are equal."""
    on_card = device.type == "cuda"
    shape = SHAPES["qwen3-0.6b-short" if on_card else "tiny"]
    lengths = {"prompt": 700, "response": 400, "spread": 200} if on_card else {"prompt": 9, "response": 7, "spread": 3}
    groups = make_groups(6, rows=8, vocabulary=shape.vocabulary, **lengths)
    dev = make_groups(4, rows=8, vocabulary=shape.vocabulary, seed=9, **lengths)

    def scores(dtype: str, **more: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(shape, device, Path(folder), dtype=dtype, token_budget=16384, **more)
            trainer.forward_backward(dev, OBJECTIVE, denominator=4)
            trainer.optim_step(1e-3)
            trainer.zero_grad()
            trainer.forward_backward(dev, OBJECTIVE, denominator=4)
            reference = Path(folder) / "reference.safetensors"
            trainer.keep_gradient(reference)
            gradient = trainer._flat.gradient.to("cpu", torch.float64, copy=True)
            similarities = trainer.probe(groups, OBJECTIVE, reference).similarities
            rows = [
                [e.dot / e.direction_norm / e.reference_norm, e.direction_norm, e.gradient_norm] for e in similarities
            ]
            return torch.tensor(rows).double(), gradient, trainer.facts()

    true, plain, _ = scores("float64")
    for dtype in ("float32", "bfloat16"):
        for attention in ("sdpa", "auto") if dtype == "bfloat16" else ("sdpa",):
            table, gradient, facts = scores(dtype, attention=attention)
            say(
                exact=f"{dtype} {facts['attention']}",
                cosine=float((table[:, 0] - true[:, 0]).abs().max()),
                norms=float(((table[:, 1:] - true[:, 1:]).abs() / true[:, 1:]).max()),
                gradient=float((gradient - plain).norm() / plain.norm()),
                same_order=bool((table[:, 0].argsort() == true[:, 0].argsort()).all()),
            )
    for deterministic in (False, True):
        one, two = (scores("bfloat16", deterministic=deterministic)[1] for _ in range(2))
        distance = float((one - two).norm() / one.norm())
        say(exact=f"twice, deterministic {deterministic}", same_bits=bool(torch.equal(one, two)), distance=distance)
    torch.use_deterministic_algorithms(False)


def train(device: torch.device, options: argparse.Namespace) -> None:
    """Seconds, tokens/s, utilisation and memory of an update, log-probabilities, scoring and AdamW."""
    shape = SHAPES[options.shape]
    groups = work_of(options)
    flat, answers = count_tokens(groups)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        trainer = make_trainer(
            shape, device, Path(folder), dtype=options.dtype, token_budget=options.budget, attention=options.attention
        )
        parameters = trainer._flat.data.numel()
        micro_batches = len(trainer._packer.plan(groups))
        say(train=options.shape, parameters=parameters, flat_tokens=flat, response_tokens=answers,
            micro_batches=micro_batches, **trainer.facts())  # fmt: skip
        reference = Path(folder) / "reference.safetensors"
        for _ in range(2):
            trainer.zero_grad()
            trainer.forward_backward(groups[:1], OBJECTIVE, denominator=1)
            trainer.optim_step(1e-6)
        trainer.forward_backward(groups[:1], OBJECTIVE, denominator=1)
        trainer.keep_gradient(reference)
        take_peak(device)

        def update() -> None:
            trainer.zero_grad()
            trainer.forward_backward(groups, OBJECTIVE, denominator=len(groups))

        backward = gradient_passes(adapters=False)
        works: dict[str, tuple[Callable[[], object], int]] = {
            "update": (update, backward),
            "logprobs": (lambda: trainer.logprobs(groups, temperature=1.0), 1),
            "scoring": (lambda: trainer.probe(groups, OBJECTIVE, reference), backward),
            "adamw": (lambda: trainer.optim_step(0.0), 0),
        }
        times = {}
        for name, (work, passes) in works.items():
            times[name] = took = seconds(device, work, repeats=options.repeats)
            mfu = utilisation(flops(Path(folder), groups, passes), took, device) if passes else None
            say(train=options.shape, step=name, s=took, flat_tokens_s=flat / took, response_tokens_s=answers / took,
                mfu=mfu, peak_gb=take_peak(device))  # fmt: skip
        # Scoring reads its reference from a file first: what a phase pays, and no arithmetic.
        copy = torch.zeros_like(trainer._flat.gradient)
        reading = seconds(device, lambda: read_reference(reference, trainer._flat.views(copy)), repeats=1)
        ratio = (times["scoring"] - reading) / times["update"]
        say(train=options.shape, reading_reference=reading, scoring_over_update=ratio)
        if options.profile:
            profile_kernels("update", device, works["update"][0])
            profile_kernels("scoring", device, works["scoring"][0])


def work_of(options: argparse.Namespace) -> list[TrainGroup]:
    """The groups of an update: rewards of zero and one, responses of unlike lengths."""
    return make_groups(
        options.groups,
        prompt=options.prompt,
        rows=8,
        response=options.response,
        vocabulary=SHAPES[options.shape].vocabulary,
        spread=options.response // 2,
    )


def peer(device: torch.device, options: argparse.Namespace) -> None:
    """The same responses as padded rows with a prompt each, by transformers' own model and cross entropy in bf16."""
    groups = work_of(options)
    answers = count_tokens(groups)[1]
    model = random_model(SHAPES[options.shape], device, torch.bfloat16, "sdpa")
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    model.train()
    rows = [([*group.prompt_token_ids], [*row.token_ids]) for group in groups for row in group.rows]
    rows.sort(key=lambda row: len(row[1]))

    def tile_loss(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")

    def update() -> None:
        for start in range(0, len(rows), PEER_ROWS):
            batch = rows[start : start + PEER_ROWS]
            width = max(len(prompt) + len(answer) for prompt, answer in batch)
            ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
            mask_BT = torch.zeros(len(batch), width, dtype=torch.bool)
            for place, (prompt, answer) in enumerate(batch):
                ids_BT[place, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
                mask_BT[place, len(prompt) : len(prompt) + len(answer)] = True
            ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
            hidden = model.model(ids_BT).last_hidden_state[:, :-1][mask_BT[:, 1:]]
            targets = ids_BT[:, 1:][mask_BT[:, 1:]]
            loss = torch.zeros((), device=device)
            for part, part_targets in zip(hidden.split(PEER_TOKENS), targets.split(PEER_TOKENS), strict=True):
                loss = loss + torch.utils.checkpoint.checkpoint(tile_loss, part, part_targets, use_reentrant=False)
            (loss / options.response).backward()
        model.zero_grad(set_to_none=True)

    took = seconds(device, update, repeats=options.repeats)
    say(peer="transformers", shape=options.shape, s=took, response_tokens_s=answers / took, peak_gb=take_peak(device))
    if options.profile:
        profile_kernels("peer", device, update)


class RandomSampler(HFSampler):
    """A sampler of random weights that never ends a response early."""

    def use(self, shape: Shape) -> None:
        """Make the model."""
        self._model = random_model(shape, self._device, self._dtype, IMPLEMENTATION)
        self._ends = [shape.vocabulary + 1]


def sample(device: torch.device, options: argparse.Namespace) -> None:
    """Tokens/s of the hf sampler by the number of rows."""
    shape = SHAPES[options.shape]
    sampler = hf_sampler(RandomSampler, device=device.type, dtype=options.dtype, cache_tokens=10**9)
    assert isinstance(sampler, RandomSampler)
    sampler.use(shape)
    params = SamplingParams(temperature=1.0, max_tokens=options.decode)
    for groups in (1, 3, 8, 32) if device.type == "cuda" else (1, 2):
        prompts = [
            PromptGroup(
                group_id=str(number),
                token_ids=[(7 * number + place) % (shape.vocabulary - 2) + 2 for place in range(options.prompt)],
                seeds=[8 * number + row for row in range(8)],
            )
            for number in range(groups)
        ]
        took = seconds(device, partial(sampler.sample, prompts, params), repeats=1)
        tokens = 8 * groups * options.decode
        say(sample=options.shape, rows=8 * groups, prompt=options.prompt, tokens=options.decode, s=took,
            ms_a_step=1000 * took / options.decode, tokens_s=tokens / took, peak_gb=take_peak(device),
            **{name: sampler.facts().get(name) for name in ("decoding", "not_captured", "ran_out_of_memory")})  # fmt: skip
        if options.profile and groups == 3:
            profile_kernels("sample", device, partial(sampler.sample, prompts, params))


WORKS = {"floor": floor, "exact": exact, "train": train, "peer": peer, "sample": sample}


def commit() -> str:
    """The commit of the checkout; empty if there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main(arguments: list[str]) -> int:
    """Measure; 2 without the device."""
    parser = argparse.ArgumentParser(description="what the engines compute on this device, and how fast")
    parser.add_argument("what", choices=[*WORKS, "all"])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-0.6b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--response", type=int, default=1024)
    parser.add_argument("--decode", type=int, default=128, help="tokens of a sampled response")
    parser.add_argument("--budget", type=lambda text: text if text == "auto" else int(text), default="auto")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="list the kernels")
    parser.add_argument("--out", type=Path, help="file for all lines with card, versions and commit")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device; the same path on a CPU: all --device cpu --shape tiny", file=sys.stderr)
        return 2
    device = torch.device(options.device)
    card = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {platform.machine()}"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    say(card=card, commit=commit(), **versions)
    for name in WORKS if options.what == "all" else [options.what]:
        start = time.perf_counter()
        WORKS[name](device, options)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        say(done=name, s=time.perf_counter() - start)
    if options.out:
        options.out.write_text("[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
