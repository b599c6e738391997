"""Builds an anchor: one 0.7M-parameter Qwen3 that plays generator, solver and judge of the micro-world.

`infuser nano build OUT` rebuilds it from nothing; no weights are downloaded. With `--world` it builds another world's
anchor, which starts from the shipped basic one: copying and looking up are known by then.
"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from infuser_core.errors import UsageError
from infuser_core.nano import lab
from infuser_core.nano.measure import Subject, base_rates
from infuser_core.nano.pretrain import Report, Schedule, inherit, new_model, pretrain, rescale
from infuser_core.nano.tokenizer import save_tokenizer, train_tokenizer
from infuser_core.nano.world import WORLDS, WorldName

CARD_FORMAT = 1
TEMPERATURE = 1.0
"""Sampling temperature of the measured base rates, and the one meant for training rollouts.

Below 1 the generator's majority of sound keys is sharpened so far that a fixed generator teaches nearly as well.
"""

SCHEDULES: dict[WorldName, Schedule] = {
    "basic": Schedule(),
    "strong": Schedule(steps=500, drill_until=0.02, mixed_until=0.1, drill_share=0.2, learning_rate=2e-3),
    "wide": Schedule(steps=1300, drill_until=0.03, mixed_until=0.5, drill_share=0.4, long_rows=16, learning_rate=2e-3),
    "hard": Schedule(steps=1500, drill_until=0.04, mixed_until=0.2, drill_share=0.4, learning_rate=2e-3),
}
"""The training schedule of each world's anchor."""


def silent(line: str) -> None:
    """Reports nothing."""


def build_anchor(
    out: Path, *, steps_scale: float = 1.0, seed: int = 0, world: str = "basic", progress: Report = silent
) -> dict[str, Any]:
    """Pre-train, measure and save the anchor; returns its card. Raises UsageError for an unknown world.

    The same seed and scale give the same weights, bit for bit, on the same machine: one thread, own random streams.
    """
    name = next((known for known in WORLDS if known == world), None)
    if name is None:
        raise UsageError(f"--world {world}: no such world", hint=f"one of {', '.join(sorted(WORLDS))}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _build(out, steps_scale, seed, name, progress)
    finally:
        torch.set_num_threads(threads)


def _build(out: Path, steps_scale: float, seed: int, name: WorldName, progress: Report) -> dict[str, Any]:
    began = time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    full, world = SCHEDULES[name], WORLDS[name]
    schedule = replace(full, steps=max(1, round(full.steps * steps_scale)))
    tokenizer = train_tokenizer(world)
    model = new_model(len(tokenizer), end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id, seed=seed)
    if name != "basic":
        inherit(model, tokenizer, lab.anchor_path())
    tokens = pretrain(model, tokenizer, schedule, seed=seed, report=progress, world=world)
    rescale(model, world.coordinate_spread, seed=seed)
    subject = Subject(model=model, tokenizer=tokenizer, world=world, temperature=TEMPERATURE)
    # A shortened build is a smoke test; measuring it in full would take longer than building it.
    rates = base_rates(subject, scale=1 if steps_scale >= 0.5 else 32)
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
        "world": asdict(world),
        "temperature": TEMPERATURE,
        "base_rates": rates,
    }
    model.set_attn_implementation("sdpa")
    model.save_pretrained(str(out))
    save_tokenizer(tokenizer, out)
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card
