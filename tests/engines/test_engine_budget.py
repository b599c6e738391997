"""Token budgets that are found, and what happens where memory runs out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, gradient, make_groups, trainer
from hypothesis import given
from hypothesis import strategies as st

from infuser_core import faults
from infuser_core.engines.local.memory import LEAST, SHARE, HostMemory, Need, TokenBudget
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

GIB = 2**30
NEED = Need(per_token=1e6, passing=1e9, scoring=2e9)
GROUPS = make_groups([(50, [60, 70, 50]), (40, [80, 30]), (60, [90, 90])])


class ScriptedMemory:
    """A device of a given size on which work takes `fixed` bytes and `per_token` for every token."""

    def __init__(self, *, free: int, per_token: int, fixed: int = 0) -> None:
        self._free, self._per_token, self._fixed = free, per_token, fixed
        self.measured: list[int] = []

    def free(self) -> int:
        return self._free

    def growth(self, work: Callable[[], object], *, tokens: int) -> int | None:
        work()
        self.measured.append(tokens)
        return self._fixed + self._per_token * tokens


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
    budgets = [TokenBudget("auto", most=2**30) for _ in range(2)]
    for budget, slope in zip(budgets, (1, 10**12), strict=True):
        budget.settle(NEED, ScriptedMemory(free=100 * GIB, per_token=slope), lambda tokens: None, reserved=0.0)
    assert budgets[0].tokens == 8 * budgets[1].tokens > LEAST


def test_auto_settles_at_the_first_load_and_leaves_no_gradient(anchor: Checkpoint) -> None:
    memory = ScriptedMemory(free=2 * GIB, per_token=2_000)
    engine = trainer(anchor, token_budget="auto", memory=memory)
    engine.load(anchor)
    assert len(memory.measured) == 1
    assert engine.facts()["token_budget"] in {2**power for power in range(8, 12)}
    assert not engine._flat.gradient.any()


def test_the_hosts_own_memory_is_read_and_a_peak_is_seen() -> None:
    memory = HostMemory()
    assert memory.free() > 10**7
    grown = memory.growth(lambda: torch.ones(16 * 2**20).sum(), tokens=1)
    assert grown is None or grown > 40 * 2**20


@pytest.mark.parametrize("passes", [1, 2])
def test_where_memory_runs_out_the_pass_starts_again_with_half(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    engine = trainer(anchor, dtype="float64", token_budget=512)
    expected = gradient(engine, GROUPS, denominator=2)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", f"memory@trainer:micro_batch:{passes}")
    # On top of a gradient that is there already, which must survive.
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=2)
    torch.testing.assert_close(engine._flat.gradient, 2 * expected)
    assert engine.facts()["token_budget"] == 256
    assert engine.facts()["ran_out_of_memory"] == ["512 tokens in a pass over groups"]


def test_below_the_least_budget_the_error_names_the_remedy(anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = trainer(anchor, token_budget=LEAST)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", "memory@trainer:micro_batch")
    with pytest.raises(EngineError, match="256 tokens does not fit") as caught:
        gradient(engine, GROUPS)
    assert "gradient_checkpointing" in caught.value.hint


def test_a_longer_response_has_a_micro_batch_of_its_own(tmp_path: Path, anchor: Checkpoint) -> None:
    found = trainer(anchor, token_budget="auto", memory=ScriptedMemory(free=0, per_token=1))
    assert found.facts()["token_budget"] == LEAST
    assert gradient(found, make_groups([(100, [150, 156, 3])])).any()
    with pytest.raises(EngineError, match="over the budget of 240"):
        gradient(trainer(anchor, token_budget=240), make_groups([(100, [150, 150, 3])]))
