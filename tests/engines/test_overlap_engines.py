"""Phases of two threads share the engines of a pool: each samples from its own checkpoint, and a trainer serves one."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint
from places import SUPPORT
from safetensors.torch import load_file, save_file
from scripted_engine import DIE

from infuser_core.engines.fake import fake_anchor
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

PARAMS = SamplingParams(temperature=1.0, max_tokens=12)
GROUPS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place, 5, 7], seeds=[place, place + 9]) for place in range(4)
]
ROUNDS = 3


def drawn(pool: EnginePool, checkpoint: Checkpoint) -> list[list[list[Completion]]]:
    """What a phase draws in several calls of one sampler."""
    sampler = pool.sampler(checkpoint)
    return [sampler.sample(GROUPS, PARAMS) for _ in range(ROUNDS)]


def test_phases_that_share_a_sampler_draw_each_from_their_own_checkpoint(tmp_path: Path):
    checkpoints = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        found = make_checkpoint(tmp_path / str(number), seed=number)
        checkpoints.append(replace(found, checkpoint_id=f"checkpoint {number}"))
    pool = EnginePool(sampler="hf", trainer="fake", sampler_options={"device": "cpu"})
    alone = [drawn(pool, checkpoint) for checkpoint in checkpoints]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(drawn, [pool, pool], checkpoints))
    assert together == alone


def test_a_trainer_serves_only_whoever_asked_for_it_last(tmp_path: Path):
    fake_anchor(tmp_path)
    anchor = Checkpoint(checkpoint_id="anchor", role="solver", path=str(tmp_path), step=0)
    pool = EnginePool(sampler="fake", trainer="fake")
    first, other = pool.trainer(anchor), pool.trainer(replace(anchor, role="generator"))
    first.zero_grad()
    second = pool.trainer(anchor)
    with pytest.raises(EngineError, match="another phase has taken over"):
        first.optim_step(0.1)
    second.zero_grad()
    other.zero_grad()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnginePool]:
    """A pool whose samplers are processes."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    options = {"dtype": "float32", "device": "cpu", "worker": "scripted_engine", "max_sequences": 4}
    found = EnginePool(sampler="vllm", trainer="fake", sampler_options=options)
    yield found
    found.close()


def uniform(folder: Path) -> Checkpoint:
    """A checkpoint that gives every token the same probability, as the scripted engine does."""
    checkpoint = make_checkpoint(folder)
    weights = load_file(f"{checkpoint.path}/model.safetensors")
    weights["model.norm.weight"] = torch.zeros_like(weights["model.norm.weight"])
    save_file(weights, f"{checkpoint.path}/model.safetensors", metadata={"format": "pt"})
    return checkpoint


def test_an_engine_that_dies_ends_its_own_phase_and_the_retry_has_a_fresh_one(pool: EnginePool, tmp_path: Path):
    solver = uniform(tmp_path)
    generator = replace(solver, role="generator")
    for checkpoint in (solver, generator):
        pool.sampler(checkpoint)
    before = {role: pool._warm[("sampler", role)].engine.pids for role in ("solver", "generator")}
    undisturbed: list[list[list[Completion]]] = []
    beside = threading.Thread(target=lambda: undisturbed.extend(drawn(pool, generator)))
    beside.start()

    started = time.monotonic()
    deadly = PromptGroup(group_id="deadly", token_ids=[DIE], seeds=[1])
    with pytest.raises(EngineError, match=r"was killed by signal 9 \(SIGKILL\)"):
        pool.sampler(solver).sample([*GROUPS, deadly], PARAMS)
    assert time.monotonic() - started < 15
    beside.join(60)

    again = pool.sampler(solver).sample(GROUPS, PARAMS)
    assert undisturbed == [again] * ROUNDS
    after = {role: pool._warm[("sampler", role)].engine.pids for role in ("solver", "generator")}
    assert after["generator"] == before["generator"]
    assert set(after["solver"]).isdisjoint(before["solver"])
