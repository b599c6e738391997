from pathlib import Path

import pytest

from infuser_core.capacity.forecast import SIZES, Asked, ask, scale
from infuser_core.capacity.phases import TERMS
from infuser_core.config.overlays import load

ALL = ["engine.trainer=deepspeed", "engine.ranks=8", "engine.placement=colocated"]


def planned(*changes: str) -> Asked:
    return ask(load([Path("configs/qwen3-8b.yaml")], list(changes)), "8xH100", model=None, tokens=[], disk=3.0)


@pytest.mark.parametrize("schedule", ["published", "packed"])
def test_sizes_and_terms_add_up(schedule: str):
    found = scale(planned(*ALL), schedule)
    assert tuple(size.gpus for size in found.sizes) == SIZES
    for size in found.sizes:
        assert sum(size.terms.values()) == pytest.approx(size.iteration)
        assert sum(size.phases.values()) == pytest.approx(size.iteration)
    assert all(0.9 < size.speedup <= 2.05 for size in found.sizes)


def test_scaling_stops_and_names_what_no_longer_shrinks():
    found = scale(planned(*ALL), "packed")
    assert 8 <= found.stops_at < 512
    assert found.reason.startswith(f"at {2 * found.stops_at} GPUs")
    assert any(meaning in found.reason for meaning in TERMS.values())


def test_more_gpus_cost_more_gpu_hours():
    hours = [size.gpu_hours for size in scale(planned(*ALL), "packed").sizes]
    assert hours == sorted(hours)


def test_the_longest_response_does_not_shrink():
    longest = [size.terms["longest"] for size in scale(planned(*ALL), "packed").sizes]
    assert longest == pytest.approx([longest[0]] * len(longest), rel=0.05)


def test_a_local_trainer_gains_nothing_from_more_gpus():
    sizes = scale(planned(), "packed").sizes
    assert sizes[0].phases["update_solver"] == pytest.approx(sizes[-1].phases["update_solver"])
