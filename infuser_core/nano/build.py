"""Builds the anchor: one 0.7M-parameter Qwen3 that plays generator, solver and judge of the micro-world.

`python -m infuser_core.nano.build OUT` rebuilds it from nothing; no weights are downloaded.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from infuser_core.nano.measure import base_rates
from infuser_core.nano.pretrain import Report, Schedule, new_model, pretrain
from infuser_core.nano.tokenizer import save_tokenizer, train_tokenizer
from infuser_core.nano.world import WORLD

CARD_FORMAT = 1
TEMPERATURE = 1.0
"""Sampling temperature of the measured base rates, and the one meant for training rollouts.

Below 1 the generator's majority of sound keys is sharpened so far that a fixed generator teaches nearly as well.
"""


def silent(step: int, steps: int, line: str) -> None:
    """Reports nothing."""


def build_anchor(out: Path, *, steps_scale: float = 1.0, seed: int = 0, progress: Report = silent) -> dict[str, Any]:
    """Pre-train, measure and save the anchor; returns its card.

    The same seed and scale give the same weights, bit for bit, on the same machine: one thread, own random streams.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _build(out, steps_scale, seed, progress)
    finally:
        torch.set_num_threads(threads)


def _build(out: Path, steps_scale: float, seed: int, progress: Report) -> dict[str, Any]:
    began = time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    full = Schedule()
    schedule = replace(full, steps=max(1, round(full.steps * steps_scale)))
    tokenizer = train_tokenizer()
    model = new_model(len(tokenizer), end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id, seed=seed)
    tokens = pretrain(model, tokenizer, schedule, seed=seed, report=progress)
    card = {
        "format": CARD_FORMAT,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "seed": seed,
        "steps_scale": steps_scale,
        "tokens_seen": tokens,
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "schedule": asdict(schedule),
        "world": asdict(WORLD),
        "temperature": TEMPERATURE,
        # A shortened build is a smoke test; measuring it in full would take longer than building it.
        "base_rates": base_rates(model, tokenizer, temperature=TEMPERATURE, scale=1 if steps_scale >= 0.5 else 32),
    }
    model.set_attn_implementation("sdpa")
    model.save_pretrained(str(out))
    save_tokenizer(tokenizer, out)
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def _console() -> Report:
    began = time.monotonic()

    def show(step: int, steps: int, line: str) -> None:
        if step % 20 == 0 or step == steps:
            left = (time.monotonic() - began) / step * (steps - step)
            print(f"step {step}/{steps}  {line}  {left:.0f} s left", file=sys.stderr, flush=True)

    return show


def main(arguments: list[str] | None = None) -> None:
    """Command line of `python -m infuser_core.nano.build`."""
    parser = argparse.ArgumentParser(prog="infuser_core.nano.build", description="Pre-train the nano anchor.")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and lessons")
    chosen = parser.parse_args(arguments)
    card = build_anchor(chosen.out, steps_scale=chosen.scale, seed=chosen.seed, progress=_console())
    print(json.dumps(card["base_rates"], indent=2))


if __name__ == "__main__":
    main()
