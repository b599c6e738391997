"""The costs of a trainer's passes: tokens and FLOPs by count, time and memory of the device, shares of a known card."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, make_checkpoint, make_groups
from stock_engines import DEVICE, engine_pool

from infuser_core.engines.fake import fake_anchor
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.step_costs import GRADIENT, LOGPROBS, SCORING, STEP, TRIAL, CostMeter, record_costs
from infuser_core.engines.traces import traced
from infuser_core.engines.training.compute_clock import ComputeClock, DeviceUse
from infuser_core.memory.hardware import known_gpus
from infuser_core.schemas import Checkpoint

LENGTHS = (5, [4, 7])
# Two layers of 7,680 weights for 16 tokens, 100 pairs of 32 numbers twice, 64 rows of the output layer for 11 tokens.
FORWARD = 2 * 2 * 7680 * 16 + 4 * 32 * 2 * 100 + 2 * 64 * 32 * 11


@pytest.fixture
def anchor(tmp_path: Path) -> Checkpoint:
    return make_checkpoint(tmp_path / "anchor")


@pytest.fixture
def pool() -> EnginePool:
    return engine_pool(trainer="local", trainer_options={"token_budget": 512})


def groups():
    """One group of two responses with a gradient."""
    return make_groups([LENGTHS])


def test_rows_count_tokens_and_flops_and_cover_the_time(pool: EnginePool, anchor: Checkpoint, tmp_path: Path):
    reference = tmp_path / "reference.safetensors"
    with record_costs() as costs:
        trainer = pool.trainer(anchor)
        trainer.logprobs(groups(), temperature=1.0)
        trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
        trainer.keep_gradient(reference)
        trainer.zero_grad()
        trainer.probe(groups(), OBJECTIVE, reference)
        for _ in range(2):
            trainer.zero_grad()
            trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
            trainer.optim_step(1e-3)
            trainer.zero_grad()
    assert [(row.work, row.step) for row in costs] == [(LOGPROBS, 0), (GRADIENT, 0), (SCORING, 0), (STEP, 1), (STEP, 2)]
    assert [row.flops / FORWARD for row in costs] == [1, 3, 3, 3, 3]
    for row in costs:
        assert (row.role, row.num_tokens, row.computed_tokens) == ("solver", 11, 16)
        assert row.seconds > 0 and 0 <= row.idle_share < 1 and 0 < row.peak_memory < 500
        assert row.tokens_per_second == 16 / row.seconds and row.flops_per_second == row.flops / row.seconds
        assert row.device == trainer.facts()["device"]
        assert (row.mfu is None) == (DEVICE == "cpu")


def test_responses_without_advantage_are_counted_but_not_computed(pool: EnginePool, anchor: Checkpoint):
    (group,) = groups()
    flat = replace(group, rows=[group.rows[0], replace(group.rows[1], advantage=0.0)])
    with record_costs() as costs:
        trainer = pool.trainer(anchor)
        trainer.forward_backward([flat], OBJECTIVE, denominator=1)
        trainer.optim_step(1e-3)
    (row,) = costs
    assert (row.num_tokens, row.computed_tokens) == (11, 5 + 4)


def test_a_load_makes_trials_of_the_steps_that_it_undoes(pool: EnginePool, anchor: Checkpoint):
    with record_costs() as costs:
        trainer = pool.trainer(anchor)
        for _ in range(2):
            trainer.load(anchor)
            trainer.logprobs(groups(), temperature=1.0)
            trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
            trainer.optim_step(1e-3)
    assert [(row.work, row.step) for row in costs] == [(LOGPROBS, 0), (TRIAL, 1), (LOGPROBS, 0), (STEP, 1)]


def test_what_is_not_known_is_null(tmp_path: Path):
    fake_anchor(tmp_path)
    with record_costs() as costs:
        trainer = engine_pool().trainer(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path), step=0))
        trainer.logprobs(groups(), temperature=1.0)
    (row,) = costs
    assert (row.flops, row.flops_per_second, row.mfu, row.device) == (None, None, None, "")
    assert row.computed_tokens == 16 and row.peak_memory is not None


class Card:
    """What a trainer on two cards says about them."""

    def facts(self) -> dict[str, object]:
        return {"device": "NVIDIA H200", "ranks": 2}

    def take_use(self) -> DeviceUse:
        return DeviceUse(seconds=1e9, peak_memory=70.5)


def test_the_share_of_a_known_cards_rate_is_over_all_ranks(anchor: Checkpoint):
    with record_costs() as costs:
        meter = CostMeter(Card(), anchor)
        meter.add(groups())
        meter.close(SCORING)
        meter.close(SCORING)
    (row,) = costs
    assert row.mfu == pytest.approx(3 * FORWARD / row.seconds / (2 * known_gpus()["H200"].flops))
    # Two clocks differ by their rounding: a share is never negative.
    assert (row.idle_share, row.peak_memory) == (0.0, 70.5)


def test_a_clock_counts_blocks_once_and_leaves_out_those_that_fail():
    clock = ComputeClock(torch.device(DEVICE))
    with clock.computing():
        torch.ones(64, 64, device=DEVICE) @ torch.ones(64, 64, device=DEVICE)
    assert clock.take().seconds > 0
    with pytest.raises(RuntimeError), clock.computing():
        raise RuntimeError
    assert clock.take().seconds == 0


def test_traces_end_after_the_first_steps_of_updates(pool: EnginePool, anchor: Checkpoint, tmp_path: Path):
    with traced(tmp_path / "profile", 2) as writer:
        for for_update in (False, True):
            trainer = pool.trainer(anchor, for_update=for_update)
            trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
            trainer.keep_gradient(tmp_path / "reference.safetensors")
            trainer.zero_grad()
            for _ in range(3):
                trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
                trainer.optim_step(1e-3)
                trainer.zero_grad()
        trainer.probe(make_groups([LENGTHS] * 3), OBJECTIVE, tmp_path / "reference.safetensors")
    assert [path.name for path in writer.files] == ["step-1.json.gz", "step-2.json.gz", "scoring-1.json.gz"]
    assert sorted(writer.folder.iterdir()) == sorted(writer.files)
