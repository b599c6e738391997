"""Token budgets that are found, and what happens where memory runs out."""

from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, make_groups
from hypothesis import given
from hypothesis import strategies as st

from infuser_core import faults
from infuser_core.engines.local.memory import LEAST, SHARE, HostMemory, Need, ScriptedMemory, TokenBudget
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Objective
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

GIB = 2**30
NEED = Need(per_token=1e6, passing=1e9, scoring=2e9)
OBJECTIVE = Objective(length_norm=16.0)


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@given(free=st.integers(5, 200), slope=st.integers(500_000, 4_000_000), reserved=st.integers(0, 40))
def test_the_measured_slope_decides_and_the_budget_fits(free: int, slope: int, reserved: int) -> None:
    memory = ScriptedMemory(free=free * GIB, per_token=slope, fixed=int(NEED.passing))
    budget = TokenBudget("auto", most=131_072)
    budget.settle(NEED, memory, lambda tokens: None, reserved=reserved * GIB)
    room = SHARE * free * GIB - reserved * GIB - NEED.passing - NEED.scoring
    assert budget.facts()["token_budget_from"] == "measured"
    assert len(memory.measured) == 1 and memory.measured[0] <= 2048
    assert budget.tokens == LEAST or budget.tokens * slope <= room
    assert budget.tokens == 131_072 or 2 * budget.tokens * slope > room


def test_a_measurement_of_something_else_is_not_believed() -> None:
    budgets = []
    for slope in (1, 10**12):
        budgets.append(TokenBudget("auto", most=2**30))
        memory = ScriptedMemory(free=100 * GIB, per_token=slope)
        budgets[-1].settle(NEED, memory, lambda tokens: None, reserved=0.0)
    assert budgets[0].tokens == 8 * budgets[1].tokens > LEAST


def test_auto_settles_at_the_first_load_and_leaves_no_gradient(anchor: Checkpoint) -> None:
    memory = ScriptedMemory(free=2 * GIB, per_token=2_000)
    engine = LocalTrainer(device="cpu", token_budget="auto", memory=memory)
    engine.load(anchor)
    engine.load(anchor)
    assert len(memory.measured) == 1
    assert engine.facts()["token_budget"] in {2**power for power in range(8, 12)}
    assert not engine._flat.gradient.any()


def test_the_hosts_own_memory_is_read_and_a_peak_is_seen() -> None:
    memory = HostMemory()
    assert memory.free() > 10**7
    grown = memory.growth(lambda: torch.ones(16 * 2**20).sum(), tokens=1)
    assert grown is None or grown > 40 * 2**20


def gradient(engine: LocalTrainer) -> torch.Tensor:
    engine.zero_grad()
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=2)
    return engine._flat.gradient.clone()


GROUPS = make_groups([(50, [60, 70, 50]), (40, [80, 30]), (60, [90, 90])])


@pytest.mark.parametrize("passes", [1, 2])
def test_where_memory_runs_out_the_pass_starts_again_with_half(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    engine = LocalTrainer(device="cpu", dtype="float64", token_budget=512)
    engine.load(anchor)
    expected = gradient(engine)
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=2)
    twice = engine._flat.gradient.clone()
    torch.testing.assert_close(twice, 2 * expected)

    gradient(engine)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", f"memory@trainer:micro_batch:{passes}")
    # On top of a gradient that is there already, which must survive.
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=2)
    torch.testing.assert_close(engine._flat.gradient, twice)
    assert engine.facts()["token_budget"] == 256
    assert engine.facts()["ran_out_of_memory"] == ["512 tokens in a pass over groups"]


def test_below_the_least_budget_the_error_names_the_remedy(anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalTrainer(device="cpu", token_budget=LEAST)
    engine.load(anchor)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", "memory@trainer:micro_batch")
    with pytest.raises(EngineError, match="256 tokens does not fit") as caught:
        engine.forward_backward(GROUPS, OBJECTIVE, denominator=2)
    assert "gradient_checkpointing" in caught.value.hint


def test_a_longer_response_has_a_micro_batch_of_its_own(tmp_path: Path, anchor: Checkpoint) -> None:
    groups = make_groups([(100, [150, 150, 3])])
    found = LocalTrainer(device="cpu", token_budget="auto", memory=ScriptedMemory(free=0, per_token=1))
    found.load(anchor)
    assert found.facts()["token_budget"] == LEAST
    found.forward_backward(make_groups([(100, [150, 156, 3])]), OBJECTIVE, denominator=1)
    fixed = LocalTrainer(device="cpu", token_budget=240)
    fixed.load(anchor)
    with pytest.raises(EngineError, match="over the budget of 240"):
        fixed.forward_backward(groups, OBJECTIVE, denominator=1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masters_gradients_and_moments_are_fp32(anchor: Checkpoint, tmp_path: Path, dtype: str) -> None:
    engine = LocalTrainer(device="cpu", dtype=dtype, gradient_checkpointing=True)
    engine.load(anchor)
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=1)
    buffers = [engine._flat.data, engine._flat.gradient, engine._adamw.first, engine._adamw.second]
    before = engine._flat.data.clone()
    engine.optim_step(1e-6)
    assert {each.dtype for each in buffers} == {torch.float32}
    # A step this small is lost where weights are bf16.
    moved = (engine._flat.data - before).abs()
    assert 0 < float(moved.max()) < 1e-5


def test_asleep_it_holds_nothing_and_a_load_brings_it_back(anchor: Checkpoint) -> None:
    engine = LocalTrainer(device="cpu")
    engine.load(anchor)
    expected = gradient(engine)
    engine.sleep()
    assert not hasattr(engine, "_flat")
    with pytest.raises(EngineError, match="holds no checkpoint"):
        engine.zero_grad()
    engine.wake()
    engine.load(anchor)
    assert torch.equal(gradient(engine), expected)
