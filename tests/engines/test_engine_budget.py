"""Token budgets that are found, and what happens where memory runs out."""

from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, gradient, make_checkpoint, make_groups, trainer
from hypothesis import given
from hypothesis import strategies as st
from stock_engines import local_trainer

from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.memory import LEAST, SHARE, TokenBudget, free_memory
from infuser_core.engines.training.checkpoint import count_weights
from infuser_core.errors import EngineError
from infuser_core.memory.shape import read_shape
from infuser_core.memory.sizes import LAYERS, LOGIT_CELLS, PIECE, activation_bytes_per_token
from infuser_core.schemas import Checkpoint
from infuser_core.system import fault_points as faults

MIB = 2**20
GROUPS = make_groups([(50, [60, 70, 50]), (40, [80, 30]), (60, [90, 90])])


def falling_to(free: int) -> Callable[[torch.device], int]:
    """Free memory that is plenty before the model is read, and `free` after."""
    answers = chain([2**34], repeat(free))
    return lambda device: next(answers)


@given(free=st.integers(0, 200), reserved=st.integers(0, 40))
def test_the_budget_fits_and_its_double_would_not(anchor: Checkpoint, free: int, reserved: int) -> None:
    budget, shape = TokenBudget("auto", most=131_072), read_shape(Path(anchor.path))
    budget.predict(Path(anchor.path), free=(free - reserved) * MIB, width=2, master=4)
    fixed = 6.0 * shape.parameters + 12.0 * (LOGIT_CELLS + min(PIECE, shape.parameters))
    room = SHARE * (free - reserved) * MIB - fixed
    slope = activation_bytes_per_token(shape, width=2, retained=LAYERS)
    assert budget.facts()["token_budget_from"] == "predicted"
    assert budget.tokens == LEAST or budget.tokens * slope <= room
    assert budget.tokens == 131_072 or 2 * budget.tokens * slope > room


def test_auto_settles_at_the_first_load_by_the_memory_that_is_free(anchor: Checkpoint) -> None:
    assert free_memory(torch.device("cpu")) > 10**7
    for free, expected in ((0, LEAST), (2**34, 2048)):
        engine = trainer(anchor, token_budget="auto", free=falling_to(free))
        assert (engine.facts()["token_budget"], engine.facts()["token_budget_from"]) == (expected, "predicted")


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


def test_a_longer_response_has_a_micro_batch_of_its_own(anchor: Checkpoint) -> None:
    found = trainer(anchor, token_budget="auto", free=falling_to(0))
    assert found.facts()["token_budget"] == LEAST
    assert gradient(found, make_groups([(100, [150, 156, 3])])).any()
    with pytest.raises(EngineError, match="over the budget of 240"):
        gradient(trainer(anchor, token_budget=240), make_groups([(100, [150, 150, 3])]))


def test_a_model_wider_than_memory_is_refused_before_it_is_read(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path)
    weights = count_weights(Path(checkpoint.path))
    enough = local_trainer(free=lambda device: 16 * weights)
    enough.load(checkpoint)
    # What a trainer holds gives way to what it loads next.
    enough.load(checkpoint)
    with pytest.raises(EngineError, match=f"the model has {weights:,} weights: training it takes"):
        local_trainer(free=lambda device: 16 * weights - 1).load(checkpoint)
    with pytest.raises(EngineError, match="making an anchor of it takes"):
        prepare_anchor(tmp_path / "source", tmp_path / "other", free=lambda: 12 * weights - 1)
    assert not (tmp_path / "other").exists()
