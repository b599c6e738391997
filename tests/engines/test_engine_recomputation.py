"""Micro-batches above a limit are computed again in backward, those below keep their products; gradients stay."""

from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_family, make_groups, trainer
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.schemas import Checkpoint

GROUPS = make_groups([*SHAPES, (6, [30, 2])], old=True)
LIMIT = 24
"""Tokens that some rows of these groups exceed with their prompt."""


def flops(anchor: Checkpoint, **options: object) -> int:
    """FLOPs of matrix products and attention in one pass forward and backward."""
    engine = trainer(anchor, token_budget=64, **options)
    with FlopCounterMode(display=False) as counted:
        gradient(engine, GROUPS[:1])
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
        accumulated = gradient(engine, GROUPS)
        if not found:
            engine.keep_gradient(tmp_path / "reference")
        found.append((accumulated, engine.probe(GROUPS, OBJECTIVE, tmp_path / "reference")))
    for other, probed in found[1:]:
        assert torch.equal(other, found[0][0])
        assert probed == found[0][1]


@pytest.mark.parametrize("family", ["qwen3", "olmo2", "gpt_neox", "phi3"])
def test_a_mixture_of_both_is_the_gradient_without_either(tmp_path: Path, family: str) -> None:
    model = make_family(tmp_path, family)
    plain, mixed = trainer(model, dtype="float64"), trainer(model, dtype="float64", gradient_checkpointing=LIMIT)
    expected = gradient(plain, GROUPS)
    assert float((gradient(mixed, GROUPS) - expected).norm()) < 1e-6 * float(expected.norm())


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
def test_whole_groups_below_the_limit_share_micro_batches_below_it(shapes: list, kept: int) -> None:
    batches, large = packer(kept).plan_whole(make_groups(shapes))
    _, without = packer(0).plan_whole(make_groups(shapes))
    assert large == without
    for batch in batches:
        groups = {each.group: [part for part in batch if part.group == each.group] for each in batch}
        largest = max(tokens(parts) for parts in groups.values())
        assert tokens(batch) <= (48 if largest > kept or not kept else min(kept, 48))
