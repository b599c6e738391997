"""Memory of an update: token budgets that are searched for, running out of memory, and activations computed again."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_checkpoint, make_family, make_groups, trainer
from hypothesis import given
from hypothesis import strategies as st
from stock_engines import local_trainer
from torch.utils.flop_counter import FlopCounterMode

from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.memory import LEAST, SHARE, TokenBudget, free_memory
from infuser_core.engines.training.checkpoint import count_weights
from infuser_core.engines.training.packing import Packer, Segment, longest_row
from infuser_core.errors import EngineError
from infuser_core.memory.shape import read_shape
from infuser_core.memory.sizes import CHUNK, LAYERS, LOGIT_CELLS, PRODUCTS, activation_bytes_per_token
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
    fixed = 6.0 * shape.parameters + 12.0 * LOGIT_CELLS + 4.0 * min(CHUNK, shape.parameters)
    room = SHARE * (free - reserved) * MIB - fixed
    slope = activation_bytes_per_token(shape, width=2, retained=LAYERS)
    assert budget.facts()["token_budget_from"] == "predicted"
    assert budget.tokens == LEAST or budget.tokens * slope <= room
    assert budget.tokens == 131_072 or 2 * budget.tokens * slope > room


@given(free=st.integers(0, 600), configured=st.booleans())
def test_automatic_recomputation_keeps_the_products_of_as_many_tokens_as_fit(
    anchor: Checkpoint, free: int, configured: bool
) -> None:
    budget, shape = TokenBudget(4096 if configured else "auto", most=4096, checkpointing="auto"), anchor.path
    assert not budget.is_known
    budget.predict(Path(shape), free=free * MIB, width=4, master=4)
    slope = activation_bytes_per_token(read_shape(Path(shape)), width=4, retained=PRODUCTS)
    assert budget.is_known and (not configured or budget.tokens == 4096)
    assert budget.kept_tokens * slope <= SHARE * free * MIB
    assert budget.kept_tokens == 4096 or (budget.kept_tokens + 1) * slope > SHARE * free * MIB - 12.0 * (
        LOGIT_CELLS + CHUNK + read_shape(Path(shape)).parameters
    )


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


def test_the_pass_that_starts_again_has_the_bits_of_the_smaller_budget(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = (gradient(trainer(anchor, token_budget=budget), GROUPS).clone() for budget in (512, 256))
    engine = trainer(anchor, token_budget=512)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", "memory@trainer:micro_batch:2")
    assert torch.equal(gradient(engine, GROUPS), half) and not torch.equal(whole, half)


def test_below_the_least_budget_the_error_names_the_remedy(anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = trainer(anchor, token_budget=LEAST)
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", "memory@trainer:micro_batch")
    with pytest.raises(EngineError, match="256 tokens does not fit") as caught:
        gradient(engine, GROUPS)
    assert "gradient_checkpointing" in caught.value.hint


def test_a_response_that_alone_exceeds_the_memory_ends_the_halving(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, (group,) = trainer(anchor, token_budget=800), make_groups([(100, [450, 20])])
    for text in ("", "a micro-batch of 550 tokens does not fit"):
        monkeypatch.setattr(faults, "_passes", {})
        monkeypatch.setenv("INFUSER_CRASH_AT", "memory@trainer:micro_batch")
        if text:
            with pytest.raises(EngineError, match=text):
                gradient(engine, [group])
        else:
            # A response over the halved budget is computed by itself, not refused.
            assert gradient(engine, [group]).any()
        assert engine.facts()["token_budget"] == 400


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


RECOMPUTED = make_groups([*SHAPES, (6, [30, 2])], old=True)
KEPT_TOKENS = 24
"""Tokens that some rows of these groups exceed with their prompt."""


def flops(anchor: Checkpoint, **options: object) -> int:
    """FLOPs of matrix products and attention in one pass forward and backward."""
    engine = trainer(anchor, token_budget=64, **options)
    with FlopCounterMode(display=False) as counted:
        gradient(engine, RECOMPUTED[:1])
    return counted.get_total_flops()


def test_short_micro_batches_compute_no_product_again(anchor: Checkpoint) -> None:
    nothing, everything = flops(anchor), flops(anchor, gradient_checkpointing=True)
    assert everything > 1.2 * nothing
    assert flops(anchor, gradient_checkpointing=64) == nothing
    assert flops(anchor, gradient_checkpointing=5) == everything


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_computed_again_has_the_same_bits(anchor: Checkpoint, tmp_path: Path, dtype: str) -> None:
    found = []
    for checkpointing in (False, True, 64):
        engine = trainer(anchor, dtype=dtype, token_budget=64, gradient_checkpointing=checkpointing)
        accumulated = gradient(engine, RECOMPUTED)
        if not found:
            engine.keep_gradient(tmp_path / "reference")
        found.append((accumulated, engine.probe(RECOMPUTED, OBJECTIVE, tmp_path / "reference")))
    for other, probed in found[1:]:
        assert torch.equal(other, found[0][0])
        assert probed == found[0][1]


@pytest.mark.parametrize("family", ["qwen3", "olmo2", "gpt_neox", "phi3"])
def test_a_mixture_of_both_is_the_gradient_without_either(tmp_path: Path, family: str) -> None:
    model = make_family(tmp_path, family)
    plain, mixed = trainer(model, dtype="float64"), trainer(model, dtype="float64", gradient_checkpointing=KEPT_TOKENS)
    expected = gradient(plain, RECOMPUTED)
    assert float((gradient(mixed, RECOMPUTED) - expected).norm()) < 1e-6 * float(expected.norm())


ROWS = st.tuples(st.integers(1, 12), st.lists(st.integers(1, 30), min_size=1, max_size=5))


def tokens(batch: list[Segment]) -> int:
    return sum(segment.num_tokens for segment in batch)


def packer(kept: int) -> Packer:
    return Packer(token_budget=48, kept_tokens=kept, device=torch.device("cpu"), dtype=torch.float32)


@given(shapes=st.lists(ROWS, min_size=1, max_size=6), kept=st.integers(0, 64))
def test_rows_that_fit_below_the_limit_share_micro_batches_below_it(shapes: list, kept: int) -> None:
    groups = make_groups(shapes)
    batches = packer(kept).plan(groups, only_trained=False)
    seen = [(each.group, place) for batch in batches for each in batch for place in each.places]
    assert sorted(seen) == [(group, place) for group, each in enumerate(groups) for place in range(len(each.rows))]
    for batch in batches:
        longest = max(len(each.prompt) + len(row.token_ids) for each in batch for row in each.rows)
        assert tokens(batch) <= (48 if longest > kept or not kept else min(kept, 48))


@given(shapes=st.lists(ROWS, min_size=1, max_size=6), kept=st.integers(0, 64))
def test_groups_by_themselves_share_no_micro_batch(shapes: list, kept: int) -> None:
    groups = make_groups(shapes)
    groups[0] = replace(groups[0], rows=[replace(row, advantage=0.0) for row in groups[0].rows])
    alone = packer(kept)
    planned = [batches for _, batches in alone.plan_alone(groups)]
    assert not planned[0] and len(planned) == len(groups)
    for place, (group, batches) in enumerate(zip(groups, planned, strict=True)):
        assert {each.group for batch in batches for each in batch} <= {place}
        rows = sorted(row for batch in batches for each in batch for row in each.places)
        assert rows == [row for row, each in enumerate(group.rows) if each.advantage]
    accelerated = [place for place, _ in replace(alone, device=torch.device("cuda")).plan_alone(groups)]
    lengths = [longest_row([groups[place]]) for place in accelerated]
    assert sorted(accelerated) == [*range(len(groups))] and lengths == sorted(lengths, reverse=True)


@given(shapes=st.lists(ROWS, min_size=1, max_size=6), kept=st.integers(0, 64))
def test_on_an_accelerator_the_longest_rows_come_first(shapes: list, kept: int) -> None:
    groups, plain = make_groups(shapes), packer(kept)
    other = replace(plain, device=torch.device("cuda"))
    assert other.plan(groups) == plain.plan(groups)[::-1]
