from pathlib import Path

import pytest

import infuser_core.nano
from infuser_core.capacity.shape import shape_of
from infuser_core.capacity.volume import files_of
from infuser_core.config.overlays import load
from infuser_core.store.retention import Course, Extent, Rule, verdicts

NANO = Path("configs/nano.yaml")


def test_a_checkpoint_is_three_times_the_fp32_weights():
    config = load([NANO])
    stored = (Path(infuser_core.nano.__file__).parent / "anchor" / "model.safetensors").stat().st_size
    assert files_of(config, shape_of(config.anchor)).checkpoint == pytest.approx(3 * stored, rel=0.02)


def test_iterations_add_two_checkpoints_and_a_gradient():
    config = load([NANO])
    found = files_of(config, shape_of(config.anchor))
    assert found.per_iteration == pytest.approx(found.checkpoint * (2 + 1 / 3))
    assert found.in_all == pytest.approx(found.checkpoint + 20 * found.per_iteration)


def test_a_fixed_generator_writes_solvers_alone():
    config = load([NANO, Path("configs/ablation/fixed_generator.yaml")])
    found = files_of(config, shape_of(config.anchor))
    assert found.per_iteration == pytest.approx(found.checkpoint)


@pytest.mark.parametrize("iterations", [0, 1, 2, 3, 5, 7, 20, 100])
def test_what_stays_is_what_retention_keeps(iterations: int):
    config = load([NANO, Path("configs/ablation/fixed_generator.yaml")], [f"cotrain.iterations={iterations}"])
    found = files_of(config, shape_of(config.anchor))
    size = {Extent.WHOLE: 1.0, Extent.WEIGHTS: 1 / 3, Extent.FACTS: 0.0}
    kept = verdicts(
        Course(iterations=range(iterations + 1), passed=iterations, selected=1, pinned=()), Rule(keep_full=2, every=5)
    )
    total = found.checkpoint * sum(size[verdict.extent] for verdict in kept.values())
    assert found.after_gc == pytest.approx(total)


def test_tidying_up_leaves_less_and_never_more():
    for iterations in (0, 1, 2, 3, 20, 100):
        config = load([NANO], [f"cotrain.iterations={iterations}"])
        found = files_of(config, shape_of(config.anchor))
        assert found.after_gc <= found.in_all
    assert found.after_gc < 0.5 * found.in_all
